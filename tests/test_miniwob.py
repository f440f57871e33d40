"""MiniWoB++: the expert solves it, the page alone judges, the goal is on no screen, demonstrations become data."""

import io
import json
from itertools import islice

import numpy as np
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from data_prep import miniwob as command
from data_prep.__main__ import app as prepare
from uivlm.actions.action import Finish, Point, Swipe, Tap, Type
from uivlm.actions.language import Language
from uivlm.agents.agent import Decision
from uivlm.devices import chromium
from uivlm.devices.device import DeviceError
from uivlm.live import run_live
from uivlm.loop import run_episode
from uivlm.miniwob import tasks as miniwob
from uivlm.miniwob.expert import NEXT, Expert
from uivlm.miniwob.tasks import NAMES, Task, goal, room, succeeded, tasks
from uivlm.miniwob.trials import trials
from uivlm.sentences.store import Prepared

try:
    chromium.program()
    miniwob._pages()
except DeviceError as absent:
    pytest.skip(str(absent), allow_module_level=True)

QUIET = Console(file=io.StringIO())
APP = typer.Typer()
APP.command()(command.main)


@pytest.fixture(scope="module")
def here():
    with room() as one:
        yield one


class Taps:
    """An agent that taps these places, then says that it is done."""

    def __init__(self, *places):
        self.places = places

    def reset(self):
        pass

    def act(self, history):
        done = len(history.steps)
        action = Tap(self.places[done]) if done < len(self.places) else Finish("complete")
        return Decision(action, Language().say(action))


def solved(here, split, seed, number):
    """What the expert made of each task: (name, outcome, reward)."""
    for task in islice(tasks(split, seed), number):
        with here.begun(task) as device:
            asked = goal(device)
            hidden = device.page.evaluate(
                "(box => [box.bottom / innerHeight])(query.getBoundingClientRect())"
            )[0]
            told = [element.text for element in device.elements()]
            outcome = run_episode(Expert(task, device), device, asked, 20)
            yield task.name, asked, hidden, told, outcome, succeeded(device)


def test_the_expert_solves_every_task_and_sees_no_goal(here):
    assert set(NEXT) == set(NAMES)
    wins, kinds = 0, set()
    for name, asked, hidden, told, outcome, reached in solved(here, "train", 7, len(NAMES)):
        wins += outcome.status == "complete" and reached
        kinds |= {type(step.action) for step in outcome.steps}
        pixels = outcome.steps[0].screen.pixels
        assert pixels.shape == (525, 400, 3)
        assert (pixels[: int(hidden * 525) - 8] == 255).all(), f"{name} shows something where its goal stands"
        assert asked not in " ".join(told)
    assert wins == len(NAMES)
    assert kinds == {Tap, Swipe, Type, Finish}


@pytest.mark.slow
def test_the_expert_on_many_seeds(here):
    wins = sum(reached for *_, reached in solved(here, "train", 0, 20 * len(NAMES)))
    assert wins >= 276  # of 280; 279 were measured: of click-test-2, one button may lie under the other


def test_the_page_alone_judges(here):
    task = Task("click-test-2", "test of the judge")
    with here.begun(task) as device:
        one, two = (device.page.evaluate(MIDDLE % id) for id in ("subbtn", "subbtn2"))
        one, two = Point(*one), Point(*two)
    for places, reached in (
        ((), False),
        ((two,), False),
        ((two, one), False),
        ((one,), True),
        ((one, two), True),
    ):
        with here.begun(task) as device:
            outcome = run_episode(Taps(*places), device, goal(device), 5)
            assert (outcome.status, succeeded(device)) == ("complete", reached)


MIDDLE = "(box => [(box.y + box.height / 2) / innerHeight, (box.x + box.width / 2) / innerWidth])(%s.getBoundingClientRect())"


def test_a_seed_is_a_task(here):
    def first(seed):
        with here.begun(Task("click-checkboxes", seed)) as device:
            return goal(device), device.screen().pixels

    (goal_a, a), (goal_b, b), (goal_c, _) = first("train 0 1"), first("train 0 1"), first("test 0 1")
    assert goal_a == goal_b
    assert np.array_equal(a, b)
    assert goal_a != goal_c
    seeds = {split: {task.seed for task in islice(tasks(split, 0), 50)} for split in ("train", "test")}
    assert len(seeds["train"]) == len(seeds["test"]) == 50
    assert not seeds["train"] & seeds["test"]


def test_trials_for_the_live_benchmark():
    names = ("focus-text", "click-dialog")
    given = zip(trials(3, 2, names), tasks("test", 3, names), strict=False)
    results = [run_live(Expert(task, trial.device), [trial], 10, console=QUIET)[0] for trial, task in given]
    assert [(result.success, result.steps) for result in results] == [(True, 2), (True, 2)]
    assert results[0].goal == "Focus into the textbox."
    results = run_live(Taps(Point(0.01, 0.01)), trials(3, 2, names), 10, 2, console=QUIET)
    assert [(result.status, result.reached, result.success) for result in results] == [
        ("complete", False, False)
    ] * 2


def test_a_page_that_crashes_fails_one_trial():
    class Crashes(Taps):
        def act(self, history):
            crashed.append(len(crashed))
            if len(crashed) == 1:
                with pytest.raises(DeviceError):
                    given[0].device.page.call("Page.crash")
            return super().act(history)

    crashed, given = [], []

    def noted():
        for trial in trials(3, 2, ("focus-text",)):
            given.append(trial)
            yield trial

    results = run_live(Crashes(Point(0.01, 0.01)), noted(), 5, 2, console=QUIET)
    assert [(result.status, result.reached) for result in results] == [
        ("device error", False),
        ("complete", False),
    ]
    assert "the page has crashed" in results[0].message


def test_demonstrations_become_data(tmp_path):
    shown, data = tmp_path / "shown", tmp_path / "data"
    only = ["--task", "enter-text", "--task", "click-test"]
    done = CliRunner().invoke(APP, [str(shown), "--episodes", "3", "--test", "1", *only])
    assert done.exit_code == 0, done.output
    assert "4 episodes (3 train, 1 test)" in done.output
    split = json.loads((shown / "split.json").read_text())
    assert {name: len(ids) for name, ids in split.items()} == {"train": 3, "test": 1}
    arguments = [
        "--format",
        "trace",
        "--split",
        str(shown / "split.json"),
        "--codec",
        "png",
        "--workers",
        "1",
    ]
    done = CliRunner().invoke(prepare, [str(shown), str(data), *arguments])
    assert done.exit_code == 0, done.output
    episodes = {name: list(Prepared.open(data).episodes(name)) for name in ("train", "test")}
    assert {name: len(found) for name, found in episodes.items()} == {"train": 3, "test": 1}
    kinds = sorted([type(step.action).__name__ for step in episode.steps] for episode in episodes["train"])
    assert kinds == [["Tap", "Finish"], ["Tap", "Type", "Tap", "Finish"], ["Tap", "Type", "Tap", "Finish"]]
    typed = [episode for episode in episodes["train"] if len(episode.steps) == 4]
    assert all(f'Enter "{episode.steps[1].action.text}" into' in episode.goal for episode in typed)


def test_mistakes_are_said(tmp_path, monkeypatch):
    for arguments, said in (
        (["--task", "fly"], "there is no task 'fly': take some of click-test,"),
        (["--episodes", "0"], "--episodes is 0: it must lie between 1 and 100000"),
    ):
        done = CliRunner().invoke(APP, [str(tmp_path / "out"), *arguments])
        assert (done.exit_code, said in done.output) == (2, True), done.output
        assert not (tmp_path / "out").exists()
    monkeypatch.setattr(miniwob, "find_spec", lambda name: None)
    with (
        pytest.raises(
            DeviceError, match=r"no MiniWoB\+\+ here: install its pages with `pip install --no-deps miniwob"
        ),
        room(),
    ):
        pass
