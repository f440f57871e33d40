"""An agent on a phone: a goal in, an outcome out.

Screen, decision, gesture, until the agent finishes, says no action, or the limit is reached. The loop owns the
history: agents and devices keep none.
"""

import time
from dataclasses import dataclass
from typing import Literal, Protocol

from uivlm.actions.action import Finish
from uivlm.actions.gesture import Gesture, gesture
from uivlm.actions.language import NotAnAction
from uivlm.agents.agent import Agent, AgentError, Decision
from uivlm.devices.device import Device, DeviceError
from uivlm.episode import History, Screen, Step
from uivlm.safety.halt import Halt, HaltEnding, TakenOver

Ending = (
    Literal["complete", "impossible", "limit", "not an action", "device error", "agent error", "interrupted"]
    | HaltEnding
)

EXIT_STATUS: dict[Ending, int] = {  # 2 is left to bad input
    "complete": 0,
    "impossible": 3,
    "limit": 4,
    "not an action": 5,
    "device error": 6,
    "agent error": 7,
    "stopped": 8,  # by a person or a file
    "denied": 9,  # by the policy, or not confirmed
    "stuck": 10,  # the same gesture on the same screen again and again
    "time": 11,
    "handed over": 12,  # a person has to go on
    "interrupted": 130,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. `steps` are the actions that were decided and done, the last Finish among them."""

    status: Ending
    steps: tuple[Step, ...]
    message: str

    @property
    def exit_status(self) -> int:
        return EXIT_STATUS[self.status]


class Witness(Protocol):
    """Who is told of everything as it happens. Times in milliseconds."""

    def saw(self, t: int, screen: Screen, ms: float) -> None: ...

    def decided(self, t: int, decision: Decision, ms: float) -> None: ...

    def performed(self, t: int, done: Gesture | None, ms: float, by_hand: bool = False) -> None:
        """`by_hand`: a person did it instead of what was decided before."""

    def ended(self, status: str, message: str) -> None: ...


class Unseen:
    """A witness that keeps nothing."""

    def saw(self, t: int, screen: Screen, ms: float) -> None:
        pass

    def decided(self, t: int, decision: Decision, ms: float) -> None:
        pass

    def performed(self, t: int, done: Gesture | None, ms: float, by_hand: bool = False) -> None:
        pass

    def ended(self, status: str, message: str) -> None:
        pass


def run_episode(agent: Agent, device: Device, goal: str, limit: int, trace: Witness | None = None) -> Outcome:
    """Run until the agent finishes, at most `limit` actions. The trace is whole however it ends."""
    if limit < 1:
        raise ValueError(f"a limit of {limit} steps: it must be at least 1")
    witness = trace or Unseen()
    steps: list[Step] = []
    try:
        status, message = _run(agent, device, goal, limit, witness, steps)
    except Halt as halt:
        status, message = halt.ending, f"{halt} (after {_counted(len(steps))})"
    except DeviceError as error:
        status, message = "device error", str(error)
    except AgentError as error:
        status, message = "agent error", str(error)
    except KeyboardInterrupt:
        status, message = "interrupted", f"interrupted after {_counted(len(steps))}"
    except BaseException as error:  # a defect of ours: the trace says so, then it goes on as it was
        witness.ended("crashed", f"{type(error).__name__}: {error}")
        raise
    witness.ended(status, message)
    return Outcome(status, tuple(steps), message)


def _run(
    agent: Agent, device: Device, goal: str, limit: int, witness: Witness, steps: list[Step]
) -> tuple[Ending, str]:
    agent.reset()
    for _ in range(limit):
        try:
            end = _step(agent, device, goal, witness, steps)
        except TakenOver as taken:
            _by_hand(taken.steps, witness, steps)
        else:
            if end is not None:
                return end
    return "limit", f"not finished after {_counted(limit)}, the limit"


def _step(
    agent: Agent, device: Device, goal: str, witness: Witness, steps: list[Step]
) -> tuple[Ending, str] | None:
    """Look, decide, do. How the run ends, if it ends here."""
    t = len(steps)
    began = time.perf_counter()
    screen = device.screen()
    witness.saw(t, screen, _ms(began))

    began = time.perf_counter()
    decision = agent.act(History(goal, tuple(steps), screen))
    action = decision.action
    witness.decided(t, decision, _ms(began))
    if isinstance(action, NotAnAction):
        return "not an action", f"step {t + 1}: {decision.words[:200]!r} is no action: {action.reason}"

    height, width = screen.pixels.shape[:2]
    done = gesture(action, height, width)
    began = time.perf_counter()
    if done is not None:
        device.perform(done)
    steps.append(Step(screen, action))
    witness.performed(t, done, _ms(began) if done is not None else 0.0)
    if isinstance(action, Finish):
        return action.status, f"{action.status} after {_counted(len(steps))}"
    return None


def _by_hand(done: tuple[Step, ...], witness: Witness, steps: list[Step]) -> None:
    """What a person did instead belongs to the history like everything else."""
    for step in done:
        t = len(steps)
        witness.saw(t, step.screen, 0.0)
        witness.decided(t, Decision(step.action, "by hand"), 0.0)
        witness.performed(t, gesture(step.action, *step.screen.pixels.shape[:2]), 0.0, by_hand=True)
        steps.append(step)


def _counted(steps: int) -> str:
    return f"{steps} step" if steps == 1 else f"{steps} steps"


def _ms(began: float) -> float:
    return (time.perf_counter() - began) * 1000
