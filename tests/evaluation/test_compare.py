"""Two runs on the same steps: closed forms, intervals by the normal approximation, and refusals."""

import io
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tests.helpers.episodes import DONE, EPISODES, HOSTILE, QUIET, TAP, make_verdict
from tests.helpers.scripted_agents import TextAgent
from uivlm.evaluation.compare import compare_runs, comparison_table, mcnemar
from uivlm.evaluation.metrics import summarize
from uivlm.evaluation.offline import evaluate
from uivlm.evaluation.verdict import Verdict


def run(correct: Sequence[bool], subset: str = "A", first: int = 0) -> list[Verdict]:
    """Episodes of one step each."""
    return [make_verdict(str(first + i), 0, bool(c), subset) for i, c in enumerate(correct)]


@pytest.mark.parametrize(
    ("only_a", "only_b", "p"),
    [
        (0, 0, 1.0),
        (0, 1, 1.0),
        (1, 1, 1.0),
        (0, 5, 2 / 2**5),
        (1, 8, 2 * (1 + 9) / 2**9),  # 0.0390625
        (3, 7, 2 * (1 + 10 + 45 + 120) / 2**10),
        (10, 11, 1.0),
    ],
)
def test_mcnemar_by_hand(only_a: int, only_b: int, p: float) -> None:
    assert mcnemar(only_a, only_b) == mcnemar(only_b, only_a) == pytest.approx(p, rel=1e-14)


def test_mcnemar_of_many_steps() -> None:
    """The sum of integers where that is quick, the normal distribution where it is not; never an overflow."""
    n, k = 3001, 1440
    exact = 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n
    assert mcnemar(k, n - k) == pytest.approx(exact, rel=1e-11)
    sigmas = (100_000 / 2 - 49_500 - 0.5) / math.sqrt(100_000 / 4)  # with the correction for continuity
    assert mcnemar(49_500, 50_500) == pytest.approx(math.erfc(sigmas / math.sqrt(2)), rel=1e-3)
    assert mcnemar(50_000, 50_000) == 1
    assert mcnemar(0, 100_000) == mcnemar(20_000, 80_000) == 0  # too small for a float


def test_equal_runs() -> None:
    steps = [make_verdict("0", t, t % 2 == 0, num_steps=3) for t in range(3)] + run([True, False], "B", 1)
    same = compare_runs(steps, steps)
    assert (
        same.difference,
        same.difference_low,
        same.difference_high,
        same.not_better_rate,
        same.mcnemar_p,
    ) == (0, 0, 0, 1, 1)
    assert (same.both, same.only_a, same.only_b, same.neither) == (3, 0, 0, 2)
    assert same.partial_match_a == same.partial_match_b == pytest.approx((2 / 3 + 1 / 2) / 2)


def test_numbers_by_hand(tmp_path: Path) -> None:
    """a taps in place, b finishes: a has the two taps right, b the two ends."""
    a = evaluate(TextAgent(lambda _: "tap at 20 30"), EPISODES, tmp_path / "a.jsonl", QUIET)
    b = evaluate(TextAgent(lambda _: "complete"), EPISODES, tmp_path / "b.jsonl", QUIET)
    comparison = compare_runs(a, b)
    assert (comparison.partial_match_a, comparison.partial_match_b) == (
        pytest.approx(((1 + 1 / 3) / 2 + 0) / 2),
        pytest.approx(((0 + 1 / 3) / 2 + 1 / 4) / 2),
    )
    assert (comparison.partial_match_a, comparison.partial_match_b) == tuple(
        pytest.approx(summarize(one).overall.partial_match) for one in (a, b)
    )
    assert comparison.difference == comparison.partial_match_b - comparison.partial_match_a
    assert (comparison.both, comparison.only_a, comparison.only_b, comparison.neither) == (0, 2, 2, 4)
    assert comparison.mcnemar_p == 1
    assert comparison.by_action_type == {
        "tap": (2, 0, 2), "swipe": (0, 0, 1), "type": (0, 0, 1), "press home": (0, 0, 1),
        "press enter": (0, 0, 1),
        "complete": (0, 2, 2),
    }  # fmt: skip


def test_turned_round() -> None:
    """b against a is a against b with the sign changed; draws without a winner are on neither side."""
    rng = np.random.default_rng(5)
    a, b = run(rng.random(60) < 0.5), run(rng.random(60) < 0.6)
    one, other = compare_runs(a, b), compare_runs(b, a)
    assert (one.difference, one.difference_low, one.difference_high) == pytest.approx(
        (-other.difference, -other.difference_high, -other.difference_low), abs=1e-9
    )
    assert (one.only_a, one.only_b, one.mcnemar_p) == (other.only_b, other.only_a, other.mcnemar_p)
    assert 1 <= one.not_better_rate + other.not_better_rate < 1.2
    assert compare_runs(a, b) == one != compare_runs(a, b, seed=1)


def test_interval_is_that_of_a_paired_difference() -> None:
    """Both fail at the same hard episodes and b is a little better, so the interval is narrow."""
    rng = np.random.default_rng(0)
    a = rng.random(900) < 0.6
    b = np.where(rng.random(900) < 0.1, rng.random(900) < 0.8, a)
    comparison = compare_runs(run(a), run(b))
    each = b.astype(float) - a
    half = 1.96 * each.std() / 30
    assert comparison.difference == pytest.approx(each.mean())
    assert (comparison.difference_low, comparison.difference_high) == pytest.approx(
        (each.mean() - half, each.mean() + half), abs=0.1 * half
    )
    unpaired = 1.96 * math.sqrt(a.var() + b.var()) / 30
    assert comparison.difference_high - comparison.difference_low < unpaired, (
        "less than half as wide as from unpaired draws"
    )
    tail = math.erfc(each.mean() / (each.std() / 30) / math.sqrt(2)) / 2
    assert comparison.not_better_rate == pytest.approx(tail, abs=0.02)


def test_episodes_are_drawn_within_their_subset() -> None:
    """Only the small subset has a difference: half of its deviation counts, not a tenth."""
    same = [True] * 900
    a, b = run(same) + run([False] * 100, "B", 900), run(same) + run([False, True] * 50, "B", 900)
    comparison = compare_runs(a, b)
    assert comparison.difference == pytest.approx(0.25)
    assert comparison.difference_high - comparison.difference_low == pytest.approx(
        2 * 1.96 * 0.05 / 2, rel=0.12
    )
    assert comparison.not_better_rate == 0


def test_steps_of_one_episode_are_no_evidence() -> None:
    """Ten episodes of ten steps, won as a whole: McNemar's test is sure, the draws of episodes are not."""
    a, b = (
        [make_verdict(str(i), t, (i < 6) is won, num_steps=10) for i in range(10) for t in range(10)]
        for won in (False, True)
    )
    comparison = compare_runs(a, b)
    assert comparison.mcnemar_p == pytest.approx(mcnemar(40, 60)) == pytest.approx(0.0569, abs=1e-4)
    assert 0.2 < comparison.not_better_rate < 0.5


def test_tenths_that_cancel_out_are_a_tie() -> None:
    """0.1 + 0.2 - 0.3 is 0 for people, not for floats: a draw of all three is no win."""

    def rights(*numbers: int) -> list[Verdict]:
        return [
            make_verdict(str(i), t, t < n, num_steps=10) for i, n in enumerate(numbers) for t in range(10)
        ]

    comparison = compare_runs(rights(0, 0, 3), rights(1, 2, 0))
    tie_or_loss = sum(
        x + y + z <= 0 for x in (1, 2, -3) for y in (1, 2, -3) for z in (1, 2, -3)
    )  # of 27 draws
    assert comparison.not_better_rate == pytest.approx(tie_or_loss / 27, abs=0.04)
    assert comparison.difference == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(
    "changed",
    [
        {"episode_index": 2},
        {"episode": "other"},
        {"subset": "B"},
        {"step": 1},
        {"num_steps": 2},
    ],
    ids=str,
)
def test_other_steps_are_refused(changed: dict) -> None:
    a = run([True, False])
    with pytest.raises(ValueError, match="different steps: step 0 of 1 of episode 1, '1' of 'A' and"):
        compare_runs(a, [a[0], replace(a[1], **changed)])


def test_other_refusals() -> None:
    a = run([True, False])
    with pytest.raises(ValueError, match=r"step 0 .*: recorded as Finish\(.*\) in one run, Tap\("):
        compare_runs(a, [a[0], replace(a[1], gold=TAP)])
    with pytest.raises(ValueError, match="runs of 2 and 1 steps"):
        compare_runs(a, a[:1])
    with pytest.raises(ValueError, match="runs of 0 and 0 steps"):
        compare_runs([], [])
    cut = [make_verdict("0", 0, True, num_steps=2)]
    with pytest.raises(ValueError, match="lacks steps"):
        compare_runs(cut, cut)


def test_table() -> None:
    a, b = run([False] * 8 + [True]), run([True] * 8 + [False])
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(comparison_table("untrained", HOSTILE.replace("\ud800", ""), compare_runs(a, b)))
    shown = " ".join(console.export_text().split())
    assert "partial match, overall 11.1 88.9 +77.8 (+" in shown
    assert "steps correct in one run 1 8 +7 of 9" in shown
    assert f"{DONE.status} 1 8 +7 of 9" in shown
    assert "McNemar's exact test, p 0.039" in shown
    assert "steps of one episode are not independent" in shown.lower()
    assert "trust the bootstrap by episode" in shown
    assert "[red]" in shown.replace(" ", ""), "names are no markup"
