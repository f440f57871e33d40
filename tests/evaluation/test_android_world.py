"""Our agents inside AndroidWorld, or inside a fake of it, on the simulated phone through the real adb."""

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.helpers import fake_android_world
from tests.helpers.scripted_agents import ScriptedAgent

pytest.importorskip("adbutils", reason="adb comes in adbutils' wheel")

from uivlm.actions.action import Action, Finish, InvalidAction, Point, Press, Swipe, Tap, Type
from uivlm.agents.agent import AgentError
from uivlm.cli.devices import simulated_device
from uivlm.devices.adb.server import Adb
from uivlm.devices.sim.expert import record_demonstration
from uivlm.devices.sim.phone import SimPhone
from uivlm.devices.sim.tasks import is_successful, make_task, new_phone
from uivlm.evaluation.android_world import android_world_agent, json_action

REAL = find_spec("android_world") is not None and find_spec("android_env") is not None
ABSENT = "AndroidWorld is not installed: it is not on PyPI"
TAP, SWIPE = Tap(Point(0.5, 0.25)), Swipe(Point(0.9, 0.5), Point(0.1, 0.5))
GARBLED = InvalidAction("tap somewhere", "no coordinates")
KEYS = {"screenshot", "text", "action", "json_action", "confidence", "agent_seconds", "invalid_reason"}


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.skipif(not REAL, reason=ABSENT))])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "fake":
        for name, module in fake_android_world.modules().items():
            monkeypatch.setitem(sys.modules, name, module)
    return str(request.param)


class FakeController:
    """adb, and a list of its commands. A command that contains `refused` fails."""

    def __init__(self, adb: Adb, serial: str) -> None:
        self._adb, self._serial = adb, serial
        self.commands: list[list[str]] = []
        self.refused = ""

    def adb(self, args: list[str]) -> SimpleNamespace:
        self.commands.append(args)
        if self.refused and self.refused in args:
            return SimpleNamespace(ok=False)
        done = self._adb.run("-s", self._serial, *args)
        return SimpleNamespace(ok=done.returncode == 0)


class RealController:
    """AndroidEnv's own adb client, and a list of its commands."""

    def __init__(self, adb: Adb, serial: str) -> None:
        from android_env.components import adb_call_parser, adb_controller, config_classes

        (_, _, _, port) = adb.options
        config = config_classes.AdbControllerConfig(
            adb_path=adb.executable, adb_server_port=int(port), device_name=serial
        )
        outer = self

        class RecordingController(adb_controller.AdbController):
            def execute_command(self, args: list[str], *rest: Any, **named: Any) -> bytes:
                outer.commands.append(args)
                if outer.refused and outer.refused in args:
                    raise subprocess.CalledProcessError(1, args, b"refused")
                return bytes(super().execute_command(args, *rest, **named))

        self.commands: list[list[str]] = []
        self.refused = ""
        self._parser = adb_call_parser.AdbCallParser(RecordingController(config))

    def execute_adb_call(self, request: Any) -> Any:
        return self._parser.parse(request)


class Env:
    """AndroidWorld's environment, as far as an agent uses it."""

    def __init__(self, device: Any, controller: Any) -> None:
        self.device, self.controller = device, controller
        self.resets: list[bool] = []
        self.waited: list[bool] = []
        self.rotated = False

    def reset(self, go_home: bool = False) -> None:
        self.resets.append(go_home)

    def get_state(self, wait_to_stabilize: bool = False) -> SimpleNamespace:
        self.waited.append(wait_to_stabilize)
        return SimpleNamespace(pixels=self.device.screen().pixels, forest=None, ui_elements=[])

    @property
    def logical_screen_size(self) -> tuple[int, int]:
        height, width = self.device.screen().pixels.shape[:2]
        return (height, width) if self.rotated else (width, height)

    def execute_action(self, action: Any) -> None:
        actuation = import_module("android_world.env.actuation")
        actuation.execute_adb_action(action, [], self.logical_screen_size, self.controller)


@contextmanager
def env_on(phone: SimPhone, adb: Adb, world: str) -> Iterator[Env]:
    with simulated_device(phone, adb) as device:
        controller = RealController if world == "real" else FakeController
        yield Env(device, controller(adb, device.serial))


@pytest.fixture
def env(adb: Adb, world: str) -> Iterator[Env]:
    with env_on(SimPhone(), adb, world) as made:
        yield made


def agent_in(env: Env, *script: Any) -> tuple[Any, ScriptedAgent]:
    """AndroidWorld's agent, and ours inside it."""
    inner = ScriptedAgent(*script)
    agent = android_world_agent(env, inner, transition_pause=0)
    agent.reset()
    return agent, inner


def run_episode(*args: Any, **options: Any) -> Any:
    return import_module("android_world.episode_runner").run_episode(*args, **options)


# -- through AndroidWorld's loop -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [2, 3, 7, 12, 18])
def test_the_expert_reaches_its_goals_in_it(seed: int, adb: Adb, world: str) -> None:
    """The phone itself checks the goals."""
    task = make_task(seed, "test")
    episode = record_demonstration(task)
    phone = new_phone(task)
    with env_on(phone, adb, world) as env:
        inner = ScriptedAgent(*(step.action for step in episode.steps))
        result = run_episode(task.goal, android_world_agent(env, inner, transition_pause=0), max_n_steps=30)
    assert result.done is True
    assert is_successful(task, phone)
    assert env.resets == [False]
    assert set(result.step_data) == KEYS | {"step_number"}
    assert result.step_data["step_number"] == list(range(len(episode.steps)))
    status = {"complete": "complete", "impossible": "infeasible"}[task.expected_status]
    assert result.step_data["json_action"][-1] == {"action_type": "status", "goal_status": status}
    for history, screenshot in zip(inner.histories, result.step_data["screenshot"], strict=True):
        assert history.goal == task.goal
        assert np.array_equal(history.screen.pixels, screenshot)


def test_the_tasks_above_need_every_action() -> None:
    steps = [
        step for seed in (2, 3, 7, 12, 18) for step in record_demonstration(make_task(seed, "test")).steps
    ]
    assert {type(step.action) for step in steps} == {Tap, Swipe, Type, Press, Finish}


def test_invalid_output_never_succeeds(env: Env) -> None:
    """AndroidWorld scores 0 if an agent is never done, and keeps stepping: nothing more is done."""
    inner = ScriptedAgent(TAP, GARBLED)
    result = run_episode("goal", android_world_agent(env, inner, transition_pause=0), max_n_steps=5)
    assert result.done is False
    assert len(inner.histories) == 2
    assert len(env.controller.commands) == 1
    assert result.step_data["invalid_reason"] == ["", *["no coordinates"] * 4]
    assert result.step_data["action"][1] == {
        "type": "invalid",
        "text": "tap somewhere",
        "reason": "no coordinates",
    }


def test_reaching_max_steps_is_not_success(env: Env) -> None:
    result = run_episode("goal", agent_in(env, *[Press("home")] * 3)[0], max_n_steps=3)
    assert result.done is False
    assert len(env.controller.commands) == 3


# -- step by step --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "commands"),
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
def test_adb_commands(action: Action, commands: list[list[str]], env: Env) -> None:
    assert env.logical_screen_size == (300, 600)
    agent, _ = agent_in(env, action)
    result = agent.step("goal")
    assert env.controller.commands == commands
    assert result.done is isinstance(action, Finish)
    assert set(result.data) == KEYS


def test_typed_text_is_not_submitted(env: Env) -> None:
    """AndroidWorld's own `input_text` would press enter after it."""
    agent, _ = agent_in(env, Type("two words"))
    agent.step("goal")
    assert [command[:3] for command in env.controller.commands] == [["shell", "input", "text"]] * 3
    assert "".join(command[3] for command in env.controller.commands) == "two%swords"


def test_a_failed_swipe_raises(env: Env) -> None:
    agent, inner = agent_in(env, SWIPE, SWIPE)
    env.controller.refused = "swipe"
    with pytest.raises(RuntimeError, match="adb did not perform shell input swipe 150 540 150 60 500"):
        agent.step("goal")
    env.controller.refused = ""
    agent.step("goal")
    assert inner.histories[1].steps == ()  # a failed step is not in the history


def test_the_history_is_kept_until_reset(env: Env) -> None:
    agent, inner = agent_in(env, TAP, Press("home"), TAP, GARBLED, TAP)
    for _ in range(3):
        assert agent.step("first").done is False
    assert [len(history.steps) for history in inner.histories] == [0, 1, 2]
    assert [step.action for step in inner.histories[2].steps] == [TAP, Press("home")]
    assert inner.histories[2].steps[1].screen is inner.histories[1].screen
    assert agent.step("first").data["invalid_reason"]
    assert agent.step("first").data["invalid_reason"]
    agent.reset(True)
    assert env.resets == [False, True]
    assert inner.num_resets == 2
    assert agent.step("second").data["invalid_reason"] == ""
    assert (inner.histories[-1].goal, inner.histories[-1].steps) == ("second", ())


def test_an_agent_error_passes_through(env: Env) -> None:
    agent, _ = agent_in(env, AgentError("nobody answers"))
    with pytest.raises(AgentError, match="nobody answers"):
        agent.step("goal")
    assert env.controller.commands == []


def test_a_rotated_phone_is_not_touched(env: Env) -> None:
    agent, inner = agent_in(env, TAP)
    env.rotated = True
    with pytest.raises(
        AgentError, match="300 x 600 pixels, but the phone is rotated to 600 x 300: rotate it back"
    ):
        agent.step("goal")
    assert inner.histories == env.controller.commands == []


def test_android_world_makes_the_pause(env: Env) -> None:
    agent = android_world_agent(env, ScriptedAgent(Press("home"), Press("home")), "me", None)
    assert agent.name == "me"
    agent.step("goal")
    agent.transition_pause = 0
    agent.step("goal")
    assert env.waited[0] is True
    assert env.waited[-1] is False
    with pytest.raises(ValueError, match="non-negative"):
        android_world_agent(env, ScriptedAgent(), transition_pause=-1)


def test_android_world_accepts_every_json_action(world: str) -> None:
    json_action_class = import_module("android_world.env.json_action").JSONAction
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
        assert json_action_class(**fields).action_type == fields["action_type"]
        if isinstance(action, Tap):
            assert 0 <= fields["x"] - 300 * action.at.x + 1 <= 1
            assert 0 <= fields["y"] - 600 * action.at.y + 1 <= 1
    assert json_action(SWIPE, 600, 300) is None
    assert json_action(GARBLED, 600, 300) is None
