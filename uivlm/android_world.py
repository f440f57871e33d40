"""Our agent inside AndroidWorld: its environment and an Agent in, one of its EnvironmentInteractingAgents out.

    env = env_launcher.load_and_setup_env(...)
    agent = android_world_agent(env, mind)
    episode_runner.run_episode(task.goal, agent, max_n_steps=10)

AndroidWorld is imported here and nowhere else, and only when an agent is made: it is no package of an index.
"""

import time
from importlib import import_module
from typing import Any

import numpy as np

from uivlm.actions.action import Action, Finish, Press, Status, Swipe, Tap, Type
from uivlm.actions.gesture import Touch, gesture, pixel
from uivlm.actions.language import NotAnAction
from uivlm.actions.told import told
from uivlm.agents.agent import Agent, AgentError, Decision
from uivlm.episode import History, Screen, Step

GOAL_STATUS: dict[Status, str] = {"complete": "complete", "impossible": "infeasible"}


def android_world_agent(
    env: Any, agent: Agent, name: str = "uivlm", transition_pause: float | None = 1.0
) -> Any:
    """An agent for AndroidWorld's `run_episode` on its environment `env`. `transition_pause`: seconds before each screenshot;
    None waits until the display is still. ModuleNotFoundError where AndroidWorld is not installed.

    Its `step` is `done` when our agent finishes. After words that are no action it does nothing more and is never done, so that
    AndroidWorld scores 0, whatever the phone shows. Where the agent cannot decide, AgentError goes through.
    """
    base_agent = _imported("android_world.agents.base_agent")

    class Inside(base_agent.EnvironmentInteractingAgent):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__(env, name, transition_pause)
            self._mind = agent
            self._steps: tuple[Step, ...] = ()
            self._over: dict[str, Any] | None = None  # the last step's data, once words were no action

        def reset(self, go_home: bool = False) -> None:
            super().reset(go_home)
            self._mind.reset()
            self._steps, self._over = (), None

        def step(self, goal: str) -> Any:
            if self._over is not None:
                return base_agent.AgentInteractionResult(False, dict(self._over))
            screen = Screen(np.asarray(self.get_post_transition_state().pixels, np.uint8))
            width, height = self.env.logical_screen_size
            _check_upright(screen, width, height)
            began = time.perf_counter()
            decision = self._mind.act(History(goal, self._steps, screen))
            data = _data(screen, decision, time.perf_counter() - began, (height, width))
            if isinstance(decision.action, NotAnAction):
                self._over = data
                return base_agent.AgentInteractionResult(False, data)
            perform(decision.action, height, width, self.env)
            self._steps += (Step(screen, decision.action),)
            return base_agent.AgentInteractionResult(isinstance(decision.action, Finish), data)

    return Inside()


def perform(action: Action, height: int, width: int, env: Any) -> None:
    """The action on AndroidWorld's phone, whose logical screen has `height` x `width` pixels. RuntimeError where adb fails."""
    adb_utils = _imported("android_world.env.adb_utils")
    match action:
        case Type(text) if text:  # AndroidWorld's own `input_text` presses enter, too
            adb_utils.type_text(text, env.controller)
        case Swipe():  # its own `swipe` knows four directions through the middle
            touch = gesture(action, height, width)
            assert isinstance(touch, Touch)
            command = adb_utils.generate_swipe_command(*touch.path[0], *touch.path[1], touch.ms)
            done = adb_utils.issue_generic_request(command, env.controller)
            adb_utils.check_ok(done, f"AndroidWorld's adb did not perform {' '.join(command)}")
        case Tap() | Press():
            fields = json_action(action, height, width)
            assert fields is not None
            env.execute_action(_imported("android_world.env.json_action").JSONAction(**fields))


def json_action(action: Action | NotAnAction, height: int, width: int) -> dict[str, Any] | None:
    """The fields of AndroidWorld's JSONAction; None for what it cannot say: a swipe from point to point, no action."""
    match action:
        case Tap(at):
            x, y = pixel(at, height, width)
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


def _data(screen: Screen, decision: Decision, seconds: float, size: tuple[int, int]) -> dict[str, Any]:
    """What AndroidWorld keeps of a step: the same keys each time."""
    action = decision.action
    return {
        "screenshot": screen.pixels,
        "words": decision.words,
        "action": told(action),
        "json_action": json_action(action, *size),
        "confidence": decision.confidence,
        "agent_seconds": seconds,
        "failure": action.reason if isinstance(action, NotAnAction) else "",
    }


def _check_upright(screen: Screen, width: int, height: int) -> None:
    """AndroidWorld's pictures stay upright when the phone is turned, its touches do not."""
    picture_height, picture_width = screen.pixels.shape[:2]
    if (picture_width < picture_height) != (width < height):
        raise AgentError(
            f"AndroidWorld's picture has {picture_width} x {picture_height} pixels while the phone is turned, "
            f"{width} x {height}: turn it back, and lock its rotation"
        )


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "android_world":
            raise
        raise ModuleNotFoundError(
            "android_world is not installed here: it is no package of an index, install it from its own repository "
            "(google-research/android_world) into this environment",
            name=error.name,
        ) from None
