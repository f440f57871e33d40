"""Our actions as AITW's fields and back: the action enum, [-1, -1] for no point, and the rules on gestures.

In: `results/action_type`, `results/yx_touch`, `results/yx_lift`, `results/type_action`. Out: an Action, or
the reverse.
"""

from collections.abc import Sequence

import numpy as np

from uivlm.actions.action import Action, Finish, Key, Point, Press, Status, Swipe, Tap, Type, dual_point

ACTION_TYPE_IDS = {
    "TYPE": 3,
    "DUAL_POINT": 4,
    "PRESS_BACK": 5,
    "PRESS_HOME": 6,
    "PRESS_ENTER": 7,
    "STATUS_TASK_COMPLETE": 10,
    "STATUS_TASK_IMPOSSIBLE": 11,
}
TYPE, DUAL_POINT = ACTION_TYPE_IDS["TYPE"], ACTION_TYPE_IDS["DUAL_POINT"]

KEYS: dict[int, Key] = {5: "back", 6: "home", 7: "enter"}
STATUSES: dict[int, Status] = {10: "complete", 11: "impossible"}
NO_POINT = (-1.0, -1.0)  # AITW's touch and lift of actions that are not gestures

MATCH_DISTANCE = np.float32(0.14)  # AITW action_matching: taps this close together are the same tap

# action type, touch (y, x), lift (y, x), text
AitwFields = tuple[int, tuple[float, float], tuple[float, float], str]


def to_aitw(action: Action) -> AitwFields:
    """The AITW fields of an action: type, touch (y, x), lift (y, x), typed text."""
    match action:
        case Tap(at):
            return DUAL_POINT, (at.y, at.x), (at.y, at.x), ""
        case Swipe(start, end):
            return DUAL_POINT, (start.y, start.x), (end.y, end.x), ""
        case Type(text):
            return TYPE, NO_POINT, NO_POINT, text
        case Press(key):
            return ACTION_TYPE_IDS[f"PRESS_{key.upper()}"], NO_POINT, NO_POINT, ""
        case Finish(status):
            return ACTION_TYPE_IDS[f"STATUS_TASK_{status.upper()}"], NO_POINT, NO_POINT, ""
        case _:
            raise ValueError(f"{action!r} is not one of AITW's actions")


def from_aitw(action_type: int, touch: Sequence[float], lift: Sequence[float], text: str) -> Action:
    """The action of one recorded step. Points are read only for DUAL_POINT, text only for TYPE."""
    if action_type == TYPE:
        return Type(text)
    if action_type == DUAL_POINT:
        return dual_point(_point("touch", touch), _point("lift", lift))
    if action_type in KEYS:
        return Press(KEYS[action_type])
    if action_type in STATUSES:
        return Finish(STATUSES[action_type])
    known = ", ".join(f"{type_id} {name}" for name, type_id in ACTION_TYPE_IDS.items())
    raise ValueError(f"action type: got {action_type!r}; expected one of AITW's ({known})")


def main_axis(touch: Point, lift: Point) -> int:
    """0 for a swipe along y, 1 along x: the larger float32 difference. A tie is y; a NaN is the largest."""
    delta = np.array([lift.y, lift.x], np.float32) - np.array([touch.y, touch.x], np.float32)
    return int(np.argmax(np.abs(delta)))


def distance(a: Point, b: Point) -> np.float32:
    """AITW's float32 distance of two points in the unit square (no aspect ratio)."""
    delta = np.array([a.y, a.x], np.float32) - np.array([b.y, b.x], np.float32)
    return np.float32(np.linalg.norm(delta))


def _point(name: str, yx: Sequence[float]) -> Point:
    if len(yx) != 2:
        raise ValueError(f"{name} point: got {len(yx)} numbers; expected 2, y before x")
    return Point(float(yx[0]), float(yx[1]))
