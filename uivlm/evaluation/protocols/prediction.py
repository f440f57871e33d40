"""What a protocol takes (StepPrediction) and returns (ProtocolResult), and helpers that several share."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from uivlm.actions.action import Action, Point, Swipe, Type
from uivlm.actions.aitw import to_aitw
from uivlm.actions.matching import fields_match_batch

STANDARD_SWIPES = {  # by `swipe_direction`: the four swipes of Auto-UI and SeeClick
    (0, -1): Swipe(Point(0.8, 0.5), Point(0.2, 0.5)),
    (0, 1): Swipe(Point(0.2, 0.5), Point(0.8, 0.5)),
    (1, -1): Swipe(Point(0.5, 0.8), Point(0.5, 0.2)),
    (1, 1): Swipe(Point(0.5, 0.2), Point(0.5, 0.8)),
}

Boxes = NDArray[np.float64]  # [N, 4]: y, x, height, width as fractions


@dataclass(frozen=True, slots=True, eq=False)
class StepPrediction:
    """The prediction at one recorded step."""

    episode_index: int  # in the data
    subset: str
    gold: Action
    boxes: Boxes  # of the screen's elements
    predicted: Action | None  # None: the output is not an action
    missing: bool = False  # the tool has no answer for the step
    num_unusable_boxes: int = 0  # of the screen; left out of `boxes`


@dataclass(frozen=True, slots=True)
class ProtocolResult:
    """The predictions that a protocol counts, which of them are correct, and its other metrics."""

    predictions: Sequence[StepPrediction]
    correct: Sequence[bool]
    extra_metrics: dict[str, float] = field(default_factory=dict)  # by name, in [0, 1]


def mean(values: Iterable[float]) -> float:
    """The mean; 0 without values."""
    items = list(values)
    return sum(items) / len(items) if items else 0.0


def aitw_matches(predictions: Sequence[StepPrediction]) -> list[bool]:
    """Which predictions match by AITW's rule, computed in one batch."""
    valid = [(to_aitw(p.predicted), to_aitw(p.gold), p.boxes) for p in predictions if p.predicted is not None]
    type_a, touch_a, lift_a, type_b, touch_b, lift_b = (
        [row[side][field_index] for row in valid] for side in (0, 1) for field_index in (0, 1, 2)
    )
    boxes = [boxes for _, _, boxes in valid]
    matched = iter(fields_match_batch(touch_a, lift_a, type_a, touch_b, lift_b, type_b, boxes).tolist())
    return [p.predicted is not None and next(matched) for p in predictions]


def aitw_type(action: Action | None) -> int | None:
    return None if action is None else to_aitw(action)[0]


def typed_text(action: Action | None) -> str:
    return action.text if isinstance(action, Type) else ""


def texts_match(predicted: str, gold: str, as_released: bool) -> bool:
    """Whether one text contains the other.

    The peers' common defect: every text contains the empty text, so an empty one matches all. Without the
    defect it matches only itself.
    """
    if not as_released and not (predicted and gold):
        return predicted == gold
    return predicted in gold or gold in predicted


def boxes_contain(boxes: Boxes, point: Point) -> NDArray[np.bool_]:
    """[N]: which boxes contain the point."""
    y, x, height, width = boxes.T
    in_y = (y <= point.y) & (point.y <= y + height)
    in_x = (x <= point.x) & (point.x <= x + width)
    return np.asarray(in_y & in_x, np.bool_)
