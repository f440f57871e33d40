"""Verdicts summed up: rates by subset, with intervals.

In: the verdicts of a run. Out: a Summary. Rates, each per subset and overall (overall: the plain mean of the subsets, as in the
AITW paper):

- partial: correct steps / length of the episode, averaged over episodes (AITW and UI-VLM papers)
- micro: correct steps / all steps (the code of Auto-UI, SeeClick and ShowUI)
- complete: episodes with every step right
- progress: steps before the first wrong one / length of the episode, averaged over episodes (AITZ's goal progress)
- types: steps with AITW's type right, taps and swipes being one type
- failures: steps whose words are no action
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from uivlm.actions.aitw import to_aitw
from uivlm.evaluation.details import Details, details
from uivlm.evaluation.verdict import Verdict, by_episode

DRAWS = 1000  # bootstrap samples
LEVEL = 0.95
RATES = ("partial", "micro", "complete", "progress", "types", "failures")


@dataclass(frozen=True, slots=True)
class Score:
    """Rates in [0, 1] of one subset, or their means over the subsets; 95 % bootstrap intervals, by episode."""

    num_episodes: int
    num_steps: int
    partial: float
    low: float  # of `partial`
    high: float
    micro: float
    micro_low: float
    micro_high: float
    complete: float
    progress: float
    types: float
    failures: float


@dataclass(frozen=True, slots=True)
class Summary:
    overall: Score
    subsets: dict[str, Score]  # by name, in the order of the data
    details: Details  # of all steps together


def summarise(verdicts: Sequence[Verdict], seed: int = 0) -> Summary:
    """The rates of a run. `seed` draws the episodes of the bootstrap."""
    if not verdicts:
        raise ValueError("there is no verdict to sum up: the run had no steps")
    groups: dict[str, list[list[Verdict]]] = {}
    for episode in by_episode(verdicts):
        groups.setdefault(episode[0].subset, []).append(episode)
    rng = np.random.default_rng(seed)
    subsets, draws = {}, []
    for name, episodes in groups.items():
        draws.append(resampled(episodes, rng))
        subsets[name] = _score(episodes, draws[-1])
    return Summary(_mean(list(subsets.values()), np.mean(draws, axis=0)), subsets, details(verdicts))


def resampled(episodes: Sequence[Sequence[Verdict]], rng: np.random.Generator) -> NDArray[np.float64]:
    """[2, DRAWS]: partial and micro of as many episodes drawn with replacement."""
    right = np.array([sum(v.correct for v in episode) for episode in episodes])
    steps = np.array([len(episode) for episode in episodes])
    shares = right / steps
    drawn = (rng.integers(len(steps), size=len(steps)) for _ in range(DRAWS))
    return np.array([(shares[one].mean(), right[one].sum() / steps[one].sum()) for one in drawn]).T


def interval(draws: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _score(episodes: Sequence[Sequence[Verdict]], draws: NDArray[np.float64]) -> Score:
    steps = [verdict for episode in episodes for verdict in episode]
    return _scored(
        (len(episodes), len(steps)),
        {
            "partial": _mean_of(episodes, lambda one: sum(v.correct for v in one) / len(one)),
            "micro": sum(v.correct for v in steps) / len(steps),
            "complete": _mean_of(episodes, lambda one: all(v.correct for v in one)),
            "progress": _mean_of(episodes, lambda one: _correct_beginning(one) / len(one)),
            "types": sum(_same_type(v) for v in steps) / len(steps),
            "failures": sum(v.error == "no action" for v in steps) / len(steps),
        },
        draws,
    )


def _mean(scores: Sequence[Score], draws: NDArray[np.float64]) -> Score:
    numbers = sum(s.num_episodes for s in scores), sum(s.num_steps for s in scores)
    return _scored(
        numbers, {name: float(np.mean([getattr(s, name) for s in scores])) for name in RATES}, draws
    )


def _scored(numbers: tuple[int, int], rates: dict[str, float], draws: NDArray[np.float64]) -> Score:
    (low, high), (micro_low, micro_high) = map(interval, draws)
    return Score(
        *numbers,
        partial=rates["partial"],
        low=low,
        high=high,
        micro=rates["micro"],
        micro_low=micro_low,
        micro_high=micro_high,
        complete=rates["complete"],
        progress=rates["progress"],
        types=rates["types"],
        failures=rates["failures"],
    )


def _mean_of(episodes: Sequence[Sequence[Verdict]], value: Callable[[Sequence[Verdict]], float]) -> float:
    return float(np.mean([value(one) for one in episodes]))


def _correct_beginning(episode: Sequence[Verdict]) -> int:
    return sum(1 for _ in takewhile(lambda v: v.correct, episode))


def _same_type(verdict: Verdict) -> bool:
    return verdict.guess is not None and to_aitw(verdict.guess)[0] == to_aitw(verdict.gold)[0]
