"""Parses the output of other tools' models as our actions, so that one scorer scores them all.

In: a model's output, its answer format, and the range of its coordinates. Out: the Action, or InvalidAction
with the reason. No text raises, none is executed as code, and no point is clipped to the screen. A text holds
one action; a text with several is invalid.
"""

import ast
import json
import re
import warnings
from typing import assert_never

from uivlm.actions.action import (
    Action,
    Finish,
    InvalidAction,
    Key,
    Point,
    Press,
    Swipe,
    Tap,
    Type,
    dual_point,
)
from uivlm.actions.aitw import ACTION_TYPE_IDS, KEYS, STATUSES
from uivlm.actions.text import ActionText
from uivlm.evaluation.names import AnswerFormat

CoordinateRange = tuple[int, int]  # height, width

MAX_CHARS = 20_000  # of an output: keeps Python's parser quick and within its stack
UNIT_RANGE: CoordinateRange = (1, 1)

# AITW's ids of the actions without arguments: SeeClick outputs the ids, Auto-UI their names.
FIXED_ACTIONS: dict[int, Action] = {
    **{type_id: Press(key) for type_id, key in KEYS.items()},
    **{type_id: Finish(status) for type_id, status in STATUSES.items()},
}
UITARS_FIXED_ACTIONS: dict[str, Action] = {
    **{f"press_{key}": Press(key) for key in KEYS.values()},
    "finished": Finish("complete"),
    "call_user": Finish("impossible"),
}
KEYS_BY_NAME: dict[str, Key] = {key: key for key in KEYS.values()}

# SeeClick and UI-TARS "scroll down" to show what lies below: the finger moves up. Its direction is (y, x).
FINGER_DIRECTIONS = {"down": (-1, 0), "up": (1, 0), "left": (0, 1), "right": (0, -1)}
CENTER = Point(0.5, 0.5)
SEECLICK_SCROLLS = {0: "down", 1: "up", 8: "left", 9: "right"}
SEECLICK_REACH = 0.3  # from the center to each end: its swipes run between 0.2 and 0.8
UITARS_REACH = 0.25  # ours: UI-TARS names only a point and a direction

# Actions of mobile_use and UI-TARS that AITW lacks.
UNSUPPORTED_ACTIONS = {
    "long_press",
    "key",
    "open",
    "wait",
    "answer",
    "left_double",
    "right_single",
    "open_app",
    "hotkey",
}

TYPE_CALL = re.compile(r"type\(content=(['\"])(.*)\1\)")
TOOL_CALL, TOOL_CALL_END = "<tool_call>", "</tool_call>"
TOOL_OBJECT = re.compile(r'\{\s*"name"')
BOX_TAGS = re.compile(r"<\|box_start\|>|<\|box_end\|>|</?point>")
BOX = re.compile(r"\((.*)\)|\[(.*)\]|([^()\[\]]*)")
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


class _InvalidAnswerError(Exception):
    """Why a text is not an action."""


def parse_answer(
    output: str, answer_format: AnswerFormat, coordinate_range: CoordinateRange, num_bins: int = 100
) -> Action | InvalidAction:
    """The action in an output of that format; InvalidAction for any other text.

    `coordinate_range` is (height, width). mobile_use: the pixels of the screenshot as the model saw it,
    (1000, 1000) for Qwen3-VL. uitars: (1000, 1000), or pixels for UI-TARS 1.5. The others ignore it: seeclick
    and autoui use fractions, ours uses `num_bins`.
    """
    if min(coordinate_range) <= 0:
        raise ValueError(f"coordinate_range: got {coordinate_range}; expected a height and a width above 0")
    if answer_format == "ours":
        return ActionText(num_bins).parse(output)
    if len(output) > MAX_CHARS:
        return InvalidAction(output, f"{len(output)} characters; the maximum is {MAX_CHARS}")
    try:
        match answer_format:
            case "seeclick":
                return _parse_seeclick(output)
            case "autoui":
                return _parse_autoui(output)
            case "mobile_use":
                return _parse_mobile_use(output, coordinate_range)
            case "uitars":
                return _parse_uitars(output, coordinate_range)
            case _:
                assert_never(answer_format)
    except _InvalidAnswerError as error:
        return InvalidAction(output, str(error))
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):  # from json and ast
        return InvalidAction(output, f"not in the format {answer_format}")


def _parse_seeclick(output: str) -> Action:
    """`{"action_type": 4, "click_point": (x, y)}`: a Python dict with AITW's ids and four scroll ids."""
    answer = ast.literal_eval(_parse_syntax(output.strip()))
    type_id = answer.get("action_type") if isinstance(answer, dict) else None
    if type(type_id) is not int:  # True == 1 and 5.0 == 5, but neither is an id
        raise _InvalidAnswerError("not a dict with an integer action_type")
    match type_id, answer:
        case 4, {"click_point": (x, y)}:
            return Tap(_point(x, y, UNIT_RANGE))
        case 3, {"typed_text": str(text)}:
            return Type(text)
        case _ if type_id in SEECLICK_SCROLLS:
            return _scroll_to_swipe(CENTER, SEECLICK_SCROLLS[type_id], SEECLICK_REACH)
        case _ if type_id in FIXED_ACTIONS:
            return FIXED_ACTIONS[type_id]
    raise _InvalidAnswerError(f"action_type {_abbreviate(type_id)} is unknown or lacks its argument")


def _parse_autoui(output: str) -> Action:
    """`Action Plan: [...]; Action Decision: "action_type": "DUAL_POINT", ...`, points as text `"[y, x]"`.

    Auto-UI removes backslashes and quotes from its training texts, so a decision in braces is JSON.
    """
    plan, marker, decision = output.strip().partition("Action Decision:")
    if not marker or not (plan == "" or plan.startswith("Action Plan:")):
        raise _InvalidAnswerError("expected `Action Decision:`, at the start or after an `Action Plan:`")
    match json.loads("{" + decision + "}"):
        case {"action_type": "DUAL_POINT", "touch_point": str(touch), "lift_point": str(lift)}:
            (y, x), (y2, x2) = json.loads(touch), json.loads(lift)
            return dual_point(_point(x, y, UNIT_RANGE), _point(x2, y2, UNIT_RANGE))
        case {"action_type": "TYPE", "typed_text": str(text)}:
            return Type(text)
        case {"action_type": str(name)} if ACTION_TYPE_IDS.get(name) in FIXED_ACTIONS:
            return FIXED_ACTIONS[ACTION_TYPE_IDS[name]]
    raise _InvalidAnswerError("the decision's action_type is unknown or lacks its argument")


def _parse_mobile_use(output: str, coordinate_range: CoordinateRange) -> Action:
    """`<tool_call>{"name": "mobile_use", "arguments": {"action": "type", "text": "..."}}</tool_call>`."""
    match _tool_call(output):
        case {"name": "mobile_use", "arguments": {"action": str(name)} as arguments}:
            return _mobile_use_action(name, arguments, coordinate_range)
    raise _InvalidAnswerError("not a mobile_use call with an action")


def _mobile_use_action(name: str, arguments: dict[str, object], coordinate_range: CoordinateRange) -> Action:
    match arguments:
        case {"action": "click", "coordinate": [x, y]}:
            return Tap(_point(x, y, coordinate_range))
        case {"action": "swipe", "coordinate": [x, y], "coordinate2": [x2, y2]}:
            return dual_point(_point(x, y, coordinate_range), _point(x2, y2, coordinate_range))
        case {"action": "type", "text": str(text)}:
            return Type(text)
        case {"action": "system_button", "button": str(button)} if button.lower() in KEYS_BY_NAME:
            return Press(KEYS_BY_NAME[button.lower()])
        case {"action": "system_button", "button": str(button)}:
            raise _InvalidAnswerError(f"AITW has no action for the button {_abbreviate(button)}")
        case {"action": "terminate", "status": "success" | "failure" as status}:
            return Finish("complete" if status == "success" else "impossible")
    raise _unsupported_action_error(name, "mobile_use")


def _tool_call(output: str) -> object:
    """The object of the only tool call, after any thoughts. A call without tags must end the text."""
    text = output.partition(TOOL_CALL)[2] or output
    starts = [match.start() for match in TOOL_OBJECT.finditer(text)]
    if not starts:
        raise _InvalidAnswerError("no tool call")
    if len(starts) > 1 or TOOL_CALL in text:
        raise _InvalidAnswerError("several tool calls; expected one")
    call, end = json.JSONDecoder().raw_decode(text, starts[0])
    rest = text[end:].strip()
    if rest and not rest.startswith(TOOL_CALL_END):
        raise _InvalidAnswerError("unexpected text after the tool call")
    return call


def _parse_uitars(output: str, coordinate_range: CoordinateRange) -> Action:
    """`Thought: ...` and `Action: click(start_box='(x,y)')`, or the call alone."""
    name, arguments = _uitars_call(output)
    match name, arguments:
        case (("click" | "left_single"), {"start_box": at} | {"point": at}):
            return Tap(_box_center(at, coordinate_range))
        case "drag", {"start_box": start, "end_box": end} | {"start_point": start, "end_point": end}:
            return dual_point(_box_center(start, coordinate_range), _box_center(end, coordinate_range))
        case "scroll", {"start_box": at, "direction": direction} | {"point": at, "direction": direction}:
            return _scroll_to_swipe(_box_center(at, coordinate_range), direction, UITARS_REACH)
        case "type", {"content": text}:
            return Type(text)  # with a final line break, if it has one: Type holds all that is typed
        case "hotkey", {"key": "enter" | "Enter"}:
            return Press("enter")
        case _ if name in UITARS_FIXED_ACTIONS:
            return UITARS_FIXED_ACTIONS[name]
    raise _unsupported_action_error(name, "UI-TARS")


def _uitars_call(output: str) -> tuple[str, dict[str, str]]:
    """Name and arguments of the only call, parsed as Python syntax and never executed."""
    thoughts, *calls = output.split("Action:")
    if len(calls) > 1:
        raise _InvalidAnswerError(f"`Action:` appears {len(calls)} times; expected once")
    call = (calls[0] if calls else thoughts).strip()
    # A bare line break within quotes is part of the text; elsewhere this makes a second call an error.
    tree = _parse_call_syntax(call.replace("\n", "\\n"))
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name) or tree.args:
        raise _InvalidAnswerError("not one call with named arguments")
    arguments = {
        keyword.arg: keyword.value.value
        for keyword in tree.keywords
        if keyword.arg and isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str)
    }
    if len(arguments) < len(tree.keywords):
        raise _InvalidAnswerError("an argument is repeated or not a quoted text")
    return tree.func.id, arguments


def _parse_call_syntax(call: str) -> ast.expr:
    """The syntax tree; quotes within typed text, which models seldom escape, are part of the text."""
    type_call = TYPE_CALL.fullmatch(call)
    try:
        return _parse_syntax(call)
    except SyntaxError:
        if type_call is None:
            raise
        quote, text = type_call.groups()
        escaped = re.sub(rf"(?<!\\){quote}", lambda match: f"\\{match[0]}", text)
        return _parse_syntax(f"type(content={quote}{escaped}{quote})")


def _box_center(text: str, coordinate_range: CoordinateRange) -> Point:
    """The point `(x,y)` or `<point>x y</point>`, or the center of `[x1, y1, x2, y2]`."""
    box = BOX.fullmatch(BOX_TAGS.sub("", text).strip())
    numbers = re.split(r"[,\s]+", box[box.lastindex or 0].strip()) if box else []
    if len(numbers) not in (2, 4) or not all(NUMBER.fullmatch(number) for number in numbers):
        raise _InvalidAnswerError("a box must hold two or four plain numbers")
    x1, y1, x2, y2 = (float(number) for number in (numbers if len(numbers) == 4 else numbers * 2))
    return _point((x1 + x2) / 2, (y1 + y2) / 2, coordinate_range)


def _scroll_to_swipe(at: Point, direction: str, reach: float) -> Swipe:
    """The swipe through `at` that scrolls the content in `direction`, clipped to the screen."""
    if direction not in FINGER_DIRECTIONS:
        raise _InvalidAnswerError(f"{_abbreviate(direction)} is not a scroll direction")
    dy, dx = FINGER_DIRECTIONS[direction]
    ends = [(at.y + offset * dy, at.x + offset * dx) for offset in (-reach, reach)]
    start, end = (Point(min(max(y, 0.0), 1.0), min(max(x, 0.0), 1.0)) for y, x in ends)
    return Swipe(start, end)


def _point(x: object, y: object, coordinate_range: CoordinateRange) -> Point:
    return Point(_fraction(y, coordinate_range[0]), _fraction(x, coordinate_range[1]))


def _fraction(value: object, side: int) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _InvalidAnswerError("a coordinate is not a number")
    if (
        not 0 <= value <= side
    ):  # also refuses NaN; before dividing, as an integer may be too large for a float
        raise _InvalidAnswerError(f"a point is off the screen; expected coordinates from 0 to {side}")
    return value / side


def _parse_syntax(text: str) -> ast.expr:
    """Text as a Python syntax tree; nothing is executed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns about unknown escapes
        return ast.parse(text, mode="eval").body


def _unsupported_action_error(name: str, tool: str) -> _InvalidAnswerError:
    if name in UNSUPPORTED_ACTIONS:
        return _InvalidAnswerError(f"AITW has no action for {name}")
    return _InvalidAnswerError(f"{_abbreviate(name)} is not an action of {tool}, or lacks an argument")


def _abbreviate(name: object) -> str:
    return ascii(name)[:40]  # text of the output within a reason
