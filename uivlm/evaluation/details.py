"""What right and wrong steps are made of: kinds, places, swipes, texts, confidence, and where in an episode.

In: the verdicts of a run. Out: Details. Nothing here decides whether a step is right: AITW's rule did.
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
from uivlm.actions.language import KINDS, kind
from uivlm.evaluation.verdict import ERRORS, Verdict

NOTHING = "no action"  # in the confusion matrix
FAR = (0.02, 0.04, 0.07, 0.14, 0.28, 2.0)  # upper edges of tap distances; 0.14: AITW's rule
BINS = 10  # of confidence

Counts = tuple[int, int]  # right, all


@dataclass(frozen=True, slots=True)
class Texts:
    """Of the recorded typed texts, which AITW's rule does not compare: typed just so; typed so but for case, width of letters and
    spaces; and the mean similarity (1 - insertions and deletions / both lengths; 0 where nothing was typed)."""

    recorded: int
    exact: int
    normalised: int
    similarity: float


@dataclass(frozen=True, slots=True)
class Swipes:
    """Of the recorded swipes that were answered by one, of which AITW's rule sees the axis alone: along it the right way; mean
    error of the length, of the start and of the end, as fractions of the screen (0 where there is none)."""

    recorded: int
    answered: int
    direction: int
    length: float
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Trust:
    """What confidence is worth. `bins`: mean confidence, share of right steps, number of steps; `error`: expected calibration
    error; `coverage`: share of the steps that are answered if the least sure are left out, and share of right ones among them."""

    bins: tuple[tuple[float, float, int], ...]
    error: float
    coverage: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Details:
    kinds: dict[str, Counts]  # by kind of gold action
    errors: dict[str, int]  # by kind of error
    confusion: dict[tuple[str, str], int]  # (kind of gold action, kind of the answer)
    taps: tuple[int, ...]  # of recorded taps that were answered by one: how many lie up to each edge of FAR
    swipes: Swipes
    texts: Texts
    by_step: dict[str, Counts]  # by the number of steps before
    by_length: dict[str, Counts]  # by the steps of the episode
    by_size: dict[str, Counts]  # by the screen's pixels, width x height
    trust: Trust | None  # None: the agent tells no confidence


def details(verdicts: Sequence[Verdict]) -> Details:
    kinds = _counts(verdicts, lambda v: v.kind)
    return Details(
        kinds={name: kinds[name] for name in KINDS if name in kinds},
        errors={name: n for name in ERRORS if (n := sum(v.error == name for v in verdicts))},
        confusion=dict(Counter((v.kind, NOTHING if v.guess is None else kind(v.guess)) for v in verdicts)),
        taps=_taps(verdicts),
        swipes=_swipes(verdicts),
        texts=_texts(verdicts),
        by_step=_counts(sorted(verdicts, key=lambda v: v.t), lambda v: v.t),
        by_length=_counts(sorted(verdicts, key=lambda v: v.steps), lambda v: v.steps),
        by_size=_counts(sorted(verdicts, key=lambda v: v.size), lambda v: f"{v.size[1]} x {v.size[0]}"),
        trust=_trust(verdicts),
    )


def _counts(verdicts: Sequence[Verdict], of: Callable[[Verdict], Any]) -> dict[str, Counts]:
    found: dict[str, Counts] = {}
    for verdict in verdicts:
        right, number = found.get(str(of(verdict)), (0, 0))
        found[str(of(verdict))] = (right + verdict.correct, number + 1)
    return found


def _taps(verdicts: Sequence[Verdict]) -> tuple[int, ...]:
    far = [
        float(distance(v.guess.at, v.gold.at))
        for v in verdicts
        if isinstance(v.guess, Tap) and isinstance(v.gold, Tap)
    ]
    edges = np.searchsorted(np.array(FAR, np.float32), far)
    return tuple(np.bincount(edges, minlength=len(FAR)).tolist())


def _swipes(verdicts: Sequence[Verdict]) -> Swipes:
    recorded = [v for v in verdicts if isinstance(v.gold, Swipe)]
    pairs = [(v.guess, v.gold) for v in recorded if isinstance(v.guess, Swipe) and isinstance(v.gold, Swipe)]
    errors = [
        (abs(_length(a) - _length(b)), float(distance(a.start, b.start)), float(distance(a.end, b.end)))
        for a, b in pairs
    ]
    length, start, end = np.mean(errors, axis=0).tolist() if errors else (0.0, 0.0, 0.0)
    return Swipes(len(recorded), len(pairs), sum(way(a) == way(b) for a, b in pairs), length, start, end)


def way(swipe: Swipe) -> tuple[int, int]:
    """Its main axis (0: y, 1: x), and 1 towards greater numbers, -1 towards smaller ones."""
    axis = main_axis(swipe.start, swipe.end)
    forward = swipe.end.y > swipe.start.y if axis == 0 else swipe.end.x > swipe.start.x
    return axis, 1 if forward else -1


def _length(swipe: Swipe) -> float:
    return float(distance(swipe.start, swipe.end))


def _texts(verdicts: Sequence[Verdict]) -> Texts:
    pairs = [
        (v.guess.text if isinstance(v.guess, Type) else None, v.gold.text)
        for v in verdicts
        if isinstance(v.gold, Type)
    ]
    alike = [0.0 if a is None else float(Indel.normalized_similarity(a, b)) for a, b in pairs]
    return Texts(
        recorded=len(pairs),
        exact=sum(a == b for a, b in pairs),
        normalised=sum(a is not None and normal(a) == normal(b) for a, b in pairs),
        similarity=sum(alike) / max(1, len(pairs)),
    )


def normal(text: str) -> str:
    """Without what a phone's keyboard adds: case, width of letters (NFKC), spaces around and doubled."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _trust(verdicts: Sequence[Verdict]) -> Trust | None:
    told = [(v.confidence, v.correct) for v in verdicts if v.confidence is not None]
    if not told:
        return None
    sure = np.array([confidence for confidence, _ in told])
    right = np.array([correct for _, correct in told], np.float64)
    places = np.minimum((sure * BINS).astype(int), BINS - 1)
    bins = [
        (float(sure[places == i].mean()), float(right[places == i].mean()), int((places == i).sum()))
        for i in range(BINS)
        if (places == i).any()
    ]
    error = sum(abs(confidence - accuracy) * number for confidence, accuracy, number in bins) / len(told)
    ordered = right[np.argsort(-sure, kind="stable")]
    answered = [max(1, round(len(told) * tenth / 10)) for tenth in range(1, 11)]
    coverage = tuple((number / len(told), float(ordered[:number].mean())) for number in answered)
    return Trust(tuple(bins), float(error), coverage)
