"""Baselines score what can be counted by hand; the oracle has every step right."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bridges import episode as recorded_episode
from bridges import prepare
from rich.console import Console
from test_evaluation import DONE, EPISODES, HOSTILE, TAP, UP, episode

from uivlm.actions.action import Action, Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.language import KINDS, Language
from uivlm.agents.agent import Agent, AgentError
from uivlm.episode import Episode, Screen, Step
from uivlm.evaluation.baselines import Majority, Nearest, Oracle, RepeatLast, baseline
from uivlm.evaluation.benchmark import Way, evaluate
from uivlm.evaluation.metrics import summarise
from uivlm.evaluation.names import BASELINES
from uivlm.sentences.store import Episodes, Prepared

QUIET = Console(quiet=True)
TRAIN = [
    episode("1", "A", TAP, TAP, DONE, goal="open the clock"),
    episode("2", "A", Press("home"), Type("milk"), Press("enter"), DONE, goal="search for milk"),
    episode("3", "A", UP, DONE, goal="clock the open"),
    episode("4", "A", Press("back"), goal="open the clock"),
]


def right(agent: Agent, episodes: Sequence[Episode], tmp_path: Path, free: bool = False) -> list[bool]:
    """Which steps are right."""
    judged = evaluate(agent, episodes, tmp_path / "verdicts.jsonl", QUIET, Way(free))
    assert all(v.confidence is None for v in judged)
    return [v.correct for v in judged]


def any_action(rng: random.Random) -> Action:
    def point() -> Point:
        return Point(rng.random(), rng.random())

    texts = [
        "",
        HOSTILE,
        'a "quoted" \\ line\nof \t text',
        "milk",
        "\udc00",
        "tap at 1 2",
        "\x7f\u202e\U0001f600",
    ]
    return rng.choice(
        [
            Tap(point()),
            Swipe(point(), point()),
            Swipe(Point(0.5, 0.5), Point(0.5, 0.545)),  # nearly a tap
            Type(rng.choice(texts)),
            Press(rng.choice(["back", "home", "enter"])),
            Finish(rng.choice(["complete", "impossible"])),
        ]
    )


def any_episodes(number: int, seed: int) -> list[Episode]:
    """All kinds of actions on screens of noise; a few goals, so that the screen has to tell them apart."""
    rng, noise = random.Random(seed), np.random.default_rng(seed)
    return [
        Episode(
            str(i),
            rng.choice(["open the clock", "", HOSTILE]),
            rng.choice("AB"),
            tuple(
                Step(Screen(noise.integers(256, size=(6, 3, 3), dtype=np.uint8)), any_action(rng))
                for _ in range(rng.randint(1, 8))
            ),
        )
        for i in range(number)
    ]


@pytest.mark.parametrize("bins", [6, 100, 1000])
@pytest.mark.parametrize("free", [False, True])
def test_the_oracle_is_right_at_every_step(bins: int, free: bool, tmp_path: Path) -> None:
    episodes = any_episodes(80, bins)
    if free:  # an end in the middle is an end: what follows would not be asked
        episodes = [
            replace(one, steps=tuple(step for step in one.steps if not isinstance(step.action, Finish)))
            for one in episodes
        ]
        episodes = [one for one in episodes if one.steps]
    assert all(right(Oracle(episodes, bins), episodes, tmp_path, free))
    if not free:
        verdicts = evaluate(Oracle(episodes, bins), episodes, tmp_path / "v.jsonl", QUIET)
        summary = summarise(verdicts)
        assert set(summary.details.kinds) == set(KINDS), "every kind was asked about"
        assert summary.overall.partial == summary.overall.complete == 1
        assert summary.details.texts.exact == summary.details.texts.recorded > 0


def test_the_oracle_knows_its_own_episodes_alone(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="has not seen this step"):
        evaluate(Oracle(any_episodes(3, 1)), any_episodes(3, 2), tmp_path / "v.jsonl", QUIET)


def test_of_steps_that_look_alike_the_oracle_says_the_first(tmp_path: Path) -> None:
    """Same goal, same screen, same number of steps: from what is shown nobody could tell them apart."""
    assert right(Oracle(EPISODES), EPISODES, tmp_path) == [True, True, True, True, False, False, False, True]


def test_oracle_of_prepared_data(tmp_path: Path) -> None:
    """Screens are found again in a second read of the file."""
    data = Prepared.open(prepare(tmp_path / "data", [recorded_episode(i, 1 + i % 4) for i in range(6)]))
    first, again = data.episodes("train"), data.episodes("train")
    assert all(right(Oracle(first), again, tmp_path))


def test_majority_by_hand(tmp_path: Path) -> None:
    """Of the train actions 3 are complete and 2 the tap: right at the 2 ends of 8 steps."""
    agent = Majority(TRAIN)
    assert agent.words == "complete"
    assert right(agent, EPISODES, tmp_path) == [False, False, False, True, False, False, False, True]
    partial = summarise(evaluate(agent, EPISODES, tmp_path / "v.jsonl", QUIET)).overall.partial
    assert partial == pytest.approx(((0 + 1 / 3) / 2 + 1 / 4) / 2)


def test_majority_counts_words() -> None:
    """Taps in one bin are one phrase, and the same ones apart with more bins; a tie is for the first."""
    near = [Tap(Point(0.201, 0.301)), Tap(Point(0.209, 0.309))]
    train = [episode("1", "A", Press("home"), *near)]
    assert Majority(train, 100).words == "tap at 20 30"
    assert Majority(train, 1000).words == "press home"


def test_repeat_last(tmp_path: Path) -> None:
    """First the middle of the screen; then what the recorded past ends with."""
    middle = Tap(Point(0.5, 0.55))
    of = episode("1", "A", middle, middle, UP, UP, Type("a"), Type("b"), DONE)
    assert right(RepeatLast(), [of], tmp_path) == [True, True, False, True, False, True, False]
    verdicts = evaluate(RepeatLast(1000), [of], tmp_path / "v.jsonl", QUIET)
    assert [v.said for v in verdicts[:4]] == [
        "tap at 500 500",
        "tap at 500 550",
        "tap at 500 550",
        "swipe from 800 500 to 200 500",
    ]
    assert right(RepeatLast(), [of], tmp_path, free=True)[:2] == [True, True], (
        "its own past: it goes on tapping"
    )


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        ("search for milk!", ["press home", 'Input text "milk"', "press enter", "complete", "complete"]),
        ("open the clock", ["tap at 20 30", "tap at 20 30", "complete", "complete", "complete"]),
        # words in another order are equally near: the first
        ("clock the open", ["tap at 20 30", "tap at 20 30", "complete", "complete", "complete"]),
    ],
)
def test_nearest_picks_the_most_similar_goal(goal: str, said: list[str], tmp_path: Path) -> None:
    asked = episode("9", "A", *[DONE] * 5, goal=goal)
    assert [v.said for v in evaluate(Nearest(TRAIN), [asked], tmp_path / "v.jsonl", QUIET)] == said


def test_nearest_of_its_own_episodes_is_right(tmp_path: Path) -> None:
    assert all(right(Nearest(TRAIN), TRAIN[:2], tmp_path))
    assert right(Nearest(TRAIN), TRAIN[3:], tmp_path) == [False], "of one goal's episodes it knows the first"


@pytest.mark.parametrize("goal", ["", HOSTILE, "\ud800", "0123456789" * 1000], ids=ascii)
def test_nearest_has_an_answer_to_any_goal(goal: str, tmp_path: Path) -> None:
    right(Nearest(TRAIN), [episode("9", "A", DONE, goal=goal)], tmp_path)
    right(Nearest([episode("9", "A", DONE, goal=goal)]), TRAIN, tmp_path)


def test_training_is_read_without_screens(tmp_path: Path) -> None:
    class Blind(Episodes):
        def __getitem__(self, index: Any) -> Any:
            raise AssertionError("a screen was read")

    data = Prepared.open(prepare(tmp_path / "data", [recorded_episode(i, 1 + i % 4) for i in range(6)]))
    seen = data.episodes("train")
    blind = Blind(seen.folder, seen.places)
    assert Majority(blind).words == Majority(list(seen)).words
    assert Nearest(blind).done == Nearest(list(seen)).done
    with pytest.raises(AssertionError, match="a screen was read"):
        Oracle(blind)


@pytest.mark.parametrize("name", BASELINES)
def test_by_name(name: Any, tmp_path: Path) -> None:
    test = any_episodes(12, 3)
    agent = baseline(name, TRAIN, test, 50)
    assert len(right(agent, test, tmp_path)) == sum(len(one.steps) for one in test)
    decision = agent.act(test[0].history(0))
    assert decision.action == Language(50).parse(decision.words)


def test_no_training_is_refused() -> None:
    for of in (Majority, Nearest):
        with pytest.raises(ValueError, match="no episode of training"):
            of([])
