"""Jitter of a person's touches: a target or a direction in, jittered taps and swipes out."""

from collections.abc import Iterable
from random import Random
from typing import Literal

from uivlm.actions.action import Point, Swipe, Tap
from uivlm.devices.sim.canvas import COLUMNS, ROWS, Box
from uivlm.episodes.episode import Element

Direction = Literal["up", "down", "left", "right"]
TAP_JITTER = 0.005  # standard deviation of a tap on each axis, as a fraction of the screen
SWIPE_JITTER = 0.01  # the same for both ends of a swipe
# Slightly slanted swipes of a thumb across the middle of the screen; "up" moves the content up.
SWIPES: dict[Direction, Swipe] = {
    "up": Swipe(Point(0.775, 0.505), Point(0.325, 0.525)),
    "down": Swipe(Point(0.255, 0.505), Point(0.705, 0.485)),
    "left": Swipe(Point(0.505, 0.855), Point(0.485, 0.275)),
    "right": Swipe(Point(0.505, 0.165), Point(0.485, 0.745)),
}


def aim_point(elements: Iterable[Element], box: Box) -> Point:
    """Return where to tap a box: the cell of its first word or icon, or else its center."""
    for element in elements:
        y, x = element.y + element.height / 2, _first_word_x(element)
        if box.contains(y, x):
            return Point(_cell_center(y, ROWS), _cell_center(x, COLUMNS))
    return Point(box.y + box.height / 2, box.x + box.width / 2)


def _first_word_x(element: Element) -> float:
    """Return the x of an element's first word, or the center of an icon."""
    return element.x if element.text else element.x + element.width / 2


def _cell_center(position: float, cells: int) -> float:
    """Return the center of the cell that contains a position."""
    return (int(position * cells) + 0.5) / cells


def jittered_tap(rng: Random, point: Point) -> Tap:
    return Tap(_jittered_point(rng, point, TAP_JITTER))


def jittered_swipe(rng: Random, mean_swipe: Swipe) -> Swipe:
    return Swipe(
        _jittered_point(rng, mean_swipe.start, SWIPE_JITTER),
        _jittered_point(rng, mean_swipe.end, SWIPE_JITTER),
    )


def _jittered_point(rng: Random, point: Point, std: float) -> Point:
    y, x = (min(max(rng.gauss(0.0, std), -3 * std), 3 * std) for _ in range(2))
    return Point(point.y + y, point.x + x)
