"""Evaluation: scripted agents score what they must, sums agree with sums by hand."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from uivlm.actions.action import Action, Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.language import Language
from uivlm.agents.agent import Decision
from uivlm.episode import Element, Episode, History, Screen, Step
from uivlm.evaluation.benchmark import count, evaluate
from uivlm.evaluation.metrics import summarise
from uivlm.evaluation.verdict import Verdict, by_episode, from_row, read_verdicts, to_row
from uivlm.sentences.store import Episodes, Place

QUIET = Console(quiet=True)
TAP, UP = Tap(Point(0.2, 0.3)), Swipe(Point(0.8, 0.5), Point(0.2, 0.5))
DONE = Finish("complete")
HOSTILE = "<script>alert('x')</script><img src=http://evil.example/a onerror=alert(1)>\x00\ud800[red]"


def episode(name: str, subset: str, *actions: Action, goal: str = "open the clock") -> Episode:
    pixels = np.full((60, 30, 3), 200, np.uint8)
    screen = Screen(pixels, (Element(0.1, 0.1, 0.1, 0.4, "ok"),))
    return Episode(name, goal, subset, tuple(Step(screen, action) for action in actions))


# Two subsets: A with episodes of 1 and 3 steps, B with one of 4.
EPISODES = [
    episode("1", "A", TAP),
    episode("2", "A", TAP, UP, DONE),
    episode("3", "B", Press("home"), Type("milk"), Press("enter"), DONE),
]


@dataclasses.dataclass
class Scripted:
    """Says what `words(history)` gives; remembers what it was shown."""

    words: Callable[[History], str]
    confidence: float | None = None
    resets: int = 0
    lengths: list[int] = dataclasses.field(default_factory=list)

    def reset(self) -> None:
        self.resets += 1

    def act(self, history: History) -> Decision:
        self.lengths.append(len(history.steps))
        words = self.words(history)
        return Decision(Language().parse(words), words, self.confidence)


class Oracle:
    """Knows the episodes and says the recorded action."""

    def __init__(self, episodes: list[Episode]) -> None:
        self.left = [step.action for one in episodes for step in one.steps]

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        words = Language().say(self.left.pop(0))
        return Decision(Language().parse(words), words, 0.9)


def test_the_oracle_is_always_right(tmp_path: Path) -> None:
    verdicts = evaluate(Oracle(EPISODES), EPISODES, tmp_path / "run" / "verdicts.jsonl", QUIET)
    summary = summarise(verdicts)
    assert len(verdicts) == 8
    for score in (summary.overall, *summary.subsets.values()):
        assert (score.partial, score.micro, score.complete, score.types, score.failures) == (1, 1, 1, 1, 0)
        assert (score.low, score.high) == (1, 1)
    assert all(right == total for right, total in summary.details.kinds.values())
    assert read_verdicts(tmp_path / "run" / "verdicts.jsonl")[-1] == verdicts[-1]


def test_garbage_is_wrong_and_shown(tmp_path: Path) -> None:
    agent = Scripted(lambda history: f"tap somewhere {HOSTILE}")
    verdicts = evaluate(agent, EPISODES, tmp_path / "verdicts.jsonl", QUIET)
    summary = summarise(verdicts)
    assert (summary.overall.partial, summary.overall.micro, summary.overall.types) == (0, 0, 0)
    assert summary.overall.failures == 1
    assert summary.overall.num_steps == 8  # nothing leaves the denominator
    rows = [json.loads(row) for row in (tmp_path / "verdicts.jsonl").read_text().splitlines()]
    assert all(
        row["said"].startswith("tap somewhere") and row["guess"] is None and row["reason"] for row in rows
    )
    assert read_verdicts(tmp_path / "verdicts.jsonl") == [
        dataclasses.replace(v, gold=v.gold) for v in verdicts
    ]


def test_the_true_past_is_shown_and_the_agent_is_reset(tmp_path: Path) -> None:
    agent = Scripted(lambda history: "complete")
    evaluate(agent, EPISODES, tmp_path / "verdicts.jsonl", QUIET)
    assert agent.resets == 3
    assert agent.lengths == [0, 0, 1, 2, 0, 1, 2, 3]


def test_sums_by_hand(tmp_path: Path) -> None:
    """It always taps near (0.2, 0.3): right at the two taps. Words of step 3 of episode 3 are no action."""

    def words(history: History) -> str:
        return "tap at 25 32" if len(history.steps) < 3 else "well"

    summary = summarise(evaluate(Scripted(words), EPISODES, tmp_path / "verdicts.jsonl", QUIET))
    a, b, overall = summary.subsets["A"], summary.subsets["B"], summary.overall
    assert (a.num_episodes, a.num_steps, b.num_episodes, b.num_steps) == (2, 4, 1, 4)
    assert a.partial == pytest.approx((1 + 1 / 3) / 2)  # mean over episodes
    assert a.micro == pytest.approx(2 / 4)  # over steps: differs
    assert a.complete == pytest.approx(1 / 2)
    assert a.types == pytest.approx(3 / 4)  # a swipe has AITW's type of a tap
    assert (b.partial, b.micro, b.complete, b.types) == (0, 0, 0, 0)
    assert (a.failures, b.failures) == (0, 1 / 4)
    assert overall.partial == pytest.approx(1 / 3)  # plain mean of 2/3 and 0
    assert overall.micro == pytest.approx(1 / 4)
    assert overall.complete == pytest.approx(1 / 4)
    assert overall.failures == pytest.approx(1 / 8)
    assert (overall.num_episodes, overall.num_steps) == (3, 8)
    assert summary.details.kinds == {
        "tap": (2, 2), "swipe": (0, 1), "type": (0, 1), "press home": (0, 1), "press enter": (0, 1), "complete": (0, 2)
    }  # fmt: skip


def test_texts_are_compared_apart_from_the_rule(tmp_path: Path) -> None:
    """AITW's rule is content with any text; how often it is the recorded one is counted beside it."""
    done = episode("1", "A", Type("thank you"), Type("thank you"), Type("thank you"), Tap(Point(0.1, 0.2)))
    said = ('Input text "thank you"', 'Input text "thank"', "press enter", 'Input text "thank you"')
    summary = summarise(
        evaluate(
            Scripted(lambda history: said[len(history.steps)]), [done], tmp_path / "verdicts.jsonl", QUIET
        )
    )
    assert summary.details.kinds["type"] == (2, 3)
    texts = summary.details.texts
    assert (texts.recorded, texts.exact) == (3, 1)


def test_boxes_of_the_screencount(tmp_path: Path) -> None:
    """Two taps 0.3 apart match inside the one enlarged box (y 0.03..0.27, x 0..0.96) and not below it."""
    inside, below = episode("1", "A", Tap(Point(0.1, 0.2))), episode("2", "A", Tap(Point(0.5, 0.2)))
    for one, words, right in ((inside, "tap at 10 50", True), (below, "tap at 50 50", False)):
        [verdict] = evaluate(Scripted(lambda history, w=words: w), [one], tmp_path / "verdicts.jsonl", QUIET)
        assert verdict.correct is right


def verdict(name: str, t: int, correct: bool, subset: str = "A", steps: int = 1) -> Verdict:
    error = "" if correct else "kind"
    return Verdict(
        int(name),
        name,
        t,
        steps,
        subset,
        (60, 30),
        "complete",
        DONE,
        DONE,
        correct,
        "complete",
        error,
        "",
        None,
        1.0,
    )


def test_bootstrap_interval() -> None:
    """For 400 episodes of one step, half of them right: 0.5 +- 1.96 * 0.5 / 20."""
    verdicts = [verdict(str(i), 0, i % 2 == 0) for i in range(400)]
    overall = summarise(verdicts).overall
    assert overall.low == pytest.approx(0.451, abs=0.01)
    assert overall.high == pytest.approx(0.549, abs=0.01)
    assert summarise(verdicts) == summarise(verdicts)
    assert summarise(verdicts, seed=1).overall != overall
    by_steps = [
        verdict("1", t, t % 2 == 0, steps=400) for t in range(400)
    ]  # one episode: nothing to draw from
    assert summarise(by_steps).overall.low == summarise(by_steps).overall.high == 0.5


def test_overall_interval_is_of_the_mean_of_subsets() -> None:
    """A sure subset of 1,000 and an even one of 100: half the even one's deviation, not a tenth."""
    verdicts = [verdict(str(i), 0, True) for i in range(1000)]
    verdicts += [verdict(str(1000 + i), 0, i % 2 == 0, "B") for i in range(100)]
    overall = summarise(verdicts).overall
    assert overall.partial == pytest.approx(0.75)
    assert overall.high - overall.low == pytest.approx(2 * 1.96 * 0.05 / 2, abs=0.015)


def test_a_broken_run_leaves_no_verdicts(tmp_path: Path) -> None:
    def words(history: History) -> str:
        if len(history.steps) == 2:
            raise RuntimeError("out of memory")
        return "complete"

    path = tmp_path / "verdicts.jsonl"
    with pytest.raises(RuntimeError, match="out of memory"):
        evaluate(Scripted(words), EPISODES, path, QUIET)
    assert not path.exists()
    evaluate(Scripted(lambda history: "complete"), EPISODES, path, QUIET)
    assert [file.name for file in tmp_path.iterdir()] == ["verdicts.jsonl"]


def test_empty_data_is_refused(tmp_path: Path) -> None:
    agent = Scripted(lambda history: "complete")
    with pytest.raises(ValueError, match="no episode"):
        evaluate(agent, [], tmp_path / "verdicts.jsonl", QUIET)
    with pytest.raises(ValueError, match=r"'7'.*no steps"):
        evaluate(agent, [*EPISODES, episode("7", "A")], tmp_path / "verdicts.jsonl", QUIET)
    assert agent.resets == 0  # found before the agent was asked
    with pytest.raises(ValueError, match="no verdict"):
        summarise([])


def test_steps_of_prepared_data_are_counted_without_reading_a_screen(tmp_path: Path) -> None:
    places = tuple(Place("absent.parquet", 0, n, str(n), "A", "test") for n in (3, 5))
    assert count(Episodes(tmp_path, places)) == [3, 5]


def test_data_that_changes_is_refused(tmp_path: Path) -> None:
    class Shrinking(list[Episode]):
        def __getitem__(self, i: Any) -> Any:
            if isinstance(i, int):
                return super().__getitem__(i)
            return [dataclasses.replace(whole, steps=whole.steps[:1]) for whole in super().__getitem__(i)]

    with pytest.raises(ValueError, match="episodes 1 to 1 have 1 steps where 3 were counted"):
        evaluate(Scripted(lambda h: "complete"), Shrinking(EPISODES), tmp_path / "verdicts.jsonl", QUIET)


def test_missing_verdicts_are_refused() -> None:
    whole = [verdict("1", t, True, steps=2) for t in (0, 1)] + [verdict("2", 0, True), verdict("3", 0, True)]
    assert [len(group) for group in by_episode(whole)] == [2, 1, 1]
    late, other = verdict("1", 2, True, steps=2), verdict("2", 1, True, steps=2)
    for broken in (whole[1:], [whole[0], late], [whole[0], other], [whole[0], *whole[2:]], whole[:1]):
        with pytest.raises(ValueError, match="lacks steps"):
            by_episode(broken)


@pytest.mark.parametrize(
    "guess", [None, TAP, UP, Type(HOSTILE), Press("back"), Finish("impossible")], ids=repr
)
def test_rows_round_trip(guess: Action | None) -> None:
    why = "no words" * (guess is None)
    one = Verdict(7, "a/1", 3, 9, "A", (60, 30), HOSTILE, guess, UP, False, "swipe", "kind", why, 0.25, 12.5)
    assert from_row(json.loads(json.dumps(to_row(one)))) == one
