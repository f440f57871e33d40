"""What every protocol judges, what it gives back, and small things that several need.

In: answers beside what was recorded. Out: a Result.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from uivlm.actions.action import Action, Point, Swipe, Type
from uivlm.actions.aitw import to_aitw
from uivlm.evaluation.match import fields_match_all

STROKES = {  # by main axis and sense of the finger: Auto-UI's and SeeClick's four swipes (y, x)
    (0, -1): Swipe(Point(0.8, 0.5), Point(0.2, 0.5)),
    (0, 1): Swipe(Point(0.2, 0.5), Point(0.8, 0.5)),
    (1, -1): Swipe(Point(0.5, 0.8), Point(0.5, 0.2)),
    (1, 1): Swipe(Point(0.5, 0.2), Point(0.5, 0.8)),
}

Boxes = NDArray[np.float64]  # [n, 4]: y, x, height, width as fractions


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What was answered at one recorded step. `guess` None: no action; `missing`: there is no answer at all."""

    index: int  # of the episode in the data
    subset: str
    gold: Action
    boxes: Boxes
    guess: Action | None
    missing: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """The answers that a protocol counts, which of them are right, and its other figures."""

    rows: Sequence[Answer]
    right: Sequence[bool]
    more: dict[str, float] = field(default_factory=dict)


def mean(values: Iterable[float]) -> float:
    """0 of nothing."""
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0


def by_aitw(rows: Sequence[Answer]) -> list[bool]:
    """Which of them match by AITW's rule; all at once."""
    given = [(to_aitw(one.guess), to_aitw(one.gold), one.boxes) for one in rows if one.guess is not None]
    type_a, touch_a, lift_a, type_b, touch_b, lift_b = (
        [pair[side][part] for pair in given] for side in (0, 1) for part in (0, 1, 2)
    )
    boxes = [boxes for _, _, boxes in given]
    found = iter(fields_match_all(touch_a, lift_a, type_a, touch_b, lift_b, type_b, boxes).tolist())
    return [one.guess is not None and next(found) for one in rows]


def type_of(action: Action | None) -> int | None:
    return None if action is None else to_aitw(action)[0]


def text_of(action: Action | None) -> str:
    return action.text if isinstance(action, Type) else ""


def holds(a: str, b: str) -> bool:
    """Either way."""
    return a in b or b in a


def inside(boxes: Boxes, point: Point) -> NDArray[np.bool_]:
    """Which of the boxes hold the point."""
    y, x, height, width = boxes.T
    found: NDArray[np.bool_] = (
        (y <= point.y) & (point.y <= y + height) & (x <= point.x) & (point.x <= x + width)
    )
    return found
