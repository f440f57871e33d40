"""The breakdown by hand; calibration against closed forms."""

import dataclasses
from pathlib import Path
from random import Random

import pytest

from tests.helpers.episodes import DONE, QUIET, SWIPE_UP, TAP, make_episode
from tests.helpers.scripted_agents import BatchTextAgent
from uivlm.actions.action import Action, Point, Press, Swipe, Tap, Type
from uivlm.actions.decision import Decision
from uivlm.actions.text import ActionText
from uivlm.episodes.episode import History
from uivlm.evaluation.breakdown import TAP_DISTANCE_EDGES, make_breakdown, normalize_text, swipe_direction
from uivlm.evaluation.metrics import summarize
from uivlm.evaluation.offline import evaluate
from uivlm.evaluation.verdict import Verdict, to_verdict


def pairs(*rows: tuple[Action, Action | None, float | None]) -> list[Verdict]:
    """Verdicts of (recorded, predicted, confidence), an episode each."""
    verdicts = []
    for i, (gold, predicted, confidence) in enumerate(rows):
        action = ActionText().parse("?") if predicted is None else predicted
        decision = Decision(action, "text", confidence)
        verdicts.append(to_verdict(i, make_episode(str(i), "A", gold), 0, decision, 1.0))
    return verdicts


def test_action_types_and_confusion() -> None:
    breakdown = make_breakdown(
        pairs(
            (TAP, TAP, None),
            (TAP, SWIPE_UP, None),
            (SWIPE_UP, None, None),
            (DONE, Press("back"), None),
            (TAP, Tap(Point(0.9, 0.9)), None),
        )
    )
    assert breakdown.by_action_type == {"tap": (1, 3), "swipe": (0, 1), "complete": (0, 1)}
    assert breakdown.confusion == {
        ("tap", "tap"): 2, ("tap", "swipe"): 1, ("swipe", "invalid"): 1, ("complete", "press back"): 1
    }  # fmt: skip
    assert breakdown.errors == {"invalid": 1, "wrong_type": 2, "wrong_location": 1}
    assert sum(breakdown.errors.values()) == 4, "one for every wrong step"


def test_distances_of_taps() -> None:
    distances = (0.0, 0.01, 0.03, 0.05, 0.1, 0.2, 0.6)
    breakdown = make_breakdown(
        pairs(
            *((Tap(Point(0.2, 0.3)), Tap(Point(0.2 + d, 0.3)), None) for d in distances),
            (TAP, SWIPE_UP, None),
        )
    )
    assert dict(zip(TAP_DISTANCE_EDGES, breakdown.tap_distance_counts, strict=True)) == {
        0.02: 2,
        0.04: 1,
        0.07: 1,
        0.14: 1,
        0.28: 1,
        2.0: 1,
    }


def test_swipes() -> None:
    """One in the same direction but shorter, one in the other direction, one predicted as a tap."""
    short = Swipe(Point(0.7, 0.5), Point(0.3, 0.5))
    breakdown = make_breakdown(
        pairs(
            (SWIPE_UP, short, None),
            (SWIPE_UP, Swipe(SWIPE_UP.end, SWIPE_UP.start), None),
            (SWIPE_UP, TAP, None),
        )
    ).swipes
    assert (breakdown.num_recorded, breakdown.num_predicted, breakdown.direction_correct) == (3, 2, 1)
    assert breakdown.length_error == pytest.approx((0.2 + 0) / 2)
    assert breakdown.start_error == pytest.approx((0.1 + 0.6) / 2)
    assert breakdown.end_error == pytest.approx((0.1 + 0.6) / 2)
    nothing = make_breakdown(pairs((TAP, TAP, None))).swipes
    assert dataclasses.astuple(nothing) == (0, 0, 0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("swipe", "direction"),
    [((0.8, 0.5, 0.2, 0.5), (0, -1)), ((0.2, 0.5, 0.8, 0.5), (0, 1)), ((0.5, 0.8, 0.5, 0.2), (1, -1)),
     ((0.5, 0.2, 0.6, 0.8), (1, 1))],
)  # fmt: skip
def test_swipe_directions(swipe: tuple[float, float, float, float], direction: tuple[int, int]) -> None:
    a, b, c, d = swipe
    assert swipe_direction(Swipe(Point(a, b), Point(c, d))) == direction


def test_texts() -> None:
    """Similarity: 1 - (insertions and deletions) / (both lengths)."""
    texts = [
        ("milk", Type("milk")),
        ("Milk  tea", Type("milk tea ")),
        ("milk", Type("silk")),
        ("milk", Type("")),
        ("milk", TAP),
    ]
    breakdown = make_breakdown(pairs(*((Type(gold), guess, None) for gold, guess in texts))).texts
    assert (breakdown.num_recorded, breakdown.exact, breakdown.normalized) == (5, 1, 2)
    second = 1 - 4 / 18  # M for m, a space less, a space more
    assert breakdown.similarity == pytest.approx((1 + second + (1 - 2 / 8) + 0 + 0) / 5)
    assert normalize_text(" Straße\t\uff21 ") == "strasse a"


def test_where_in_the_episode(tmp_path: Path) -> None:
    def text_of(history: History) -> str:
        return "tap at 20 30" if len(history.steps) < 2 else "press home"

    episodes = [
        make_episode("1", "A", TAP, TAP, TAP),
        make_episode("2", "A", SWIPE_UP, TAP),
        make_episode("3", "B", TAP),
    ]
    breakdown = summarize(evaluate(BatchTextAgent(text_of), episodes, tmp_path / "v.jsonl", QUIET)).breakdown
    assert breakdown.by_step == {"0": (2, 3), "1": (2, 2), "2": (0, 1)}
    assert breakdown.by_episode_length == {"1": (1, 1), "2": (1, 2), "3": (2, 3)}
    assert breakdown.by_screen_size == {"30 x 60": (4, 6)}


def test_calibrated_confidence_has_no_error() -> None:
    """Of 1,000 steps at 0.25 a quarter is correct, of 1,000 at 0.95 nineteen of twenty."""
    sure = [(DONE, DONE if i % 20 else Press("back"), 0.95) for i in range(1000)]
    unsure = [(DONE, Press("back") if i % 4 else DONE, 0.25) for i in range(1000)]
    calibration = make_breakdown(pairs(*sure, *unsure)).calibration
    assert calibration is not None
    assert calibration.ece == pytest.approx(0, abs=1e-9)
    assert calibration.bins == ((pytest.approx(0.25), 0.25, 1000), (pytest.approx(0.95), 0.95, 1000))
    coverage = dict(calibration.coverage)
    assert coverage[0.5] == pytest.approx(0.95)
    assert coverage[1.0] == pytest.approx(0.6)
    assert list(coverage) == pytest.approx([i / 10 for i in range(1, 11)])


def test_overconfidence() -> None:
    calibration = make_breakdown(pairs(*((DONE, Press("back"), 1.0) for _ in range(10)))).calibration
    assert calibration is not None
    assert calibration.ece == 1
    assert make_breakdown(pairs((DONE, DONE, None))).calibration is None
    mixed = make_breakdown(pairs((DONE, DONE, None), (DONE, DONE, 0.75))).calibration
    assert mixed is not None
    assert mixed.bins == ((0.75, 1.0, 1),)


def test_goal_progress_is_the_share_before_the_first_error(tmp_path: Path) -> None:
    episodes = [
        make_episode("1", "A", TAP, TAP, SWIPE_UP, TAP),
        make_episode("2", "A", TAP),
        make_episode("3", "A", SWIPE_UP),
    ]
    score = summarize(
        evaluate(BatchTextAgent(lambda _: "tap at 20 30"), episodes, tmp_path / "v.jsonl", QUIET)
    ).overall
    assert score.goal_progress == pytest.approx((2 / 4 + 1 + 0) / 3)
    assert score.partial_match == pytest.approx((3 / 4 + 1 + 0) / 3)
    assert score.complete_match == pytest.approx(1 / 3)


def test_intervals_contain_the_rates() -> None:
    random = Random(0)
    score = summarize(pairs(*((DONE, random.choice([DONE, SWIPE_UP]), None) for _ in range(300)))).overall
    assert score.partial_match_low < score.partial_match < score.partial_match_high
    assert score.step_accuracy_low < score.step_accuracy < score.step_accuracy_high
    assert score.partial_match_high - score.partial_match_low == pytest.approx(
        2 * 1.96 * 0.5 / 300**0.5, rel=0.15
    )
