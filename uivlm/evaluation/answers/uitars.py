"""The answers of UI-TARS: one call in Python's syntax, after its thoughts."""

import ast
import re

from uivlm.actions.action import Action, Finish, Point, Press, Tap, Type, dual_point
from uivlm.actions.aitw import KEYS
from uivlm.evaluation.answers.parts import (
    CoordinateRange,
    InvalidAnswerError,
    parse_syntax,
    scroll_to_swipe,
    to_point,
    unsupported_action_error,
)

FIXED_CALLS: dict[str, Action] = {
    **{f"press_{key}": Press(key) for key in KEYS.values()},
    "finished": Finish("complete"),
    "call_user": Finish("impossible"),
}
REACH = 0.25  # ours: UI-TARS names only a point and a direction
TYPE_CALL = re.compile(r"type\(content=(['\"])(.*)\1\)")
BOX_TAGS = re.compile(r"<\|box_start\|>|<\|box_end\|>|</?point>")
BOX = re.compile(r"\((.*)\)|\[(.*)\]|([^()\[\]]*)")
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def parse_uitars(output: str, coordinate_range: CoordinateRange) -> Action:
    """`Thought: ...` and `Action: click(start_box='(x,y)')`, or the call alone."""
    name, arguments = _uitars_call(output)
    match name, arguments:
        case (("click" | "left_single"), {"start_box": at} | {"point": at}):
            return Tap(_box_center(at, coordinate_range))
        case "drag", {"start_box": start, "end_box": end} | {"start_point": start, "end_point": end}:
            return dual_point(_box_center(start, coordinate_range), _box_center(end, coordinate_range))
        case "scroll", {"start_box": at, "direction": direction} | {"point": at, "direction": direction}:
            return scroll_to_swipe(_box_center(at, coordinate_range), direction, REACH)
        case "type", {"content": text}:
            return Type(text)  # with a final line break, if it has one: Type holds all that is typed
        case "hotkey", {"key": "enter" | "Enter"}:
            return Press("enter")
        case _ if name in FIXED_CALLS:
            return FIXED_CALLS[name]
    raise unsupported_action_error(name, "UI-TARS")


def _uitars_call(output: str) -> tuple[str, dict[str, str]]:
    """Name and arguments of the only call, parsed as Python syntax and never executed."""
    thoughts, *calls = output.split("Action:")
    if len(calls) > 1:
        raise InvalidAnswerError(f"`Action:` appears {len(calls)} times; expected once")
    call = (calls[0] if calls else thoughts).strip()
    # A bare line break within quotes is part of the text; elsewhere this makes a second call an error.
    tree = _parse_call_syntax(call.replace("\n", "\\n"))
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name) or tree.args:
        raise InvalidAnswerError("not one call with named arguments")
    arguments = {
        keyword.arg: keyword.value.value
        for keyword in tree.keywords
        if keyword.arg and isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str)
    }
    if len(arguments) < len(tree.keywords):
        raise InvalidAnswerError("an argument is repeated or not a quoted text")
    return tree.func.id, arguments


def _parse_call_syntax(call: str) -> ast.expr:
    """The syntax tree; quotes within typed text, which models seldom escape, are part of the text."""
    type_call = TYPE_CALL.fullmatch(call)
    try:
        return parse_syntax(call)
    except SyntaxError:
        if type_call is None:
            raise
        quote, text = type_call.groups()
        escaped = re.sub(rf"(?<!\\){quote}", lambda match: f"\\{match[0]}", text)
        return parse_syntax(f"type(content={quote}{escaped}{quote})")


def _box_center(text: str, coordinate_range: CoordinateRange) -> Point:
    """The point `(x,y)` or `<point>x y</point>`, or the center of `[x1, y1, x2, y2]`."""
    box = BOX.fullmatch(BOX_TAGS.sub("", text).strip())
    numbers = re.split(r"[,\s]+", box[box.lastindex or 0].strip()) if box else []
    if len(numbers) not in (2, 4) or not all(NUMBER.fullmatch(number) for number in numbers):
        raise InvalidAnswerError("a box must hold two or four plain numbers")
    x1, y1, x2, y2 = (float(number) for number in (numbers if len(numbers) == 4 else numbers * 2))
    return to_point((x1 + x2) / 2, (y1 + y2) / 2, coordinate_range)
