"""Episodes: what was asked, what was seen, what was done."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap

import numpy as np
from numpy.typing import NDArray

from uivlm.actions.action import Action


@dataclass(frozen=True, slots=True)
class Element:
    """One annotated box of a screen (AITW `image/ui_annotations_*`); fractions of the screen, y before x."""

    y: float  # top
    x: float  # left
    height: float
    width: float
    text: str = ""
    kind: str = "TEXT"  # TEXT or ICON_*


@dataclass(frozen=True, slots=True)
class Annotations:
    """A screen's elements as data holds them: three lists, `boxes` flat. Cheap to pass on, as no element is made."""

    boxes: list[float]  # y, x, height and width of each
    texts: list[str]
    kinds: list[str]

    @property
    def elements(self) -> tuple[Element, ...]:
        """ValueError where the lists do not fit each other."""
        sides = (self.boxes[i::4] for i in range(4))
        return tuple(starmap(Element, zip(*sides, self.texts, self.kinds, strict=True)))


def annotations(elements: Sequence[Element]) -> Annotations:
    boxes = [number for e in elements for number in (e.y, e.x, e.height, e.width)]
    return Annotations(boxes, [e.text for e in elements], [e.kind for e in elements])


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Screen:
    """What the phone shows: `pixels` uint8 [H, W, 3] RGB, never changed, and its annotations where they are known."""

    pixels: NDArray[np.uint8]
    elements: tuple[Element, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """The screen seen, then the action done on it."""

    screen: Screen
    action: Action


@dataclass(frozen=True, slots=True)
class History:
    """All an agent may know when it acts: the goal, the steps so far (oldest first), the screen now."""

    goal: str
    steps: tuple[Step, ...]
    screen: Screen


@dataclass(frozen=True, slots=True)
class Episode:
    """A goal and the steps that were recorded for it. `id` is any text, never a file name."""

    id: str
    goal: str
    subset: str
    steps: tuple[Step, ...]

    def history(self, t: int) -> History:
        """What was known before step `t` (0-based)."""
        return History(self.goal, self.steps[:t], self.steps[t].screen)


class HistoryError(ValueError):
    """Of this history no prompt can be made; the text says why."""
