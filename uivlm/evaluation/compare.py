"""Compares two runs on the same steps: is the difference significant?

In: the verdicts of runs a and b on the same steps. Out: a Comparison, and its table. Two tests:

- by episode: both partial matches (overall: the plain mean of the subsets), their difference b - a and its
  bootstrap interval. Each sample draws the same episodes for both runs, so their difficulty cancels out.
- by step: McNemar's exact test on the steps that only one run has correct.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from uivlm.actions.text import ACTION_TYPES
from uivlm.evaluation.intervals import percentile_interval
from uivlm.evaluation.metrics import NUM_BOOTSTRAP_SAMPLES
from uivlm.evaluation.verdict import Verdict, group_by_episode

ROUNDING_DIGITS = 12  # of a sampled difference: 0.1 + 0.2 - 0.3 must be a tie, not 1e-17
CAPTION = (
    "Steps of one episode are not independent, so McNemar's test on steps is overconfident: "
    "trust the bootstrap by episode."
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rates in [0, 1] and numbers of steps."""

    partial_match_a: float  # overall
    partial_match_b: float
    difference: float  # b - a
    difference_low: float  # 95 % bootstrap interval, by episode
    difference_high: float
    not_better_rate: float  # share of bootstrap samples in which b is not better than a
    both: int  # steps correct in both runs
    only_a: int
    only_b: int
    neither: int
    mcnemar_p: float  # McNemar's exact test, two-sided
    by_action_type: dict[str, tuple[int, int, int]]  # of the gold action: only_a, only_b, all steps


def compare_runs(a: Sequence[Verdict], b: Sequence[Verdict], seed: int = 0) -> Comparison:
    """Compare b with a. `seed` draws the episodes. Raises ValueError unless both are about the same steps."""
    _check_same_steps(a, b)
    subsets = _episode_accuracies(a, b)
    partial_a, partial_b = np.mean([accuracies.mean(axis=0) for accuracies in subsets], axis=0).tolist()
    samples = _bootstrap_differences(
        [accuracies[:, 1] - accuracies[:, 0] for accuracies in subsets], np.random.default_rng(seed)
    )
    low, high = percentile_interval(samples)
    pairs = [(va.action_type, va.correct, vb.correct) for va, vb in zip(a, b, strict=True)]
    steps = Counter((correct_a, correct_b) for _, correct_a, correct_b in pairs)
    by_type, totals = Counter(pairs), Counter(name for name, _, _ in pairs)
    return Comparison(
        partial_match_a=partial_a,
        partial_match_b=partial_b,
        difference=partial_b - partial_a,
        difference_low=low,
        difference_high=high,
        not_better_rate=float((samples <= 0).mean()),
        both=steps[True, True],
        only_a=steps[True, False],
        only_b=steps[False, True],
        neither=steps[False, False],
        mcnemar_p=mcnemar(steps[True, False], steps[False, True]),
        by_action_type={
            name: (by_type[name, True, False], by_type[name, False, True], totals[name])
            for name in ACTION_TYPES
            if name in totals
        },
    )


def mcnemar(only_a: int, only_b: int) -> float:
    """The two-sided p-value: how likely a split at least as uneven is, if a fair coin decides each step."""
    n, k = only_a + only_b, min(only_a, only_b)
    largest_term = math.comb(n, k) / (1 << n)  # of the tail; a quotient of integers never overflows
    ratios = np.cumprod([i / (n - i + 1) for i in range(k, 0, -1)])  # C(n, i - 1) = C(n, i) i / (n - i + 1)
    return min(1.0, 2 * largest_term * (1 + float(ratios.sum())))


def comparison_table(name_a: str, name_b: str, comparison: Comparison) -> Table:
    """The comparison for the terminal. Names may wrap, numbers never: it fits 80 columns."""
    c = comparison
    table = Table(title="is b better than a?", caption=CAPTION, box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in (f"a: {name_a}", f"b: {name_b}"):
        table.add_column(Text(name), justify="right", overflow="fold")
    table.add_column("b - a", justify="right", no_wrap=True)
    table.add_row(
        "partial match, overall",
        f"{100 * c.partial_match_a:.1f}",
        f"{100 * c.partial_match_b:.1f}",
        f"{100 * c.difference:+z.1f} ({100 * c.difference_low:+z.1f} to {100 * c.difference_high:+z.1f})",
        style="bold",
    )
    table.add_row("samples, b not better", "", "", f"{100 * c.not_better_rate:.1f} %", end_section=True)
    rows = {"steps correct in one run": (c.only_a, c.only_b, c.both + c.only_a + c.only_b + c.neither)}
    rows |= {f"  {name}": counts for name, counts in c.by_action_type.items()}
    for name, (only_a, only_b, total) in rows.items():
        table.add_row(name, str(only_a), str(only_b), f"{only_b - only_a:+} of {total}")
    table.add_section()
    table.add_row("steps correct in both", "", "", str(c.both))
    table.add_row("steps correct in neither", "", "", str(c.neither))
    table.add_row("McNemar's exact test, p", "", "", f"{c.mcnemar_p:.2g}")
    return table


def _check_same_steps(a: Sequence[Verdict], b: Sequence[Verdict]) -> None:
    if not a or len(a) != len(b):
        raise ValueError(f"cannot compare runs of {len(a)} and {len(b)} steps; expected the same steps")
    for va, vb in zip(a, b, strict=True):
        if _step_key(va) != _step_key(vb):
            raise ValueError(f"the runs have different steps: {_describe_step(va)} and {_describe_step(vb)}")
        if va.gold != vb.gold:
            raise ValueError(
                f"{_describe_step(va)}: recorded as {va.gold} in one run, {vb.gold} in the other"
            )


def _step_key(verdict: Verdict) -> tuple[int, str, int, int, str]:
    return verdict.episode_index, verdict.episode, verdict.step, verdict.num_steps, verdict.subset


def _describe_step(verdict: Verdict) -> str:
    episode = f"episode {verdict.episode_index}, {verdict.episode!r:.80} of {verdict.subset!r:.80}"
    return f"step {verdict.step} of {verdict.num_steps} of {episode}"


def _episode_accuracies(a: Sequence[Verdict], b: Sequence[Verdict]) -> list[NDArray[np.float64]]:
    """For each subset [episodes, 2]: the share of correct steps of each episode, in a and in b."""
    subsets: dict[str, list[list[float]]] = {}
    for pair in zip(group_by_episode(a), group_by_episode(b), strict=True):
        accuracies = [sum(verdict.correct for verdict in episode) / len(episode) for episode in pair]
        subsets.setdefault(pair[0][0].subset, []).append(accuracies)
    return [np.array(rows) for rows in subsets.values()]


def _bootstrap_differences(
    subsets: Sequence[NDArray[np.float64]], rng: np.random.Generator
) -> NDArray[np.float64]:
    """[NUM_BOOTSTRAP_SAMPLES]: the mean over subsets, each of episodes drawn with replacement."""
    means = [
        [rows[rng.integers(len(rows), size=len(rows))].mean() for _ in range(NUM_BOOTSTRAP_SAMPLES)]
        for rows in subsets
    ]
    return np.asarray(np.round(np.mean(means, axis=0), ROUNDING_DIGITS), np.float64)
