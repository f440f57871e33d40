"""Auto-UI's answers."""

import json

from uivlm.actions.action import Action, Type, dual_point
from uivlm.actions.aitw import ACTION_TYPE_IDS
from uivlm.evaluation.answers.parts import FIXED_ACTIONS, UNIT_RANGE, InvalidAnswerError, to_point


def parse_autoui(output: str) -> Action:
    """`Action Plan: [...]; Action Decision: "action_type": "DUAL_POINT", ...`, points as text `"[y, x]"`.

    Auto-UI removes backslashes and quotes from its training texts, so a decision in braces is JSON.
    """
    plan, marker, decision = output.strip().partition("Action Decision:")
    if not marker or not (plan == "" or plan.startswith("Action Plan:")):
        raise InvalidAnswerError("expected `Action Decision:`, at the start or after an `Action Plan:`")
    match json.loads("{" + decision + "}"):
        case {"action_type": "DUAL_POINT", "touch_point": str(touch), "lift_point": str(lift)}:
            (y, x), (y2, x2) = json.loads(touch), json.loads(lift)
            return dual_point(to_point(x, y, UNIT_RANGE), to_point(x2, y2, UNIT_RANGE))
        case {"action_type": "TYPE", "typed_text": str(text)}:
            return Type(text)
        case {"action_type": str(name)} if ACTION_TYPE_IDS.get(name) in FIXED_ACTIONS:
            return FIXED_ACTIONS[ACTION_TYPE_IDS[name]]
    raise InvalidAnswerError("the decision's action_type is unknown or lacks its argument")
