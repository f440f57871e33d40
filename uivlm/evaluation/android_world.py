"""Our agents inside AndroidWorld: its environment and an Agent in, its EnvironmentInteractingAgent out.

    env = env_launcher.load_and_setup_env(...)
    agent = android_world_agent(env, our_agent)
    episode_runner.run_episode(task.goal, agent, max_n_steps=10)

AndroidWorld is not on PyPI, so it is imported only here, and only when an agent is made.
"""

import time
from importlib import import_module
from typing import Any

import numpy as np

from uivlm.actions.action import Action, Finish, InvalidAction, Press, Status, Swipe, Tap, Type
from uivlm.actions.decision import Decision
from uivlm.actions.gesture import Touch, to_gesture, to_pixel
from uivlm.actions.schema import action_to_json
from uivlm.agents.agent import Agent, AgentError
from uivlm.episodes.episode import History, Screen, Step

GOAL_STATUS: dict[Status, str] = {"complete": "complete", "impossible": "infeasible"}


def android_world_agent(
    env: Any, agent: Agent, name: str = "uivlm", transition_pause: float | None = 1.0
) -> Any:
    """An agent for AndroidWorld's `run_episode` on its environment `env`.

    `transition_pause`: seconds before each screenshot; None waits until the display is still. Its `step` is
    `done` when our agent finishes. After output that is not an action, it does nothing more and is never
    done, so AndroidWorld scores 0 whatever the phone shows. Raises ModuleNotFoundError if AndroidWorld is not
    installed. AgentError passes through if the agent cannot decide.
    """
    base_agent = _import_android_world("android_world.agents.base_agent")

    class AndroidWorldAgent(base_agent.EnvironmentInteractingAgent):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__(env, name, transition_pause)
            self._agent = agent
            self._steps: tuple[Step, ...] = ()
            self._invalid_data: dict[str, Any] | None = None  # of the step whose output was not an action

        def reset(self, go_home: bool = False) -> None:
            super().reset(go_home)
            self._agent.reset()
            self._steps, self._invalid_data = (), None

        def step(self, goal: str) -> Any:
            if self._invalid_data is not None:
                return base_agent.AgentInteractionResult(False, dict(self._invalid_data))
            screen = Screen(np.asarray(self.get_post_transition_state().pixels, np.uint8))
            width, height = self.env.logical_screen_size
            _check_orientation(screen, width, height)
            start = time.perf_counter()
            decision = self._agent.act(History(goal, self._steps, screen))
            data = _step_data(screen, decision, time.perf_counter() - start, (height, width))
            if isinstance(decision.action, InvalidAction):
                self._invalid_data = data
                return base_agent.AgentInteractionResult(False, data)
            perform(decision.action, height, width, self.env)
            self._steps += (Step(screen, decision.action),)
            return base_agent.AgentInteractionResult(isinstance(decision.action, Finish), data)

    return AndroidWorldAgent()


def perform(action: Action, height: int, width: int, env: Any) -> None:
    """Perform the action on AndroidWorld's phone, whose logical screen has `height` x `width` pixels.

    Raises RuntimeError if adb fails.
    """
    adb_utils = _import_android_world("android_world.env.adb_utils")
    match action:
        case Type(text) if text:  # AndroidWorld's own `input_text` also presses enter
            adb_utils.type_text(text, env.controller)
        case Swipe():  # its own `swipe` supports four directions through the center only
            touch = to_gesture(action, height, width)
            assert isinstance(touch, Touch)
            command = adb_utils.generate_swipe_command(*touch.points[0], *touch.points[1], touch.duration_ms)
            response = adb_utils.issue_generic_request(command, env.controller)
            adb_utils.check_ok(response, f"AndroidWorld's adb did not perform {' '.join(command)}")
        case Tap() | Press():
            fields = json_action(action, height, width)
            assert fields is not None
            env.execute_action(_import_android_world("android_world.env.json_action").JSONAction(**fields))


def json_action(action: Action | InvalidAction, height: int, width: int) -> dict[str, Any] | None:
    """The fields of AndroidWorld's JSONAction; None for a swipe and an invalid action: it has neither."""
    match action:
        case Tap(at):
            x, y = to_pixel(at, height, width)
            return {"action_type": "click", "x": x, "y": y}
        case Type(text):
            return {"action_type": "input_text", "text": text}
        case Press("enter"):
            return {"action_type": "keyboard_enter"}
        case Press(key):
            return {"action_type": f"navigate_{key}"}
        case Finish(status):
            return {"action_type": "status", "goal_status": GOAL_STATUS[status]}
    return None


def _step_data(screen: Screen, decision: Decision, seconds: float, size: tuple[int, int]) -> dict[str, Any]:
    """What AndroidWorld records of a step: always the same keys."""
    action = decision.action
    return {
        "screenshot": screen.pixels,
        "text": decision.text,
        "action": action_to_json(action),
        "json_action": json_action(action, *size),
        "confidence": decision.confidence,
        "agent_seconds": seconds,
        "invalid_reason": action.reason if isinstance(action, InvalidAction) else "",
    }


def _check_orientation(screen: Screen, width: int, height: int) -> None:
    """Refuse a rotated phone: AndroidWorld's screenshots stay upright, but its touches do not."""
    image_height, image_width = screen.pixels.shape[:2]
    if (image_width < image_height) != (width < height):
        raise AgentError(
            f"AndroidWorld's screenshot has {image_width} x {image_height} pixels, but the phone is rotated "
            f"to {width} x {height}: rotate it back and lock its rotation"
        )


def _import_android_world(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "android_world":
            raise
        raise ModuleNotFoundError(
            "android_world is not installed: it is not on PyPI; install it from its own repository "
            "(google-research/android_world) into this environment",
            name=error.name,
        ) from None
