"""A finger: in where to touch or which way to go, out true taps and swipes with human-like jitter."""

from collections.abc import Iterable
from random import Random
from typing import Literal

from uivlm.actions.action import Point, Swipe, Tap
from uivlm.devices.sim.canvas import COLUMNS, ROWS, Box
from uivlm.episode import Element

Direction = Literal["up", "down", "left", "right"]
JITTER = 0.005  # standard deviation of a tap, each way, as a share of the screen
SWAY = 0.01  # the same, of each end of a swipe
WAYS: dict[
    Direction, Swipe
] = {  # a thumb's, over the middle of the screen, a little slanted; up moves the content up
    "up": Swipe(Point(0.775, 0.505), Point(0.325, 0.525)),
    "down": Swipe(Point(0.255, 0.505), Point(0.705, 0.485)),
    "left": Swipe(Point(0.505, 0.855), Point(0.485, 0.275)),
    "right": Swipe(Point(0.505, 0.165), Point(0.485, 0.745)),
}


def aim(elements: Iterable[Element], box: Box) -> Point:
    """What a finger goes for in a box: the cell of the first word or sign in it, else its middle."""
    for element in elements:
        y, x = element.y + element.height / 2, _first(element)
        if box.holds(y, x):
            return Point(_middle(y, ROWS), _middle(x, COLUMNS))
    return Point(box.y + box.height / 2, box.x + box.width / 2)


def _first(element: Element) -> float:
    """The x of an element's first word; of a sign, its middle."""
    return element.x if element.text else element.x + element.width / 2


def _middle(at: float, cells: int) -> float:
    """The middle of the cell that `at` lies in."""
    return (int(at * cells) + 0.5) / cells


def tap(rng: Random, at: Point) -> Tap:
    return Tap(_near(rng, at, JITTER))


def swipe(rng: Random, way: Swipe) -> Swipe:
    return Swipe(_near(rng, way.start, SWAY), _near(rng, way.end, SWAY))


def _near(rng: Random, at: Point, spread: float) -> Point:
    y, x = (min(max(rng.gauss(0.0, spread), -3 * spread), 3 * spread) for _ in range(2))
    return Point(at.y + y, at.x + x)
