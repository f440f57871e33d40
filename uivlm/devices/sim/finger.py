"""A finger: in where to touch or which way to go, out true taps and swipes with human-like jitter."""

from collections.abc import Iterable
from random import Random
from typing import Literal

from uivlm.actions.action import Point, Swipe, Tap
from uivlm.devices.sim.canvas import COLUMNS, ROWS, Box
from uivlm.episode import Element

JITTER = 0.005  # standard deviation of a tap, each way, as a share of the screen
Direction = Literal["up", "down", "left", "right"]


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
    return Tap(Point(at.y + _shake(rng), at.x + _shake(rng)))


def _shake(rng: Random) -> float:
    return min(max(rng.gauss(0.0, JITTER), -3 * JITTER), 3 * JITTER)


def swipe(rng: Random, direction: Direction) -> Swipe:
    """A finger's way over the middle of the screen; up moves the content up."""
    along, across = rng.uniform(0.4, 0.49), rng.gauss(0.0, 0.03)
    across = min(max(across, -0.09), 0.09)
    far, near = rng.uniform(0.72, 0.82), rng.uniform(0.2, 0.3)
    aside = rng.uniform(0.42, 0.58)
    match direction:
        case "up":
            return Swipe(Point(far, aside), Point(far - along, aside + across))
        case "down":
            return Swipe(Point(near, aside), Point(near + along, aside + across))
        case "left":
            return Swipe(Point(aside, far + 0.08), Point(aside + across, far + 0.08 - 1.3 * along))
        case "right":
            return Swipe(Point(aside, near - 0.08), Point(aside + across, near - 0.08 + 1.3 * along))
