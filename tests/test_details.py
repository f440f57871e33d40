"""What errors are made of, by hand; confidence against closed forms."""

import dataclasses
from pathlib import Path
from random import Random

import pytest
from test_benchmark import QUIET, Several
from test_evaluation import DONE, TAP, UP, episode

from uivlm.actions.action import Action, Point, Press, Swipe, Tap, Type
from uivlm.actions.language import Language
from uivlm.agents.agent import Decision
from uivlm.episode import History
from uivlm.evaluation.benchmark import evaluate
from uivlm.evaluation.details import FAR, details, normal, way
from uivlm.evaluation.metrics import summarise
from uivlm.evaluation.verdict import Verdict, judge


def pairs(*given: tuple[Action, Action | None, float | None]) -> list[Verdict]:
    """Verdicts of (recorded, answered, confidence), an episode each."""
    found = []
    for i, (gold, guess, confidence) in enumerate(given):
        of = episode(str(i), "A", gold)
        words = "?" if guess is None else "said"
        answer = Language().parse("?") if guess is None else guess
        found.append(judge(i, of, 0, Decision(answer, words, confidence), 1.0))
    return found


def test_kinds_and_confusion() -> None:
    told = details(
        pairs(
            (TAP, TAP, None),
            (TAP, UP, None),
            (UP, None, None),
            (DONE, Press("back"), None),
            (TAP, Tap(Point(0.9, 0.9)), None),
        )
    )
    assert told.kinds == {"tap": (1, 3), "swipe": (0, 1), "complete": (0, 1)}
    assert told.confusion == {
        ("tap", "tap"): 2, ("tap", "swipe"): 1, ("swipe", "no action"): 1, ("complete", "press back"): 1
    }  # fmt: skip
    assert told.errors == {"no action": 1, "kind": 2, "place": 1}
    assert sum(told.errors.values()) == 4, "every wrong step has one"


def test_distances_of_taps() -> None:
    far = (0.0, 0.01, 0.03, 0.05, 0.1, 0.2, 0.6)
    told = details(
        pairs(*((Tap(Point(0.2, 0.3)), Tap(Point(0.2 + d, 0.3)), None) for d in far), (TAP, UP, None))
    )
    assert dict(zip(FAR, told.taps, strict=True)) == {0.02: 2, 0.04: 1, 0.07: 1, 0.14: 1, 0.28: 1, 2.0: 1}


def test_swipes() -> None:
    """One the right way but shorter and from elsewhere, one the other way, one answered by a tap."""
    short = Swipe(Point(0.7, 0.5), Point(0.3, 0.5))
    told = details(pairs((UP, short, None), (UP, Swipe(UP.end, UP.start), None), (UP, TAP, None))).swipes
    assert (told.recorded, told.answered, told.direction) == (3, 2, 1)
    assert told.length == pytest.approx((0.2 + 0) / 2)
    assert told.start == pytest.approx((0.1 + 0.6) / 2)
    assert told.end == pytest.approx((0.1 + 0.6) / 2)
    nothing = details(pairs((TAP, TAP, None))).swipes
    assert dataclasses.astuple(nothing) == (0, 0, 0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("swipe", "wanted"),
    [((0.8, 0.5, 0.2, 0.5), (0, -1)), ((0.2, 0.5, 0.8, 0.5), (0, 1)), ((0.5, 0.8, 0.5, 0.2), (1, -1)), ((0.5, 0.2, 0.6, 0.8), (1, 1))],
)  # fmt: skip
def test_ways(swipe: tuple[float, float, float, float], wanted: tuple[int, int]) -> None:
    a, b, c, d = swipe
    assert way(Swipe(Point(a, b), Point(c, d))) == wanted


def test_texts() -> None:
    """Similarity: 1 - (insertions and deletions) / (both lengths)."""
    given = [
        ("milk", Type("milk")),
        ("Milk  tea", Type("milk tea ")),
        ("milk", Type("silk")),
        ("milk", Type("")),
        ("milk", TAP),
    ]
    told = details(pairs(*((Type(gold), guess, None) for gold, guess in given))).texts
    assert (told.recorded, told.exact, told.normalised) == (5, 1, 2)
    second = 1 - 4 / 18  # M for m, a space less, a space more
    assert told.similarity == pytest.approx((1 + second + (1 - 2 / 8) + 0 + 0) / 5)
    assert normal(" Straße\t\uff21 ") == "strasse a"


def test_where_in_the_episode(tmp_path: Path) -> None:
    def words(history: History) -> str:
        return "tap at 20 30" if len(history.steps) < 2 else "press home"

    given = [episode("1", "A", TAP, TAP, TAP), episode("2", "A", UP, TAP), episode("3", "B", TAP)]
    told = summarise(evaluate(Several(words), given, tmp_path / "v.jsonl", QUIET)).details
    assert told.by_step == {"0": (2, 3), "1": (2, 2), "2": (0, 1)}
    assert told.by_length == {"1": (1, 1), "2": (1, 2), "3": (2, 3)}
    assert told.by_size == {"30 x 60": (4, 6)}


def test_confidence_that_is_right_has_no_error() -> None:
    """Of 1,000 answers at 0.25 a quarter is right, of 1,000 at 0.95 nineteen of twenty."""
    sure = [(DONE, DONE if i % 20 else Press("back"), 0.95) for i in range(1000)]
    unsure = [(DONE, Press("back") if i % 4 else DONE, 0.25) for i in range(1000)]
    trust = details(pairs(*sure, *unsure)).trust
    assert trust is not None
    assert trust.error == pytest.approx(0, abs=1e-9)
    assert trust.bins == ((pytest.approx(0.25), 0.25, 1000), (pytest.approx(0.95), 0.95, 1000))
    coverage = dict(trust.coverage)
    assert coverage[0.5] == pytest.approx(0.95)
    assert coverage[1.0] == pytest.approx(0.6)
    assert list(coverage) == pytest.approx([i / 10 for i in range(1, 11)])


def test_confidence_that_is_wrong() -> None:
    trust = details(pairs(*((DONE, Press("back"), 1.0) for _ in range(10)))).trust
    assert trust is not None
    assert trust.error == 1
    assert details(pairs((DONE, DONE, None))).trust is None
    mixed = details(pairs((DONE, DONE, None), (DONE, DONE, 0.75))).trust
    assert mixed is not None
    assert mixed.bins == ((0.75, 1.0, 1),)


def test_progress_is_the_correct_beginning(tmp_path: Path) -> None:
    given = [episode("1", "A", TAP, TAP, UP, TAP), episode("2", "A", TAP), episode("3", "A", UP)]
    told = summarise(evaluate(Several(lambda _: "tap at 20 30"), given, tmp_path / "v.jsonl", QUIET)).overall
    assert told.progress == pytest.approx((2 / 4 + 1 + 0) / 3)
    assert told.partial == pytest.approx((3 / 4 + 1 + 0) / 3)
    assert told.complete == pytest.approx(1 / 3)


def test_intervals_hold_the_rates() -> None:
    random = Random(0)
    told = summarise(pairs(*((DONE, random.choice([DONE, UP]), None) for _ in range(300)))).overall
    assert told.low < told.partial < told.high
    assert told.micro_low < told.micro < told.micro_high
    assert told.high - told.low == pytest.approx(2 * 1.96 * 0.5 / 300**0.5, rel=0.15)
