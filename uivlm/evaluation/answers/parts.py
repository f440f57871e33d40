"""What the answer formats share: points, scrolls, Python syntax, and why a text is not an action."""

import ast
import warnings

from uivlm.actions.action import Action, Finish, Point, Press, Swipe
from uivlm.actions.aitw import KEYS, STATUSES

CoordinateRange = tuple[int, int]  # height, width
UNIT_RANGE: CoordinateRange = (1, 1)

# AITW's ids of the actions without arguments: SeeClick outputs the ids, Auto-UI their names.
FIXED_ACTIONS: dict[int, Action] = {
    **{type_id: Press(key) for type_id, key in KEYS.items()},
    **{type_id: Finish(status) for type_id, status in STATUSES.items()},
}

# All "scroll down" to show what lies below: the finger moves up. Its direction is (y, x).
FINGER_DIRECTIONS = {"down": (-1, 0), "up": (1, 0), "left": (0, 1), "right": (0, -1)}
CENTER = Point(0.5, 0.5)

# Actions of the tools that AITW lacks.
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
    "press_recent",
    "select",
}


class InvalidAnswerError(Exception):
    """Why a text is not an action."""


def scroll_to_swipe(at: Point, direction: str, reach: float) -> Swipe:
    """The swipe through `at` that scrolls the content in `direction`, clipped to the screen."""
    if direction not in FINGER_DIRECTIONS:
        raise InvalidAnswerError(f"{abbreviate(direction)} is not a scroll direction")
    dy, dx = FINGER_DIRECTIONS[direction]
    ends = [(at.y + offset * dy, at.x + offset * dx) for offset in (-reach, reach)]
    start, end = (Point(min(max(y, 0.0), 1.0), min(max(x, 0.0), 1.0)) for y, x in ends)
    return Swipe(start, end)


def to_point(x: object, y: object, coordinate_range: CoordinateRange) -> Point:
    """The point as fractions. Raises InvalidAnswerError unless it is on the screen."""
    return Point(_fraction(y, coordinate_range[0]), _fraction(x, coordinate_range[1]))


def _fraction(value: object, side: int) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidAnswerError("a coordinate is not a number")
    if (
        not 0 <= value <= side
    ):  # also refuses NaN; before dividing, as an integer may be too large for a float
        raise InvalidAnswerError(f"a point is off the screen; expected coordinates from 0 to {side}")
    return value / side


def parse_syntax(text: str) -> ast.expr:
    """Text as a Python syntax tree; nothing is executed. Raises SyntaxError and ValueError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns about unknown escapes
        return ast.parse(text, mode="eval").body


def unsupported_action_error(name: str, tool: str) -> InvalidAnswerError:
    """Why an action of a tool, or what it took for one, is not an action of AITW."""
    if name in UNSUPPORTED_ACTIONS:
        return InvalidAnswerError(f"AITW has no action for {name}")
    return InvalidAnswerError(f"{abbreviate(name)} is not an action of {tool}, or lacks an argument")


def abbreviate(name: object) -> str:
    """Text of the output within a reason."""
    return ascii(name)[:40]
