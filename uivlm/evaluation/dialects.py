"""Answers in the dialects of other tools' models, read as our actions, so that one scorer judges them all.

In: the text that a model answered, its dialect, and the space its coordinates count in. Out: the Action it says, or
NotAnAction with the reason. No text raises, none is run as code, and no point is moved onto the screen. One text says
one action: where it says several, which one its tool would do is not ours to choose.
"""

import ast
import json
import re
import warnings
from typing import assert_never

from uivlm.actions.action import Action, Finish, Key, Point, Press, Swipe, Tap, Type, dual_point
from uivlm.actions.aitw import ACTION_TYPES, KEYS, STATUSES
from uivlm.actions.language import Language, NotAnAction
from uivlm.evaluation.names import Dialect

Size = tuple[int, int]  # height, width

LONGEST = 20_000  # characters: no answer is longer, and Python's own parser stays quick and within its stack
FRACTIONS: Size = (1, 1)

# AITW's numbers of the actions without arguments: SeeClick answers with them, Auto-UI with their names.
FIXED: dict[int, Action] = {
    **{number: Press(key) for number, key in KEYS.items()},
    **{number: Finish(status) for number, status in STATUSES.items()},
}
UITARS_FIXED: dict[str, Action] = {
    **{f"press_{key}": Press(key) for key in KEYS.values()},
    "finished": Finish("complete"),
    "call_user": Finish("impossible"),
}
PRESSED: dict[str, Key] = {key: key for key in KEYS.values()}

# SeeClick and UI-TARS "scroll down" to see what lies below: the finger goes up. Its way is (y, x).
FINGER = {"down": (-1, 0), "up": (1, 0), "left": (0, 1), "right": (0, -1)}
MIDDLE = Point(0.5, 0.5)
SEECLICK_SCROLLS = {0: "down", 1: "up", 8: "left", 9: "right"}
SEECLICK_REACH = 0.3  # each way from the middle: its strokes run between .2 and .8
UITARS_REACH = 0.25  # ours: UI-TARS names only a point and a direction

# What mobile_use and UI-TARS can do and AITW has no action for.
OTHERS = {"long_press", "key", "open", "wait", "answer", "left_double", "right_single", "open_app", "hotkey"}

TYPED = re.compile(r"type\(content=(['\"])(.*)\1\)")
TOOL_CALL, TOOL_CALL_END = "<tool_call>", "</tool_call>"
TOOL_OBJECT = re.compile(r'\{\s*"name"')
BOX_TAGS = re.compile(r"<\|box_start\|>|<\|box_end\|>|</?point>")
BOX = re.compile(r"\((.*)\)|\[(.*)\]|([^()\[\]]*)")
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


class _RefusedError(Exception):
    """Why a text says no action, in plain words."""


def parse(words: str, dialect: Dialect, size: Size, *, bins: int = 100) -> Action | NotAnAction:
    """The one action that `words` says in a dialect; NotAnAction for any other text.

    `size` is the (height, width) of the space that coordinates count in. mobile_use: the pixels of the screenshot as
    the model saw it, (1000, 1000) for Qwen3-VL. uitars: (1000, 1000), or pixels for UI-TARS 1.5. The others do not
    look at it: seeclick and autoui answer in fractions, ours in `bins`.
    """
    if min(size) <= 0:
        raise ValueError(f"a height of {size[0]} and a width of {size[1]}: both must be above 0")
    if dialect == "ours":
        return Language(bins).parse(words)
    if len(words) > LONGEST:
        return NotAnAction(words, f"{len(words)} characters: an answer has {LONGEST} at most")
    try:
        match dialect:
            case "seeclick":
                return _seeclick(words)
            case "autoui":
                return _autoui(words)
            case "mobile_use":
                return _mobile_use(words, size)
            case "uitars":
                return _uitars(words, size)
            case _:
                assert_never(dialect)
    except _RefusedError as why:
        return NotAnAction(words, str(why))
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):  # from json and ast
        return NotAnAction(words, f"not written as {dialect} writes an answer")


def _seeclick(words: str) -> Action:
    """`{"action_type": 4, "click_point": (x, y)}`: a Python dictionary, AITW's numbers and four more for scrolls."""
    answer = ast.literal_eval(_syntax(words.strip()))
    number = answer.get("action_type") if isinstance(answer, dict) else None
    if type(number) is not int:  # True == 1 and 5.0 == 5 are no numbers of actions
        raise _RefusedError("no dictionary with a whole number as its action_type")
    match number, answer:
        case 4, {"click_point": (x, y)}:
            return Tap(_point(x, y, FRACTIONS))
        case 3, {"typed_text": str(text)}:
            return Type(text)
        case _ if number in SEECLICK_SCROLLS:
            return _scroll(MIDDLE, SEECLICK_SCROLLS[number], SEECLICK_REACH)
        case _ if number in FIXED:
            return FIXED[number]
    raise _RefusedError(f"action_type {_short(number)} is none of SeeClick's, or lacks what it needs")


def _autoui(words: str) -> Action:
    """`Action Plan: [...]; Action Decision: "action_type": "DUAL_POINT", ...`, points as text `"[y, x]"`.

    Auto-UI takes backslashes and quotes out of the typed text it learns from, so that a decision in braces is JSON.
    """
    plan, marker, decision = words.strip().partition("Action Decision:")
    if not marker or not (plan == "" or plan.startswith("Action Plan:")):
        raise _RefusedError("no `Action Decision:` at the start or after an `Action Plan:`")
    match json.loads("{" + decision + "}"):
        case {"action_type": "DUAL_POINT", "touch_point": str(touch), "lift_point": str(lift)}:
            (y, x), (y2, x2) = json.loads(touch), json.loads(lift)
            return dual_point(_point(x, y, FRACTIONS), _point(x2, y2, FRACTIONS))
        case {"action_type": "TYPE", "typed_text": str(text)}:
            return Type(text)
        case {"action_type": str(name)} if ACTION_TYPES.get(name) in FIXED:
            return FIXED[ACTION_TYPES[name]]
    raise _RefusedError("the decision has no action_type of AITW, or lacks what it needs")


def _mobile_use(words: str, size: Size) -> Action:
    """`<tool_call>{"name": "mobile_use", "arguments": {"action": "click", "coordinate": [x, y]}}</tool_call>`."""
    match _tool_call(words):
        case {"name": "mobile_use", "arguments": {"action": str(name)} as arguments}:
            return _mobile_use_action(name, arguments, size)
    raise _RefusedError("the call is not one of mobile_use with an action")


def _mobile_use_action(name: str, arguments: dict[str, object], size: Size) -> Action:
    match arguments:
        case {"action": "click", "coordinate": [x, y]}:
            return Tap(_point(x, y, size))
        case {"action": "swipe", "coordinate": [x, y], "coordinate2": [x2, y2]}:
            return dual_point(_point(x, y, size), _point(x2, y2, size))
        case {"action": "type", "text": str(text)}:
            return Type(text)
        case {"action": "system_button", "button": str(button)} if button.lower() in PRESSED:
            return Press(PRESSED[button.lower()])
        case {"action": "system_button", "button": str(button)}:
            raise _RefusedError(f"AITW has no action for the button {_short(button)}")
        case {"action": "terminate", "status": "success" | "failure" as status}:
            return Finish("complete" if status == "success" else "impossible")
    raise _no_action(name, "mobile_use")


def _tool_call(words: str) -> object:
    """The object of the only tool call, after any thoughts; without tags, it ends the text."""
    after = words.partition(TOOL_CALL)[2] or words
    starts = [found.start() for found in TOOL_OBJECT.finditer(after)]
    if not starts:
        raise _RefusedError("no tool call")
    if len(starts) > 1 or TOOL_CALL in after:
        raise _RefusedError("several tool calls: which one counts is not said")
    call, end = json.JSONDecoder().raw_decode(after, starts[0])
    rest = after[end:].strip()
    if rest and not rest.startswith(TOOL_CALL_END):
        raise _RefusedError("more than the call stands where only the call belongs")
    return call


def _uitars(words: str, size: Size) -> Action:
    """`Thought: ...` and `Action: click(start_box='(x,y)')`, or the call alone."""
    name, given = _uitars_call(words)
    match name, given:
        case (("click" | "left_single"), {"start_box": at} | {"point": at}):
            return Tap(_box_middle(at, size))
        case "drag", {"start_box": start, "end_box": end} | {"start_point": start, "end_point": end}:
            return dual_point(_box_middle(start, size), _box_middle(end, size))
        case "scroll", {"start_box": at, "direction": way} | {"point": at, "direction": way}:
            return _scroll(_box_middle(at, size), way, UITARS_REACH)
        case "type", {"content": text}:
            return Type(text)  # an enter that ends it stays: Type is what is typed, all of it
        case "hotkey", {"key": "enter" | "Enter"}:
            return Press("enter")
        case _ if name in UITARS_FIXED:
            return UITARS_FIXED[name]
    raise _no_action(name, "UI-TARS")


def _uitars_call(words: str) -> tuple[str, dict[str, str]]:
    """Name and arguments of the only call, read as Python syntax and never run."""
    thoughts, *calls = words.split("Action:")
    if len(calls) > 1:
        raise _RefusedError(f"`Action:` {len(calls)} times: which one counts is not said")
    call = (calls[0] if calls else thoughts).strip()
    # Within quotes a bare line break is the text's own; elsewhere this makes a second call an error.
    tree = _call_syntax(call.replace("\n", "\\n"))
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name) or tree.args:
        raise _RefusedError("not one call with named arguments")
    given = {
        part.arg: part.value.value
        for part in tree.keywords
        if part.arg and isinstance(part.value, ast.Constant) and isinstance(part.value.value, str)
    }
    if len(given) < len(tree.keywords):
        raise _RefusedError("an argument is no quoted text under a name of its own")
    return tree.func.id, given


def _call_syntax(call: str) -> ast.expr:
    """Models seldom escape a quote of the text that they type: it is one text all the same."""
    typed = TYPED.fullmatch(call)
    try:
        return _syntax(call)
    except SyntaxError:
        if typed is None:
            raise
        quote, text = typed.groups()
        inner = re.sub(rf"(?<!\\){quote}", lambda mark: f"\\{mark[0]}", text)
        return _syntax(f"type(content={quote}{inner}{quote})")


def _box_middle(text: str, size: Size) -> Point:
    """The point of `(x,y)`, `<point>x y</point>` or the middle of `[x1, y1, x2, y2]`."""
    box = BOX.fullmatch(BOX_TAGS.sub("", text).strip())
    numbers = re.split(r"[,\s]+", box[box.lastindex or 0].strip()) if box else []
    if len(numbers) not in (2, 4) or not all(NUMBER.fullmatch(number) for number in numbers):
        raise _RefusedError("a box is not two or four plain numbers")
    x1, y1, x2, y2 = (float(number) for number in (numbers if len(numbers) == 4 else numbers * 2))
    return _point((x1 + x2) / 2, (y1 + y2) / 2, size)


def _scroll(at: Point, way: str, reach: float) -> Swipe:
    """The finger's stroke around `at` that moves the content by `way`, cut off at the screen's edges."""
    if way not in FINGER:
        raise _RefusedError(f"{_short(way)} is no direction to scroll in")
    y, x = FINGER[way]
    places = [(at.y + part * y, at.x + part * x) for part in (-reach, reach)]
    start, end = (Point(min(max(y, 0.0), 1.0), min(max(x, 0.0), 1.0)) for y, x in places)
    return Swipe(start, end)


def _point(x: object, y: object, size: Size) -> Point:
    return Point(_fraction(y, size[0]), _fraction(x, size[1]))


def _fraction(value: object, side: int) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _RefusedError("a coordinate is no number")
    if not 0 <= value <= side:  # a NaN, too; before dividing: a whole number may be too large for a float
        raise _RefusedError(f"a point lies off the screen: its coordinates go from 0 to {side}")
    return value / side


def _syntax(text: str) -> ast.expr:
    """Text as a tree of Python's syntax; nothing of it is run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of escapes it does not know
        return ast.parse(text, mode="eval").body


def _no_action(name: str, tool: str) -> _RefusedError:
    if name in OTHERS:
        return _RefusedError(f"AITW has no action for {name}")
    return _RefusedError(f"{_short(name)} is no action of {tool}, or lacks what it needs")


def _short(name: object) -> str:
    return ascii(name)[:40]  # an answer's own words within a reason
