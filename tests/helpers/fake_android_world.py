"""A fake of AndroidWorld, which is not on PyPI: the part of its interface that an agent uses, by its
description.

Only the tests of `uivlm.evaluation.android_world` use it. If AndroidWorld is installed, they run on it too.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

ACTION_TYPES = [
    "click",
    "double_tap",
    "scroll",
    "swipe",
    "input_text",
    "navigate_home",
    "navigate_back",
    "keyboard_enter",
    "open_app",
    "status",
    "wait",
    "long_press",
    "answer",
    "unknown",
]
KEYCODES = {"home": "KEYCODE_HOME", "back": "KEYCODE_BACK", "enter": "KEYCODE_ENTER"}


@dataclass
class AgentInteractionResult:
    done: bool
    data: dict[str, Any]


class EnvironmentInteractingAgent:
    def __init__(self, env: Any, name: str = "", transition_pause: float | None = 1.0) -> None:
        if transition_pause is not None and transition_pause < 0:
            raise ValueError(f"transition_pause must be non-negative, got {transition_pause}")
        self.env, self.name, self.transition_pause = env, name, transition_pause

    def set_max_steps(self, max_steps: int) -> None:
        self._max_steps = max_steps

    def reset(self, go_home: bool = False) -> None:
        self.env.reset(go_home=go_home)

    def get_post_transition_state(self) -> Any:
        if self.transition_pause is None:
            return self.env.get_state(wait_to_stabilize=True)
        time.sleep(self.transition_pause)
        return self.env.get_state(wait_to_stabilize=False)


@dataclass
class JSONAction:
    action_type: str | None = None
    index: int | None = None
    x: int | None = None
    y: int | None = None
    text: str | None = None
    direction: str | None = None
    goal_status: str | None = None
    app_name: str | None = None
    keycode: str | None = None
    clear_text: bool | None = None

    def __post_init__(self) -> None:
        if self.action_type not in ACTION_TYPES:
            raise ValueError(f"Invalid action type: {self.action_type}")


def run_episode(
    goal: str,
    agent: Any,
    max_n_steps: int = 10,
    start_on_home_screen: bool = False,
    termination_fn: Callable[[Any], float] | None = None,
) -> Any:
    agent.reset(start_on_home_screen)
    agent.set_max_steps(max_n_steps)
    rows: list[dict[str, Any]] = []
    done = False
    for step_number in range(max_n_steps):
        result = agent.step(goal)
        assert "step_number" not in result.data
        rows.append({**result.data, "step_number": step_number})
        if termination_fn is not None and termination_fn(agent.env.controller):
            done = True
            break
        done = result.done
        if done:
            break
    keys = rows[0]
    assert all(row.keys() == keys.keys() for row in rows)
    return SimpleNamespace(done=done, step_data={key: [row[key] for row in rows] for key in keys})


def generate_swipe_command(
    start_x: int, start_y: int, end_x: int, end_y: int, duration_ms: int | None = None
) -> list[str]:
    arguments = (start_x, start_y, end_x, end_y, duration_ms or "")
    return ["shell", "input", "swipe", *map(str, arguments)]


def issue_generic_request(args: Sequence[str], env: Any, timeout_sec: float = 10) -> Any:
    return env.adb(list(args))


def check_ok(response: Any, message: str | None = None) -> None:
    if not response.ok:
        raise RuntimeError(message)


def type_text(text: str, env: Any, timeout_sec: float = 10) -> None:
    for piece in text.replace(" ", " %s ").split(" "):
        if piece:
            env.adb(["shell", "input", "text", piece])


def execute_adb_action(action: JSONAction, elements: list[Any], size: tuple[int, int], env: Any) -> None:
    match action.action_type:
        case "click":
            env.adb(["shell", "input", "tap", str(action.x), str(action.y)])
        case "keyboard_enter" | "navigate_home" | "navigate_back" as name:
            env.adb(["shell", "input", "keyevent", KEYCODES[name.rpartition("_")[2]]])
        case name:
            raise AssertionError(f"our adapter never uses {name}")


def modules() -> dict[str, ModuleType]:
    """Name -> module, for `sys.modules`."""
    this_module = sys.modules[__name__]
    exports = {
        "android_world": (),
        "android_world.episode_runner": ("run_episode",),
        "android_world.agents": (),
        "android_world.agents.base_agent": ("AgentInteractionResult", "EnvironmentInteractingAgent"),
        "android_world.env": (),
        "android_world.env.actuation": ("execute_adb_action",),
        "android_world.env.adb_utils": (
            "generate_swipe_command",
            "issue_generic_request",
            "check_ok",
            "type_text",
        ),
        "android_world.env.json_action": ("JSONAction",),
    }
    fakes = {name: ModuleType(name) for name in exports}
    for name, attributes in exports.items():
        for attribute in attributes:
            setattr(fakes[name], attribute, getattr(this_module, attribute))
    return fakes
