"""The tool calls of Qwen2.5-VL and Qwen3-VL."""

import json
import re

from uivlm.actions.action import Action, Finish, Key, Press, Tap, Type, dual_point
from uivlm.actions.aitw import KEYS
from uivlm.evaluation.answers.parts import (
    CoordinateRange,
    InvalidAnswerError,
    abbreviate,
    to_point,
    unsupported_action_error,
)

KEYS_BY_NAME: dict[str, Key] = {key: key for key in KEYS.values()}
TOOL_CALL, TOOL_CALL_END = "<tool_call>", "</tool_call>"
TOOL_OBJECT = re.compile(r'\{\s*"name"')


def parse_mobile_use(output: str, coordinate_range: CoordinateRange) -> Action:
    """`<tool_call>{"name": "mobile_use", "arguments": {"action": "type", "text": "..."}}</tool_call>`."""
    match _tool_call(output):
        case {"name": "mobile_use", "arguments": {"action": str(name)} as arguments}:
            return _mobile_use_action(name, arguments, coordinate_range)
    raise InvalidAnswerError("not a mobile_use call with an action")


def _mobile_use_action(name: str, arguments: dict[str, object], coordinate_range: CoordinateRange) -> Action:
    match arguments:
        case {"action": "click", "coordinate": [x, y]}:
            return Tap(to_point(x, y, coordinate_range))
        case {"action": "swipe", "coordinate": [x, y], "coordinate2": [x2, y2]}:
            return dual_point(to_point(x, y, coordinate_range), to_point(x2, y2, coordinate_range))
        case {"action": "type", "text": str(text)}:
            return Type(text)
        case {"action": "system_button", "button": str(button)} if button.lower() in KEYS_BY_NAME:
            return Press(KEYS_BY_NAME[button.lower()])
        case {"action": "system_button", "button": str(button)}:
            raise InvalidAnswerError(f"AITW has no action for the button {abbreviate(button)}")
        case {"action": "terminate", "status": "success" | "failure" as status}:
            return Finish("complete" if status == "success" else "impossible")
    raise unsupported_action_error(name, "mobile_use")


def _tool_call(output: str) -> object:
    """The object of the only tool call, after any thoughts. A call without tags must end the text."""
    text = output.partition(TOOL_CALL)[2] or output
    starts = [match.start() for match in TOOL_OBJECT.finditer(text)]
    if not starts:
        raise InvalidAnswerError("no tool call")
    if len(starts) > 1 or TOOL_CALL in text:
        raise InvalidAnswerError("several tool calls; expected one")
    call, end = json.JSONDecoder().raw_decode(text, starts[0])
    rest = text[end:].strip()
    if rest and not rest.startswith(TOOL_CALL_END):
        raise InvalidAnswerError("unexpected text after the tool call")
    return call
