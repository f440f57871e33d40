"""The rules of AITZ's code (CoAT): boxes instead of distances, directions, similar texts, one "stop".

Its defects: it reads the recorded point of swipes only, so taps are scored at (0, 0); and an empty text is
correct. Our adaptation: its models predict boxes; here a point means the annotated boxes that contain it. A
point in no box is correct within AITW's distance.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Indel

from uivlm.actions.action import Finish, Point, Swipe, Tap, Type
from uivlm.actions.aitw import MATCH_DISTANCE, distance
from uivlm.evaluation.protocols.prediction import (
    Boxes,
    ProtocolResult,
    StepPrediction,
    boxes_contain,
    mean,
    texts_match,
)

BOX_SCALE = 1.2
MIN_IOU = 0.5  # intersection over union of two boxes
MIN_TEXT_SIMILARITY = 0.8  # Levenshtein ratio
VERTICAL_RATIO = 0.9  # a swipe is vertical if |dy| >= 0.9 |dx|


def apply_rules(predictions: Sequence[StepPrediction], as_released: bool) -> ProtocolResult:
    correct = [_is_correct(prediction, as_released) for prediction in predictions]
    episodes: dict[int, list[bool]] = {}
    for prediction, is_correct in zip(predictions, correct, strict=True):
        episodes.setdefault(prediction.episode_index, []).append(is_correct)
    progress = [[*steps, False].index(False) / len(steps) for steps in episodes.values()]
    metrics = {
        "complete_match": mean(all(steps) for steps in episodes.values()),
        "goal_progress": mean(progress),
    }
    return ProtocolResult(predictions, correct, metrics)


def _is_correct(prediction: StepPrediction, as_released: bool) -> bool:
    match prediction.predicted, prediction.gold:
        case Tap(at), Tap(recorded):
            return _tap_is_correct(at, Point(0.0, 0.0) if as_released else recorded, prediction.boxes)
        case Swipe() as predicted, Swipe() as gold:
            return _direction(predicted) == _direction(gold)
        case Type(text), Type(gold_text):
            similarity = Indel.normalized_similarity(text, gold_text)
            return texts_match(text, gold_text, as_released) or similarity > MIN_TEXT_SIMILARITY
        case Finish(), Finish():
            return True
        case predicted, gold:
            return predicted == gold


def _tap_is_correct(at: Point, recorded: Point, boxes: Boxes) -> bool:
    predicted_boxes, gold_boxes = (_enlarge(boxes[boxes_contain(boxes, point)]) for point in (at, recorded))
    if not len(predicted_boxes):
        return bool(distance(at, recorded) <= MATCH_DISTANCE)
    return bool(boxes_contain(predicted_boxes, recorded).any()) or any(
        _iou(a, b) > MIN_IOU for a in predicted_boxes for b in gold_boxes
    )


def _enlarge(boxes: Boxes) -> Boxes:
    """The boxes scaled about their centers."""
    growth = boxes[:, 2:] * (BOX_SCALE - 1)
    return np.concatenate([boxes[:, :2] - growth / 2, boxes[:, 2:] + growth], axis=1)


def _iou(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[:2] + a[2:], b[:2] + b[2:])
    intersection = float(np.prod(np.maximum(0, high - low)))
    union = float(np.prod(a[2:]) + np.prod(b[2:])) - intersection
    return intersection / union if union else 0.0


def _direction(swipe: Swipe) -> tuple[int, int]:
    """Axis (0: y, 1: x) and sign."""
    dy, dx = swipe.end.y - swipe.start.y, swipe.end.x - swipe.start.x
    return (0, 1 if dy > 0 else -1) if abs(dy) >= VERTICAL_RATIO * abs(dx) else (1, 1 if dx > 0 else -1)
