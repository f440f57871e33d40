"""Two runs on the same steps: is one better, or is it chance?

In: the verdicts of run a and of run b on the same steps. Out: a Comparison, and as a table. Two answers:

- by episode: both runs' partial match (overall: the plain mean of the subsets), their difference b - a and its bootstrap
  interval. Each draw takes the same episodes for both, so that what is hard for both cancels out.
- by step: McNemar's exact test on the steps that one run alone has right.
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

from uivlm.actions.language import KINDS
from uivlm.evaluation.metrics import DRAWS, interval
from uivlm.evaluation.verdict import Verdict, by_episode

DIGITS = 12  # of a drawn difference: tenths that cancel out must be a tie, not 1e-17
CAPTION = (
    "Steps of one episode are not independent, so McNemar's test on steps is too sure of itself: "
    "trust the bootstrap by episode."
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rates in [0, 1]; numbers of steps; `kinds`: by kind of gold action, those only a and only b has right, and all."""

    a: float  # partial match, overall
    b: float
    difference: float  # b - a
    low: float  # of `difference`: 95 % bootstrap interval, by episode
    high: float
    not_better: float  # share of the draws in which b is not better than a
    both: int
    only_a: int
    only_b: int
    neither: int
    p_steps: float  # McNemar's exact test, two-sided
    kinds: dict[str, tuple[int, int, int]]


def compare(a: Sequence[Verdict], b: Sequence[Verdict], seed: int = 0) -> Comparison:
    """Is b better than a? `seed` draws the episodes. ValueError where the two are not about the same steps."""
    _check(a, b)
    subsets = _shares(a, b)
    partial_a, partial_b = np.mean([shares.mean(axis=0) for shares in subsets], axis=0).tolist()
    draws = _draws([shares[:, 1] - shares[:, 0] for shares in subsets], np.random.default_rng(seed))
    low, high = interval(draws)
    pairs = [(one.kind, one.correct, other.correct) for one, other in zip(a, b, strict=True)]
    steps = Counter((right_a, right_b) for _, right_a, right_b in pairs)
    by_kind, number = Counter(pairs), Counter(kind for kind, _, _ in pairs)
    return Comparison(
        a=partial_a,
        b=partial_b,
        difference=partial_b - partial_a,
        low=low,
        high=high,
        not_better=float((draws <= 0).mean()),
        both=steps[True, True],
        only_a=steps[True, False],
        only_b=steps[False, True],
        neither=steps[False, False],
        p_steps=mcnemar(steps[True, False], steps[False, True]),
        kinds={
            kind: (by_kind[kind, True, False], by_kind[kind, False, True], number[kind])
            for kind in KINDS
            if kind in number
        },
    )


def mcnemar(only_a: int, only_b: int) -> float:
    """How likely so uneven a split, or a more uneven one, is if each of the steps falls to a or b by a fair coin."""
    n, k = only_a + only_b, min(only_a, only_b)
    most = math.comb(n, k) / (1 << n)  # the tail's largest term; a quotient of integers never overflows
    smaller = np.cumprod([i / (n - i + 1) for i in range(k, 0, -1)])  # C(n, i - 1) = C(n, i) i / (n - i + 1)
    return min(1.0, 2 * most * (1 + float(smaller.sum())))


def comparison_table(name_a: str, name_b: str, comparison: Comparison) -> Table:
    """The comparison for the terminal."""
    c = comparison
    shown = Table(title="is b better than a?", caption=CAPTION, box=SIMPLE_HEAD, pad_edge=False)
    shown.add_column("", no_wrap=True)
    for name in (f"a: {name_a}", f"b: {name_b}"):  # names may wrap, numbers never: it fits 80 columns
        shown.add_column(Text(name), justify="right", overflow="fold")
    shown.add_column("b - a", justify="right", no_wrap=True)
    shown.add_row(
        "partial match, overall",
        f"{100 * c.a:.1f}",
        f"{100 * c.b:.1f}",
        f"{100 * c.difference:+z.1f} ({100 * c.low:+z.1f} to {100 * c.high:+z.1f})",
        style="bold",
    )
    shown.add_row("draws with b not better", "", "", f"{100 * c.not_better:.1f} %", end_section=True)
    rows = {"steps right in it alone": (c.only_a, c.only_b, c.both + c.only_a + c.only_b + c.neither)}
    rows |= {f"  {kind}": counts for kind, counts in c.kinds.items()}
    for name, (only_a, only_b, number) in rows.items():
        shown.add_row(name, str(only_a), str(only_b), f"{only_b - only_a:+} of {number}")
    shown.add_section()
    shown.add_row("steps right in both", "", "", str(c.both))
    shown.add_row("steps right in neither", "", "", str(c.neither))
    shown.add_row("McNemar's exact test, p", "", "", f"{c.p_steps:.2g}")
    return shown


def _check(a: Sequence[Verdict], b: Sequence[Verdict]) -> None:
    if not a or len(a) != len(b):
        raise ValueError(f"runs of {len(a)} and {len(b)} steps cannot be compared: they must have the same")
    for one, other in zip(a, b, strict=True):
        if _place(one) != _place(other):
            raise ValueError(
                f"the runs are not about the same steps: {_told(one)} stands beside {_told(other)}"
            )
        if one.gold != other.gold:
            raise ValueError(
                f"the recorded action of {_told(one)} is {one.gold} in one run and {other.gold} in the other"
            )


def _place(verdict: Verdict) -> tuple[int, str, int, int, str]:
    return verdict.index, verdict.episode, verdict.t, verdict.steps, verdict.subset


def _told(verdict: Verdict) -> str:
    return f"step {verdict.t} of {verdict.steps} of episode {verdict.index}, {verdict.episode!r} of {verdict.subset!r}"


def _shares(a: Sequence[Verdict], b: Sequence[Verdict]) -> list[NDArray[np.float64]]:
    """For each subset [episodes, 2]: the share of right steps of each episode, in a and in b."""
    found: dict[str, list[list[float]]] = {}
    for pair in zip(by_episode(a), by_episode(b), strict=True):
        shares = [sum(verdict.correct for verdict in episode) / len(episode) for episode in pair]
        found.setdefault(pair[0][0].subset, []).append(shares)
    return [np.array(shares) for shares in found.values()]


def _draws(subsets: Sequence[NDArray[np.float64]], rng: np.random.Generator) -> NDArray[np.float64]:
    """[DRAWS]: the mean over the subsets, of as many episodes of each drawn with replacement."""
    means = [[of[rng.integers(len(of), size=len(of))].mean() for _ in range(DRAWS)] for of in subsets]
    return np.asarray(np.round(np.mean(means, axis=0), DIGITS), np.float64)
