"""One episode: an agent, a device and a goal in; an outcome out.

Each step takes a screen, asks the agent for a decision and performs its gesture. The episode ends when the
agent finishes, answers without an action, or reaches the maximum number of steps. The loop owns the history;
agents and devices keep none.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from uivlm.actions.action import Finish, InvalidAction
from uivlm.actions.decision import Decision
from uivlm.actions.gesture import Gesture, to_gesture
from uivlm.agents.agent import Agent, AgentError
from uivlm.devices.device import Device, DeviceError
from uivlm.episodes.episode import History, Screen, Step

StopStatus = Literal["stopped", "denied", "stuck", "timeout", "needs_human"]
RunStatus = (
    Literal[
        "complete", "impossible", "max_steps", "invalid_action", "device_error", "agent_error", "interrupted"
    ]
    | StopStatus
)
EndStatus = RunStatus | Literal["crashed"]  # "crashed": a defect of ours, which run_episode raises again

EXIT_STATUS: dict[RunStatus, int] = {  # 2 is reserved for bad input
    "complete": 0,
    "impossible": 3,
    "max_steps": 4,
    "invalid_action": 5,
    "device_error": 6,
    "agent_error": 7,
    "stopped": 8,  # by a person or a file
    "denied": 9,  # by the policy, or not confirmed
    "stuck": 10,  # the same gesture on the same screen too often
    "timeout": 11,
    "needs_human": 12,
    "interrupted": 130,
}


class RunStopped(Exception):  # noqa: N818 - it ends a run, but is not an error
    """The run ends here, before any further gesture. The message gives the reason."""

    def __init__(self, status: StopStatus, message: str) -> None:
        super().__init__(message)
        self.status: StopStatus = status


class HumanTookOver(Exception):  # noqa: N818 - not an error either
    """A person performed these steps instead of the proposed gesture.

    Without steps, the screen has changed.
    """

    def __init__(self, steps: tuple[Step, ...] = ()) -> None:
        super().__init__(f"a person performed {_count_steps(len(steps))}")
        self.steps = steps


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. `steps` are the executed actions; a final Finish is one of them."""

    status: RunStatus
    steps: tuple[Step, ...]
    message: str

    @property
    def exit_status(self) -> int:
        return EXIT_STATUS[self.status]


class RunObserver(Protocol):
    """Receives every event of a run as it happens. Durations are in milliseconds."""

    def on_screen(self, t: int, screen: Screen, duration_ms: float) -> None: ...

    def on_decision(self, t: int, decision: Decision, duration_ms: float) -> None: ...

    def on_action(self, t: int, gesture: Gesture | None, duration_ms: float, by_human: bool = False) -> None:
        """`by_human`: a person performed it instead of the proposed gesture."""

    def on_end(self, status: EndStatus, message: str) -> None: ...


@runtime_checkable
class SupervisedDevice(Protocol):
    """A device that judges a gesture by the decision behind it, and knows what must not be shown: the safety
    guard.
    """

    def perform_decision(self, gesture: Gesture, decision: Decision) -> None:
        """Perform the gesture. Raises RunStopped, HumanTookOver, DeviceError."""

    def check_after_gesture(self) -> None:
        """Called when the performed gesture is recorded. Raises RunStopped, DeviceError."""

    def mask(self, text: str) -> str:
        """The text without secrets."""


def run_episode(
    agent: Agent, device: Device, goal: str, max_steps: int, observers: Sequence[RunObserver] = ()
) -> Outcome:
    """Run until the agent finishes, for at most `max_steps` actions.

    Every ending is reported to the observers. The message is without secrets.
    """
    if max_steps < 1:
        raise ValueError(f"max_steps: got {max_steps}; expected at least 1")
    steps: list[Step] = []
    try:
        status, message = _run(agent, device, goal, max_steps, observers, steps)
    except RunStopped as stop:
        status, message = stop.status, f"{stop} (after {_count_steps(len(steps))})"
    except DeviceError as error:
        status, message = "device_error", str(error)
    except AgentError as error:
        status, message = "agent_error", str(error)
    except KeyboardInterrupt:
        status, message = "interrupted", f"interrupted after {_count_steps(len(steps))}"
    except BaseException as error:
        crash = _mask(device, f"{type(error).__name__}: {error}")
        for observer in observers:
            observer.on_end("crashed", crash)
        raise
    message = _mask(device, message)
    for observer in observers:
        observer.on_end(status, message)
    return Outcome(status, tuple(steps), message)


def _run(
    agent: Agent,
    device: Device,
    goal: str,
    max_steps: int,
    observers: Sequence[RunObserver],
    steps: list[Step],
) -> tuple[RunStatus, str]:
    agent.reset()
    for _ in range(max_steps):
        try:
            end = _step(agent, device, goal, observers, steps)
        except HumanTookOver as takeover:
            for step in takeover.steps:
                _record_human_step(step, observers, steps)
        else:
            if end is not None:
                return end
    return "max_steps", f"not finished after {_count_steps(max_steps)}, the maximum"


def _step(
    agent: Agent, device: Device, goal: str, observers: Sequence[RunObserver], steps: list[Step]
) -> tuple[RunStatus, str] | None:
    """One screen, decision and gesture. Returns how the run ends, if it ends here."""
    t = len(steps)
    start = time.perf_counter()
    screen = device.screen()
    screenshot_ms = _elapsed_ms(start)
    for observer in observers:
        observer.on_screen(t, screen, screenshot_ms)

    start = time.perf_counter()
    decision = agent.act(History(goal, tuple(steps), screen))
    inference_ms = _elapsed_ms(start)
    for observer in observers:
        observer.on_decision(t, decision, inference_ms)
    action = decision.action
    if isinstance(action, InvalidAction):
        text = _mask(device, decision.text)[:200]  # masked before it is cut: a part would not be recognized
        return "invalid_action", f"step {t + 1}: {text!r} is not an action: {action.reason}"

    gesture = to_gesture(action, *screen.pixels.shape[:2])
    start = time.perf_counter()
    if gesture is not None and isinstance(device, SupervisedDevice):
        device.perform_decision(gesture, decision)
    elif gesture is not None:
        device.perform(gesture)
    execute_ms = 0.0 if gesture is None else _elapsed_ms(start)
    steps.append(Step(screen, action))
    for observer in observers:
        observer.on_action(t, gesture, execute_ms)
    if gesture is not None and isinstance(device, SupervisedDevice):
        device.check_after_gesture()
    if isinstance(action, Finish):
        return action.status, f"{action.status} after {_count_steps(len(steps))}"
    return None


def _record_human_step(step: Step, observers: Sequence[RunObserver], steps: list[Step]) -> None:
    """A person's step belongs to the history like the agent's own."""
    t, decision = len(steps), Decision(step.action, "")
    gesture = to_gesture(step.action, *step.screen.pixels.shape[:2])
    for observer in observers:
        observer.on_screen(t, step.screen, 0.0)
        observer.on_decision(t, decision, 0.0)
        observer.on_action(t, gesture, 0.0, by_human=True)
    steps.append(step)


def _mask(device: Device, text: str) -> str:
    return device.mask(text) if isinstance(device, SupervisedDevice) else text


def _count_steps(num_steps: int) -> str:
    return f"{num_steps} step" if num_steps == 1 else f"{num_steps} steps"


def _elapsed_ms(start: float) -> float:
    return (time.perf_counter() - start) * 1000
