"""Rates of a run by subset, with confidence intervals.

In: the verdicts of a run. Out: a Summary. Each rate is given per subset and overall; overall is the plain
mean of the subsets, as in the AITW paper:

- partial_match: correct steps / steps of the episode, averaged over episodes (AITW and UI-VLM papers)
- step_accuracy: correct steps / all steps (the code of Auto-UI, SeeClick and ShowUI)
- complete_match: share of episodes with every step correct
- goal_progress: steps before the first error / steps of the episode, averaged over episodes (AITZ)
- type_accuracy: share of steps with the right AITW action type, which is one for taps and swipes
- invalid_rate: share of steps at which the output is not an action

The intervals are bootstrapped by episode. From few episodes a bootstrap is too narrow, and from one it has no
width: a subset of fewer than 20 has Wilson's interval, and `overall` is then combined from the subsets'.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from uivlm.actions.aitw import to_aitw
from uivlm.evaluation.breakdown import Breakdown, make_breakdown
from uivlm.evaluation.intervals import Interval, mean_interval, percentile_interval, wilson_interval
from uivlm.evaluation.verdict import Verdict, group_by_episode

NUM_BOOTSTRAP_SAMPLES = 1000
MIN_BOOTSTRAP_EPISODES = 20  # of a subset
RATES_WITH_INTERVAL = ("partial_match", "step_accuracy")  # in the order of `bootstrap`
RATES = ("partial_match", "step_accuracy", "complete_match", "goal_progress", "type_accuracy", "invalid_rate")


@dataclass(frozen=True, slots=True)
class Score:
    """Rates in [0, 1] of one subset, or means over subsets. Intervals: 95 %, by episode."""

    num_episodes: int
    num_steps: int
    partial_match: float
    partial_match_low: float
    partial_match_high: float
    step_accuracy: float
    step_accuracy_low: float
    step_accuracy_high: float
    complete_match: float
    goal_progress: float
    type_accuracy: float
    invalid_rate: float


@dataclass(frozen=True, slots=True)
class Summary:
    overall: Score
    subsets: dict[str, Score]  # by name, in the order of the data
    breakdown: Breakdown  # of the steps of all subsets


def summarize(verdicts: Sequence[Verdict], seed: int = 0) -> Summary:
    """The rates of a run. `seed` draws the episodes of the bootstrap."""
    if not verdicts:
        raise ValueError("no verdicts to summarize: the run had no steps")
    groups: dict[str, list[list[Verdict]]] = {}
    for episode in group_by_episode(verdicts):
        groups.setdefault(episode[0].subset, []).append(episode)
    rng = np.random.default_rng(seed)
    subsets, samples = {}, []
    for name, episodes in groups.items():
        samples.append(bootstrap(episodes, rng))
        subsets[name] = _subset_score(episodes, samples[-1])
    overall = _mean_score(list(subsets.values()), np.mean(samples, axis=0))
    return Summary(overall, subsets, make_breakdown(verdicts))


def bootstrap(episodes: Sequence[Sequence[Verdict]], rng: np.random.Generator) -> NDArray[np.float64]:
    """[2, NUM_BOOTSTRAP_SAMPLES]: partial_match and step_accuracy of episodes drawn with replacement."""
    num_correct = np.array([sum(v.correct for v in episode) for episode in episodes])
    num_steps = np.array([len(episode) for episode in episodes])
    accuracies = num_correct / num_steps
    drawn = (rng.integers(len(num_steps), size=len(num_steps)) for _ in range(NUM_BOOTSTRAP_SAMPLES))
    return np.array([(accuracies[i].mean(), num_correct[i].sum() / num_steps[i].sum()) for i in drawn]).T


def _subset_score(episodes: Sequence[Sequence[Verdict]], samples: NDArray[np.float64]) -> Score:
    steps = [verdict for episode in episodes for verdict in episode]
    rates = {
        "partial_match": _episode_mean(episodes, lambda e: sum(v.correct for v in e) / len(e)),
        "step_accuracy": sum(v.correct for v in steps) / len(steps),
        "complete_match": _episode_mean(episodes, lambda e: all(v.correct for v in e)),
        "goal_progress": _episode_mean(episodes, lambda e: _num_correct_before_error(e) / len(e)),
        "type_accuracy": sum(_same_type(v) for v in steps) / len(steps),
        "invalid_rate": sum(v.error == "invalid" for v in steps) / len(steps),
    }
    intervals = [
        percentile_interval(drawn)
        if len(episodes) >= MIN_BOOTSTRAP_EPISODES
        else wilson_interval(rates[name] * len(episodes), len(episodes))
        for name, drawn in zip(RATES_WITH_INTERVAL, samples, strict=True)
    ]
    return _make_score(len(episodes), len(steps), rates, intervals)


def _mean_score(scores: Sequence[Score], samples: NDArray[np.float64]) -> Score:
    rates = {name: float(np.mean([getattr(s, name) for s in scores])) for name in RATES}
    intervals = [
        percentile_interval(drawn)
        if all(s.num_episodes >= MIN_BOOTSTRAP_EPISODES for s in scores)
        else mean_interval(
            [getattr(s, name) for s in scores],
            [(getattr(s, f"{name}_low"), getattr(s, f"{name}_high")) for s in scores],
        )
        for name, drawn in zip(RATES_WITH_INTERVAL, samples, strict=True)
    ]
    return _make_score(
        sum(s.num_episodes for s in scores), sum(s.num_steps for s in scores), rates, intervals
    )


def _make_score(
    num_episodes: int, num_steps: int, rates: dict[str, float], intervals: Sequence[Interval]
) -> Score:
    """`intervals`: of RATES_WITH_INTERVAL."""
    (partial_low, partial_high), (step_low, step_high) = intervals
    return Score(
        num_episodes=num_episodes,
        num_steps=num_steps,
        partial_match_low=partial_low,
        partial_match_high=partial_high,
        step_accuracy_low=step_low,
        step_accuracy_high=step_high,
        **rates,
    )


def _episode_mean(
    episodes: Sequence[Sequence[Verdict]], value: Callable[[Sequence[Verdict]], float]
) -> float:
    return float(np.mean([value(episode) for episode in episodes]))


def _num_correct_before_error(episode: Sequence[Verdict]) -> int:
    return sum(1 for _ in takewhile(lambda v: v.correct, episode))


def _same_type(verdict: Verdict) -> bool:
    return verdict.predicted is not None and to_aitw(verdict.predicted)[0] == to_aitw(verdict.gold)[0]
