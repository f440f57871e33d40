"""Our agent inside AndroidWorld: its own loop, or a stand-in's where it is not installed, on the simulated phone behind the
real adb."""

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import android_world_stand_in as stand_in
import numpy as np
import pytest

pytest.importorskip("adbutils", reason="adb comes in adbutils' wheel")

from uivlm.actions.action import Action, Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.language import NotAnAction
from uivlm.agents.agent import AgentError, Decision
from uivlm.android_world import android_world_agent, json_action
from uivlm.devices.adb_server import Adb
from uivlm.devices.sim.expert import record
from uivlm.devices.sim.phone import Phone
from uivlm.devices.sim.tasks import new_phone, succeeded, task
from uivlm.wiring import simulated

REAL = find_spec("android_world") is not None and find_spec("android_env") is not None
ABSENT = "AndroidWorld is not installed: it is no package of an index"
TAP, SWIPE = Tap(Point(0.5, 0.25)), Swipe(Point(0.9, 0.5), Point(0.1, 0.5))
GARBLED = NotAnAction("tap somewhere", "no coordinates")
KEYS = {"screenshot", "words", "action", "json_action", "confidence", "agent_seconds", "failure"}


@pytest.fixture(params=["stand-in", pytest.param("real", marks=pytest.mark.skipif(not REAL, reason=ABSENT))])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "stand-in":
        for name, module in stand_in.modules().items():
            monkeypatch.setitem(sys.modules, name, module)
    return str(request.param)


class StandInController:
    """adb, and a list of what it was told. What `refused` names fails."""

    def __init__(self, adb: Adb, serial: str) -> None:
        self._adb, self._serial = adb, serial
        self.told: list[list[str]] = []
        self.refused = ""

    def adb(self, args: list[str]) -> SimpleNamespace:
        self.told.append(args)
        if self.refused and self.refused in args:
            return SimpleNamespace(ok=False)
        done = self._adb.run("-s", self._serial, *args)
        return SimpleNamespace(ok=done.returncode == 0)


class RealController:
    """AndroidEnv's own way to adb, and a list of what it was told."""

    def __init__(self, adb: Adb, serial: str) -> None:
        from android_env.components import adb_call_parser, adb_controller, config_classes

        (_, _, _, port) = adb.options
        config = config_classes.AdbControllerConfig(
            adb_path=adb.program, adb_server_port=int(port), device_name=serial
        )
        outer = self

        class Listening(adb_controller.AdbController):
            def execute_command(self, args: list[str], *rest: Any, **named: Any) -> bytes:
                outer.told.append(args)
                if outer.refused and outer.refused in args:
                    raise subprocess.CalledProcessError(1, args, b"refused")
                return bytes(super().execute_command(args, *rest, **named))

        self.told: list[list[str]] = []
        self.refused = ""
        self._parser = adb_call_parser.AdbCallParser(Listening(config))

    def execute_adb_call(self, request: Any) -> Any:
        return self._parser.parse(request)


class Env:
    """AndroidWorld's environment as far as an agent meets it."""

    def __init__(self, device: Any, controller: Any) -> None:
        self.device, self.controller = device, controller
        self.resets: list[bool] = []
        self.waited: list[bool] = []
        self.turned = False

    def reset(self, go_home: bool = False) -> None:
        self.resets.append(go_home)

    def get_state(self, wait_to_stabilize: bool = False) -> SimpleNamespace:
        self.waited.append(wait_to_stabilize)
        return SimpleNamespace(pixels=self.device.screen().pixels, forest=None, ui_elements=[])

    @property
    def logical_screen_size(self) -> tuple[int, int]:
        height, width = self.device.screen().pixels.shape[:2]
        return (height, width) if self.turned else (width, height)

    def execute_action(self, action: Any) -> None:
        actuation = import_module("android_world.env.actuation")
        actuation.execute_adb_action(action, [], self.logical_screen_size, self.controller)


@contextmanager
def env_on(phone: Phone, adb: Adb, world: str) -> Iterator[Env]:
    with simulated(phone, adb) as device:
        controller = RealController if world == "real" else StandInController
        yield Env(device, controller(adb, device.serial))


@pytest.fixture
def env(adb: Adb, world: str) -> Iterator[Env]:
    with env_on(Phone(), adb, world) as made:
        yield made


class Scripted:
    """Says the listed actions in order; an exception in the list is raised."""

    def __init__(self, *said: object) -> None:
        self.said = iter(said)
        self.histories: list[Any] = []
        self.num_resets = 0

    def reset(self) -> None:
        self.num_resets += 1

    def act(self, history: Any) -> Decision:
        self.histories.append(history)
        now = next(self.said)
        if isinstance(now, BaseException):
            raise now
        return Decision(now, f"words {len(self.histories)}", 0.5)


def agent_in(env: Env, *said: object) -> tuple[Any, Scripted]:
    mind = Scripted(*said)
    agent = android_world_agent(env, mind, transition_pause=0)
    agent.reset()
    return agent, mind


def run_episode(*words: Any, **named: Any) -> Any:
    return import_module("android_world.episode_runner").run_episode(*words, **named)


# -- through AndroidWorld's loop -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [2, 3, 7, 12, 18])
def test_the_expert_reaches_its_goals_in_it(seed: int, adb: Adb, world: str) -> None:
    """The phone itself says whether they are reached."""
    one = task(seed, "test")
    episode = record(one)
    phone = new_phone(one)
    with env_on(phone, adb, world) as env:
        mind = Scripted(*(step.action for step in episode.steps))
        result = run_episode(one.goal, android_world_agent(env, mind, transition_pause=0), max_n_steps=30)
    assert result.done is True
    assert succeeded(one, phone)
    assert env.resets == [False]
    assert set(result.step_data) == KEYS | {"step_number"}
    assert result.step_data["step_number"] == list(range(len(episode.steps)))
    status = {"complete": "complete", "impossible": "infeasible"}[one.status]
    assert result.step_data["json_action"][-1] == {"action_type": "status", "goal_status": status}
    for history, seen in zip(mind.histories, result.step_data["screenshot"], strict=True):
        assert history.goal == one.goal
        assert np.array_equal(history.screen.pixels, seen)


def test_the_tasks_above_need_every_action() -> None:
    steps = [step for seed in (2, 3, 7, 12, 18) for step in record(task(seed, "test")).steps]
    assert {type(step.action) for step in steps} == {Tap, Swipe, Type, Press, Finish}


def test_words_that_are_no_action_never_succeed(env: Env) -> None:
    """AndroidWorld scores 0 where an agent is never done, and asks on: nothing is done any more, nobody is asked."""
    mind = Scripted(TAP, GARBLED)
    result = run_episode("goal", android_world_agent(env, mind, transition_pause=0), max_n_steps=5)
    assert result.done is False
    assert len(mind.histories) == 2
    assert len(env.controller.told) == 1
    assert result.step_data["failure"] == ["", *["no coordinates"] * 4]
    assert result.step_data["action"][1] == {
        "kind": "NotAnAction",
        "words": "tap somewhere",
        "reason": "no coordinates",
    }


def test_the_limit_is_no_success(env: Env) -> None:
    result = run_episode("goal", agent_in(env, *[Press("home")] * 3)[0], max_n_steps=3)
    assert result.done is False
    assert len(env.controller.told) == 3


# -- step by step --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "told"),
    [
        (TAP, [["shell", "input", "tap", "75", "300"]]),
        (Tap(Point(1.0, 1.0)), [["shell", "input", "tap", "299", "599"]]),
        (SWIPE, [["shell", "input", "swipe", "150", "540", "150", "60", "500"]]),
        (Press("back"), [["shell", "input", "keyevent", "KEYCODE_BACK"]]),
        (Press("home"), [["shell", "input", "keyevent", "KEYCODE_HOME"]]),
        (Press("enter"), [["shell", "input", "keyevent", "KEYCODE_ENTER"]]),
        (Finish("complete"), []),
        (Finish("impossible"), []),
        (Type(""), []),
    ],
)
def test_what_adb_is_told(action: Action, told: list[list[str]], env: Env) -> None:
    assert env.logical_screen_size == (300, 600)
    agent, _ = agent_in(env, action)
    result = agent.step("goal")
    assert env.controller.told == told
    assert result.done is isinstance(action, Finish)
    assert set(result.data) == KEYS


def test_typed_text_is_not_sent_off(env: Env) -> None:
    """AndroidWorld's own `input_text` would press enter after it."""
    agent, _ = agent_in(env, Type("two words"))
    agent.step("goal")
    assert [words[:3] for words in env.controller.told] == [["shell", "input", "text"]] * 3
    assert "".join(words[3] for words in env.controller.told) == "two%swords"


def test_a_swipe_that_fails_is_told(env: Env) -> None:
    agent, mind = agent_in(env, SWIPE, SWIPE)
    env.controller.refused = "swipe"
    with pytest.raises(RuntimeError, match="adb did not perform shell input swipe 150 540 150 60 500"):
        agent.step("goal")
    env.controller.refused = ""
    agent.step("goal")
    assert mind.histories[1].steps == ()  # what was not done is no past


def test_the_history_is_kept_until_reset(env: Env) -> None:
    agent, mind = agent_in(env, TAP, Press("home"), TAP, GARBLED, TAP)
    for _ in range(3):
        assert agent.step("first").done is False
    assert [len(history.steps) for history in mind.histories] == [0, 1, 2]
    assert [step.action for step in mind.histories[2].steps] == [TAP, Press("home")]
    assert mind.histories[2].steps[1].screen is mind.histories[1].screen
    assert agent.step("first").data["failure"]
    assert agent.step("first").data["failure"]
    agent.reset(True)
    assert env.resets == [False, True]
    assert mind.num_resets == 2
    assert agent.step("second").data["failure"] == ""
    assert (mind.histories[-1].goal, mind.histories[-1].steps) == ("second", ())


def test_an_agent_that_cannot_decide_is_told(env: Env) -> None:
    agent, _ = agent_in(env, AgentError("nobody answers"))
    with pytest.raises(AgentError, match="nobody answers"):
        agent.step("goal")
    assert env.controller.told == []


def test_a_turned_phone_is_not_touched(env: Env) -> None:
    agent, mind = agent_in(env, TAP)
    env.turned = True
    with pytest.raises(
        AgentError, match="300 x 600 pixels while the phone is turned, 600 x 300: turn it back"
    ):
        agent.step("goal")
    assert mind.histories == env.controller.told == []


def test_the_pause_is_theirs(env: Env) -> None:
    agent = android_world_agent(env, Scripted(Press("home"), Press("home")), "me", None)
    assert agent.name == "me"
    agent.step("goal")
    agent.transition_pause = 0
    agent.step("goal")
    assert env.waited[0] is True
    assert env.waited[-1] is False
    with pytest.raises(ValueError, match="non-negative"):
        android_world_agent(env, Scripted(), transition_pause=-1)


def test_every_json_action_is_one_of_theirs(world: str) -> None:
    theirs = import_module("android_world.env.json_action").JSONAction
    rng = random.Random(2)
    taps = [Tap(Point(rng.random(), rng.random())) for _ in range(50)]
    for action in [
        *taps,
        Type("x"),
        *map(Press, ("back", "home", "enter")),
        *map(Finish, ("complete", "impossible")),
    ]:
        fields = json_action(action, 600, 300)
        assert fields is not None
        assert theirs(**fields).action_type == fields["action_type"]
        if isinstance(action, Tap):
            assert 0 <= fields["x"] - 300 * action.at.x + 1 <= 1
            assert 0 <= fields["y"] - 600 * action.at.y + 1 <= 1
    assert json_action(SWIPE, 600, 300) is None
    assert json_action(GARBLED, 600, 300) is None


# -- where it is not installed -------------------------------------------------------------------------------------


class Without:
    """An import system that lacks a package."""

    def __init__(self, missing: str) -> None:
        self.missing = missing

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] == self.missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_without_androidworld_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "android_world"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Without("android_world"), *sys.meta_path])
    with pytest.raises(
        ModuleNotFoundError, match="android_world is not installed here: .* its own repository"
    ) as told:
        android_world_agent(None, Scripted())
    assert "\n" not in str(told.value)


def test_what_androidworld_itself_lacks_keeps_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "android_world"]:
        monkeypatch.delitem(sys.modules, name)
    agents = tmp_path / "android_world" / "agents"
    agents.mkdir(parents=True)
    (agents.parent / "__init__.py").touch()
    (agents / "__init__.py").touch()
    (agents / "base_agent.py").write_text("import dm_env_that_is_missing\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        with pytest.raises(ModuleNotFoundError, match="No module named 'dm_env_that_is_missing'"):
            android_world_agent(None, Scripted())
    finally:
        sys.modules.pop("android_world.agents", None)
        sys.modules.pop("android_world", None)
