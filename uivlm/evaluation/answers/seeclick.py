"""SeeClick's answers, and ShowUI's, which name the same actions."""

import ast

from uivlm.actions.action import Action, Tap, Type
from uivlm.actions.aitw import ACTION_TYPE_IDS
from uivlm.evaluation.answers.parts import (
    CENTER,
    FIXED_ACTIONS,
    UNIT_RANGE,
    InvalidAnswerError,
    abbreviate,
    parse_syntax,
    scroll_to_swipe,
    to_point,
    unsupported_action_error,
)

SCROLLS = {0: "down", 1: "up", 8: "left", 9: "right"}
REACH = 0.3  # from the center to each end: their swipes run between 0.2 and 0.8
SHOWUI_ACTIONS = {  # AITW's names with blanks
    name.replace("_", " "): FIXED_ACTIONS[type_id]
    for name, type_id in ACTION_TYPE_IDS.items()
    if type_id in FIXED_ACTIONS
}


def parse_seeclick(output: str) -> Action:
    """`{"action_type": 4, "click_point": (x, y)}`: a Python dict with AITW's ids and four scroll ids."""
    answer = ast.literal_eval(parse_syntax(output.strip()))
    type_id = answer.get("action_type") if isinstance(answer, dict) else None
    if type(type_id) is not int:  # True == 1 and 5.0 == 5, but neither is an id
        raise InvalidAnswerError("not a dict with an integer action_type")
    match type_id, answer:
        case 4, {"click_point": (x, y)}:
            return Tap(to_point(x, y, UNIT_RANGE))
        case 3, {"typed_text": str(text)}:
            return Type(text)
        case _ if type_id in SCROLLS:
            return scroll_to_swipe(CENTER, SCROLLS[type_id], REACH)
        case _ if type_id in FIXED_ACTIONS:
            return FIXED_ACTIONS[type_id]
    raise InvalidAnswerError(f"action_type {abbreviate(type_id)} is unknown or lacks its argument")


def parse_showui(output: str) -> Action:
    """`{'action': 'CLICK', 'value': None, 'position': [x, y]}`: a Python dict, points as fractions.

    Source: showlab/ShowUI, main/utils_aitw.py, `pred2json_post`.
    """
    answer = ast.literal_eval(parse_syntax(output.strip()))
    name = answer.get("action") if isinstance(answer, dict) else None
    if not isinstance(name, str):
        raise InvalidAnswerError("not a dict with an action")
    match name.upper().split(" "), answer:
        case ["CLICK"], {"position": (x, y)}:
            return Tap(to_point(x, y, UNIT_RANGE))
        case ["TYPE"], {"value": str(text)}:
            return Type(text)
        case ["SCROLL", direction], _:
            return scroll_to_swipe(CENTER, direction.lower(), REACH)
        case _ if name.upper() in SHOWUI_ACTIONS:
            return SHOWUI_ACTIONS[name.upper()]
    raise unsupported_action_error(name.lower(), "ShowUI")
