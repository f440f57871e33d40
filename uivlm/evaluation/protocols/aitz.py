"""AITZ's code (CoAT): boxes instead of distances, directions, texts that are nearly the same, one "stop".

Its defect: the recorded point is read for swipes alone, so that taps are judged at (0, 0). Ours: its models answer with boxes,
here a point stands for the annotated boxes that hold it; one that none holds is right within AITW's distance.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Indel

from uivlm.actions.action import Finish, Point, Swipe, Tap, Type
from uivlm.actions.aitw import MATCH_DISTANCE, distance
from uivlm.evaluation.protocols.answer import Answer, Boxes, Judged, holds, inside, mean

ENLARGED = 1.2
OVERLAP = 0.5  # intersection / union
ALIKE = 0.8  # of texts: Levenshtein's ratio
UPRIGHT = 0.9  # a swipe is along y unless its way along x is so much longer


def judge(answers: Sequence[Answer], defects: bool) -> Judged:
    right = [_right(one, defects) for one in answers]
    episodes: dict[int, list[bool]] = {}
    for one, yes in zip(answers, right, strict=True):
        episodes.setdefault(one.index, []).append(yes)
    progress = [[*steps, False].index(False) / len(steps) for steps in episodes.values()]
    more = {"success": mean(all(steps) for steps in episodes.values()), "progress": mean(progress)}
    return Judged(answers, right, more)


def _right(one: Answer, defects: bool) -> bool:
    match one.guess, one.gold:
        case Tap(at), Tap(recorded):
            return _boxed(at, Point(0.0, 0.0) if defects else recorded, one.boxes)
        case Swipe() as guess, Swipe() as gold:
            return _direction(guess) == _direction(gold)
        case Type(guess), Type(gold):
            return holds(guess, gold) or Indel.normalized_similarity(guess, gold) > ALIKE
        case Finish(), Finish():
            return True
        case guess, gold:
            return guess == gold


def _boxed(at: Point, recorded: Point, boxes: Boxes) -> bool:
    mine, theirs = (_enlarged(boxes[inside(boxes, point)]) for point in (at, recorded))
    if not len(mine):
        return bool(distance(at, recorded) <= MATCH_DISTANCE)
    return bool(inside(mine, recorded).any()) or any(_overlap(a, b) > OVERLAP for a in mine for b in theirs)


def _enlarged(boxes: Boxes) -> Boxes:
    """About the middle."""
    more = boxes[:, 2:] * (ENLARGED - 1)
    return np.concatenate([boxes[:, :2] - more / 2, boxes[:, 2:] + more], axis=1)


def _overlap(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[:2] + a[2:], b[:2] + b[2:])
    both = float(np.prod(np.maximum(0, high - low)))
    union = float(np.prod(a[2:]) + np.prod(b[2:])) - both
    return both / union if union else 0.0


def _direction(swipe: Swipe) -> tuple[int, int]:
    """Axis and sense of the finger."""
    dy, dx = swipe.end.y - swipe.start.y, swipe.end.x - swipe.start.x
    return (0, 1 if dy > 0 else -1) if abs(dy) >= UPRIGHT * abs(dx) else (1, 1 if dx > 0 else -1)
