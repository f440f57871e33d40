"""Baselines score what can be counted by hand; the oracle has every step correct."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from tests.helpers.episodes import DONE, EPISODES, HOSTILE, QUIET, SWIPE_UP, TAP, make_episode
from tests.helpers.tiny_models import episode as recorded_episode
from tests.helpers.tiny_models import prepare
from uivlm.actions.action import Action, Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.text import ACTION_TYPES, ActionText
from uivlm.agents.agent import Agent, AgentError
from uivlm.episodes.dataset import PreparedData, PreparedEpisodes
from uivlm.episodes.episode import Episode, Screen, Step
from uivlm.evaluation.baselines import Majority, Nearest, Oracle, RepeatLast, make_baseline
from uivlm.evaluation.metrics import summarize
from uivlm.evaluation.names import BaselineName
from uivlm.evaluation.offline import EvalMode, evaluate

TRAIN = [
    make_episode("1", "A", TAP, TAP, DONE, goal="open the clock"),
    make_episode("2", "A", Press("home"), Type("milk"), Press("enter"), DONE, goal="search for milk"),
    make_episode("3", "A", SWIPE_UP, DONE, goal="clock the open"),
    make_episode("4", "A", Press("back"), goal="open the clock"),
]


def correct_steps(
    agent: Agent, episodes: Sequence[Episode], tmp_path: Path, free_running: bool = False
) -> list[bool]:
    """Which steps are correct."""
    verdicts = evaluate(agent, episodes, tmp_path / "verdicts.jsonl", QUIET, EvalMode(free_running))
    assert all(v.confidence is None for v in verdicts)
    return [v.correct for v in verdicts]


def random_action(rng: random.Random) -> Action:
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


def random_episodes(count: int, seed: int) -> list[Episode]:
    """All action types on screens of noise; few goals, so that only the screen tells them apart."""
    rng, noise = random.Random(seed), np.random.default_rng(seed)
    return [
        Episode(
            str(i),
            rng.choice(["open the clock", "", HOSTILE]),
            rng.choice("AB"),
            tuple(
                Step(Screen(noise.integers(256, size=(6, 3, 3), dtype=np.uint8)), random_action(rng))
                for _ in range(rng.randint(1, 8))
            ),
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("bins", [6, 100, 1000])
@pytest.mark.parametrize("free_running", [False, True])
def test_the_oracle_is_correct_at_every_step(bins: int, free_running: bool, tmp_path: Path) -> None:
    episodes = random_episodes(80, bins)
    if free_running:  # a finish within the episode would end it
        episodes = [
            replace(e, steps=tuple(step for step in e.steps if not isinstance(step.action, Finish)))
            for e in episodes
        ]
        episodes = [episode for episode in episodes if episode.steps]
    assert all(correct_steps(Oracle(episodes, bins), episodes, tmp_path, free_running))
    if not free_running:
        verdicts = evaluate(Oracle(episodes, bins), episodes, tmp_path / "v.jsonl", QUIET)
        summary = summarize(verdicts)
        assert set(summary.breakdown.by_action_type) == set(ACTION_TYPES), "every action type occurs"
        assert summary.overall.partial_match == summary.overall.complete_match == 1
        assert summary.breakdown.texts.exact == summary.breakdown.texts.num_recorded > 0


def test_the_oracle_knows_only_its_own_episodes(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="the oracle has no such step"):
        evaluate(Oracle(random_episodes(3, 1)), random_episodes(3, 2), tmp_path / "v.jsonl", QUIET)


def test_of_steps_that_look_alike_the_oracle_takes_the_first(tmp_path: Path) -> None:
    """Same goal, same screen, same step index: no agent could tell them apart."""
    assert correct_steps(Oracle(EPISODES), EPISODES, tmp_path) == [
        True,
        True,
        True,
        True,
        False,
        False,
        False,
        True,
    ]


def test_oracle_of_prepared_data(tmp_path: Path) -> None:
    """Screens are found again in a second read of the file."""
    data = PreparedData.open(prepare(tmp_path / "data", [recorded_episode(i, 1 + i % 4) for i in range(6)]))
    first, again = data.episodes("train"), data.episodes("train")
    assert all(correct_steps(Oracle(first), again, tmp_path))


def test_majority_by_hand(tmp_path: Path) -> None:
    """Of the train actions 3 are complete and 2 the tap: correct at the 2 finishes of 8 steps."""
    agent = Majority(TRAIN)
    assert agent.text == "complete"
    assert correct_steps(agent, EPISODES, tmp_path) == [False, False, False, True, False, False, False, True]
    partial = summarize(evaluate(agent, EPISODES, tmp_path / "v.jsonl", QUIET)).overall.partial_match
    assert partial == pytest.approx(((0 + 1 / 3) / 2 + 1 / 4) / 2)


def test_majority_counts_texts() -> None:
    """Taps in one bin have one text, and different texts with more bins; a tie is for the first."""
    near = [Tap(Point(0.201, 0.301)), Tap(Point(0.209, 0.309))]
    train = [make_episode("1", "A", Press("home"), *near)]
    assert Majority(train, 100).text == "tap at 20 30"
    assert Majority(train, 1000).text == "press home"


def test_repeat_last(tmp_path: Path) -> None:
    """First the center of the screen; then the last recorded action."""
    center = Tap(Point(0.5, 0.55))
    episode = make_episode("1", "A", center, center, SWIPE_UP, SWIPE_UP, Type("a"), Type("b"), DONE)
    assert correct_steps(RepeatLast(), [episode], tmp_path) == [True, True, False, True, False, True, False]
    verdicts = evaluate(RepeatLast(1000), [episode], tmp_path / "v.jsonl", QUIET)
    assert [v.text for v in verdicts[:4]] == [
        "tap at 500 500",
        "tap at 500 550",
        "tap at 500 550",
        "swipe from 800 500 to 200 500",
    ]
    assert correct_steps(RepeatLast(), [episode], tmp_path, free_running=True)[:2] == [True, True], (
        "its own past: it goes on tapping"
    )


@pytest.mark.parametrize(
    ("goal", "texts"),
    [
        ("search for milk!", ["press home", 'Input text "milk"', "press enter", "complete", "complete"]),
        ("open the clock", ["tap at 20 30", "tap at 20 30", "complete", "complete", "complete"]),
        # words in another order are equally similar: the first
        ("clock the open", ["tap at 20 30", "tap at 20 30", "complete", "complete", "complete"]),
    ],
)
def test_nearest_picks_the_most_similar_goal(goal: str, texts: list[str], tmp_path: Path) -> None:
    episode = make_episode("9", "A", *[DONE] * 5, goal=goal)
    assert [v.text for v in evaluate(Nearest(TRAIN), [episode], tmp_path / "v.jsonl", QUIET)] == texts


def test_nearest_is_correct_on_its_own_episodes(tmp_path: Path) -> None:
    assert all(correct_steps(Nearest(TRAIN), TRAIN[:2], tmp_path))
    assert correct_steps(Nearest(TRAIN), TRAIN[3:], tmp_path) == [False], (
        "of the episodes of a goal it knows the first"
    )


@pytest.mark.parametrize("goal", ["", HOSTILE, "\ud800", "0123456789" * 1000], ids=ascii)
def test_nearest_takes_any_goal(goal: str, tmp_path: Path) -> None:
    correct_steps(Nearest(TRAIN), [make_episode("9", "A", DONE, goal=goal)], tmp_path)
    correct_steps(Nearest([make_episode("9", "A", DONE, goal=goal)]), TRAIN, tmp_path)


def test_training_is_read_without_screens(tmp_path: Path) -> None:
    class WithoutScreens(PreparedEpisodes):
        def __getitem__(self, index: Any) -> Any:
            raise AssertionError("a screen was read")

    data = PreparedData.open(prepare(tmp_path / "data", [recorded_episode(i, 1 + i % 4) for i in range(6)]))
    train = data.episodes("train")
    blind = WithoutScreens(train.folder, train.refs)
    assert Majority(blind).text == Majority(list(train)).text
    assert Nearest(blind).actions_by_goal == Nearest(list(train)).actions_by_goal
    with pytest.raises(AssertionError, match="a screen was read"):
        Oracle(blind)


@pytest.mark.parametrize("name", get_args(BaselineName))
def test_by_name(name: Any, tmp_path: Path) -> None:
    test = random_episodes(12, 3)
    agent = make_baseline(name, TRAIN, test, 50)
    assert len(correct_steps(agent, test, tmp_path)) == sum(len(episode.steps) for episode in test)
    decision = agent.act(test[0].history(0))
    assert decision.action == ActionText(50).parse(decision.text)


def test_no_training_is_refused() -> None:
    for baseline in (Majority, Nearest):
        with pytest.raises(ValueError, match="no training episode"):
            baseline([])
