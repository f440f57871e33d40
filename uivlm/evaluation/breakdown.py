"""Accuracy by action type, error, position and confidence; details of taps, swipes and typed texts.

In: the verdicts of a run. Out: a Breakdown. Nothing here decides whether a step is correct: AITW's rule did.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rapidfuzz.distance import Indel

from uivlm.actions.action import Swipe, Tap, Type
from uivlm.actions.aitw import distance, main_axis
from uivlm.actions.text import ACTION_TYPES, action_type
from uivlm.evaluation.verdict import ERROR_TYPES, Verdict

INVALID = "invalid"  # predicted action type of an output that is not an action
TAP_DISTANCE_EDGES = (0.02, 0.04, 0.07, 0.14, 0.28, 2.0)  # upper edges; 0.14 is the limit of AITW's rule
NUM_CONFIDENCE_BINS = 10

CorrectCounts = tuple[int, int]  # correct steps, all steps


@dataclass(frozen=True, slots=True)
class TextStats:
    """Predicted against recorded typed texts. AITW's rule does not compare them."""

    num_recorded: int
    exact: int  # equal texts
    normalized: int  # equal after `normalize_text`
    similarity: float  # mean of 1 - (insertions + deletions) / sum of both lengths; 0 if nothing was typed


@dataclass(frozen=True, slots=True)
class SwipeStats:
    """Predicted against recorded swipes. AITW's rule compares only their main axis."""

    num_recorded: int
    num_predicted: int  # recorded swipes that were predicted as a swipe; the rest is about these
    direction_correct: int
    length_error: float  # means, as fractions of the screen; 0 without a predicted swipe
    start_error: float
    end_error: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """How well confidence predicts correctness."""

    bins: tuple[tuple[float, float, int], ...]  # mean confidence, accuracy, number of steps
    ece: float  # expected calibration error
    coverage: tuple[tuple[float, float], ...]  # share of the most confident steps, accuracy of these


@dataclass(frozen=True, slots=True)
class Breakdown:
    by_action_type: dict[str, CorrectCounts]  # of the gold action
    errors: dict[str, int]  # by ErrorType
    confusion: dict[tuple[str, str], int]  # (gold action type, predicted action type)
    tap_distance_counts: tuple[int, ...]  # predicted against recorded taps, by TAP_DISTANCE_EDGES
    swipes: SwipeStats
    texts: TextStats
    by_step: dict[str, CorrectCounts]  # index of the step, from 0
    by_episode_length: dict[str, CorrectCounts]  # steps of the episode
    by_screen_size: dict[str, CorrectCounts]  # pixels, width x height
    calibration: Calibration | None  # None: the agent reports no confidence


def make_breakdown(verdicts: Sequence[Verdict]) -> Breakdown:
    by_type = _counts(verdicts, lambda v: v.action_type)
    return Breakdown(
        by_action_type={name: by_type[name] for name in ACTION_TYPES if name in by_type},
        errors={name: n for name in ERROR_TYPES if (n := sum(v.error == name for v in verdicts))},
        confusion=dict(
            Counter(
                (v.action_type, INVALID if v.predicted is None else action_type(v.predicted))
                for v in verdicts
            )
        ),
        tap_distance_counts=_tap_distance_counts(verdicts),
        swipes=_swipe_stats(verdicts),
        texts=_text_stats(verdicts),
        by_step=_counts(sorted(verdicts, key=lambda v: v.step), lambda v: v.step),
        by_episode_length=_counts(sorted(verdicts, key=lambda v: v.num_steps), lambda v: v.num_steps),
        by_screen_size=_counts(
            sorted(verdicts, key=lambda v: v.size), lambda v: f"{v.size[1]} x {v.size[0]}"
        ),
        calibration=_calibration(verdicts),
    )


def _counts(verdicts: Sequence[Verdict], key: Callable[[Verdict], Any]) -> dict[str, CorrectCounts]:
    counts: dict[str, CorrectCounts] = {}
    for verdict in verdicts:
        name = str(key(verdict))
        num_correct, total = counts.get(name, (0, 0))
        counts[name] = (num_correct + verdict.correct, total + 1)
    return counts


def _tap_distance_counts(verdicts: Sequence[Verdict]) -> tuple[int, ...]:
    distances = [
        float(distance(v.predicted.at, v.gold.at))
        for v in verdicts
        if isinstance(v.predicted, Tap) and isinstance(v.gold, Tap)
    ]
    edges = np.searchsorted(np.array(TAP_DISTANCE_EDGES, np.float32), distances)
    return tuple(np.bincount(edges, minlength=len(TAP_DISTANCE_EDGES)).tolist())


def _swipe_stats(verdicts: Sequence[Verdict]) -> SwipeStats:
    recorded = [v for v in verdicts if isinstance(v.gold, Swipe)]
    pairs = [
        (v.predicted, v.gold)
        for v in recorded
        if isinstance(v.predicted, Swipe) and isinstance(v.gold, Swipe)
    ]
    errors = [
        (
            abs(_swipe_length(a) - _swipe_length(b)),
            float(distance(a.start, b.start)),
            float(distance(a.end, b.end)),
        )
        for a, b in pairs
    ]
    length, start, end = np.mean(errors, axis=0).tolist() if errors else (0.0, 0.0, 0.0)
    return SwipeStats(
        num_recorded=len(recorded),
        num_predicted=len(pairs),
        direction_correct=sum(swipe_direction(a) == swipe_direction(b) for a, b in pairs),
        length_error=length,
        start_error=start,
        end_error=end,
    )


def swipe_direction(swipe: Swipe) -> tuple[int, int]:
    """The main axis (0: y, 1: x), and 1 towards larger or -1 towards smaller coordinates."""
    axis = main_axis(swipe.start, swipe.end)
    forward = swipe.end.y > swipe.start.y if axis == 0 else swipe.end.x > swipe.start.x
    return axis, 1 if forward else -1


def _swipe_length(swipe: Swipe) -> float:
    return float(distance(swipe.start, swipe.end))


def _text_stats(verdicts: Sequence[Verdict]) -> TextStats:
    pairs = [
        (v.predicted.text if isinstance(v.predicted, Type) else None, v.gold.text)
        for v in verdicts
        if isinstance(v.gold, Type)
    ]
    similarities = [0.0 if a is None else float(Indel.normalized_similarity(a, b)) for a, b in pairs]
    return TextStats(
        num_recorded=len(pairs),
        exact=sum(a == b for a, b in pairs),
        normalized=sum(a is not None and normalize_text(a) == normalize_text(b) for a, b in pairs),
        similarity=sum(similarities) / max(1, len(pairs)),
    )


def normalize_text(text: str) -> str:
    """The text without what a phone's keyboard adds: case, letter width (NFKC), outer and repeated spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _calibration(verdicts: Sequence[Verdict]) -> Calibration | None:
    pairs = [(v.confidence, v.correct) for v in verdicts if v.confidence is not None]
    if not pairs:
        return None
    confidences = np.array([confidence for confidence, _ in pairs])
    correct = np.array([is_correct for _, is_correct in pairs], np.float64)
    bin_of_step = np.minimum((confidences * NUM_CONFIDENCE_BINS).astype(int), NUM_CONFIDENCE_BINS - 1)
    bins = []
    for i in range(NUM_CONFIDENCE_BINS):
        in_bin = bin_of_step == i
        if in_bin.any():
            bins.append((float(confidences[in_bin].mean()), float(correct[in_bin].mean()), int(in_bin.sum())))
    ece = sum(abs(confidence - accuracy) * size for confidence, accuracy, size in bins) / len(pairs)
    ranked = correct[np.argsort(-confidences, kind="stable")]
    sizes = [max(1, round(len(pairs) * tenth / 10)) for tenth in range(1, 11)]
    coverage = tuple((size / len(pairs), float(ranked[:size].mean())) for size in sizes)
    return Calibration(tuple(bins), float(ece), coverage)
