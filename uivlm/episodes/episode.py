"""What a phone showed and what was done on it: elements, screens, steps, histories, episodes."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import starmap

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from uivlm.actions.action import Action


@dataclass(frozen=True, slots=True)
class Element:
    """One annotated box of a screen (AITW `image/ui_annotations_*`); fractions of the screen, y before x."""

    y: float  # top
    x: float  # left
    height: float
    width: float
    text: str = ""
    ui_type: str = "TEXT"  # TEXT or ICON_*
    clickable: bool | None = None  # reacts to a tap or long press; None: unknown, as in all recorded data


@dataclass(frozen=True, slots=True)
class Annotations:
    """A screen's elements as data holds them: three lists, `boxes` flat. No Element is created."""

    boxes: list[float]  # y, x, height and width of each
    texts: list[str]
    ui_types: list[str]

    @property
    def elements(self) -> tuple[Element, ...]:
        """ValueError where the lists do not fit each other."""
        sides = (self.boxes[i::4] for i in range(4))
        return tuple(starmap(Element, zip(*sides, self.texts, self.ui_types, strict=True)))


def to_annotations(elements: Sequence[Element]) -> Annotations:
    boxes = [number for e in elements for number in (e.y, e.x, e.height, e.width)]
    return Annotations(boxes, [e.text for e in elements], [e.ui_type for e in elements])


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Screen:
    """What the phone shows: `pixels` uint8 [H, W, 3] RGB, never changed, and its elements if they are known.

    A screen keeps its PNG: the one that the phone sent, or the one that `png` encodes on first use.
    """

    pixels: NDArray[np.uint8]
    elements: tuple[Element, ...] = ()
    _png: bytes | None = field(default=None, repr=False)

    @property
    def png(self) -> bytes:
        """The pixels as a PNG file. Trace and server both send these bytes; their digest names the screen."""
        if self._png is None:
            file = io.BytesIO()
            Image.fromarray(self.pixels).save(file, "PNG", compress_level=1)
            object.__setattr__(self, "_png", file.getvalue())
        assert self._png is not None
        return self._png


@dataclass(frozen=True, slots=True)
class StepNotes:
    """What annotators wrote about a recorded step; None where the data has no such text."""

    screen_description: str | None = None  # what the screen shows
    thought: str | None = None  # why the action comes next
    instruction: str | None = None  # the action in words: a low-level instruction
    result: str | None = None  # what the action changes


NO_NOTES = StepNotes()


@dataclass(frozen=True, slots=True)
class Step:
    """The screen seen, then the action done on it."""

    screen: Screen
    action: Action
    notes: StepNotes = NO_NOTES


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
    """This history cannot become a prompt; the message gives the reason."""


def boxes_of(screen: Screen) -> NDArray[np.float64]:
    """The annotated boxes of a screen, float64 [n, 4]: y, x, height, width."""
    boxes = [(e.y, e.x, e.height, e.width) for e in screen.elements]
    return np.array(boxes, np.float64).reshape(-1, 4)
