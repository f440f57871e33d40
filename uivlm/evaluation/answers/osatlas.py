"""The answers of OS-Atlas: one action on the line after `actions:`."""

import re

from uivlm.actions.action import Action, Finish, Press, Tap, Type
from uivlm.evaluation.answers.parts import (
    CENTER,
    CoordinateRange,
    InvalidAnswerError,
    scroll_to_swipe,
    to_point,
    unsupported_action_error,
)

# Its custom actions for AndroidControl, GUI-Odyssey and GUIAct.
FIXED_ACTIONS: dict[str, Action] = {
    "PRESS_BACK": Press("back"),
    "PRESS_HOME": Press("home"),
    "ENTER": Press("enter"),
    "COMPLETE": Finish("complete"),
    "IMPOSSIBLE": Finish("impossible"),
}
REACH = 0.25  # ours: OS-Atlas names only a direction
MARKER = re.compile(r"(?:^|\n)actions:\n")
END = "<|im_end|>"  # may end a text of Qwen2-VL
NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
CLICK = re.compile(rf"CLICK <point>\[\[{NUMBER}, ?{NUMBER}\]\]</point>")
TYPE, SCROLL = re.compile(r"TYPE \[(.*)\]"), re.compile(r"SCROLL \[(UP|DOWN|LEFT|RIGHT)\]")


def parse_osatlas(output: str, coordinate_range: CoordinateRange) -> Action:
    """`thoughts:`, then `actions:` and one action, such as `CLICK <point>[[x, y]]</point>`; or that alone.

    Source: OS-Copilot/OS-Atlas, eval/data/ac_test.jsonl.
    """
    thoughts, *actions = MARKER.split(output.strip().removesuffix(END))
    if len(actions) > 1:
        raise InvalidAnswerError(f"`actions:` appears {len(actions)} times; expected once")
    action = (actions[0] if actions else thoughts).strip()
    if click := CLICK.fullmatch(action):
        return Tap(to_point(float(click[1]), float(click[2]), coordinate_range))
    if typed := TYPE.fullmatch(action):
        return Type(typed[1])
    if scroll := SCROLL.fullmatch(action):
        return scroll_to_swipe(CENTER, scroll[1].lower(), REACH)
    if action in FIXED_ACTIONS:
        return FIXED_ACTIONS[action]
    raise unsupported_action_error(action.split(" ")[0].lower(), "OS-Atlas")
