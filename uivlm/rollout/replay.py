"""Replays a recorded run: a trace and a phone in; how it ended, and how far its screens differed, out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uivlm.actions.action import InvalidAction
from uivlm.actions.decision import Decision
from uivlm.agents.agent import AgentError
from uivlm.devices.device import STATUS_BAR_FRACTION, Device
from uivlm.episodes.episode import History
from uivlm.rollout.loop import Outcome, RunObserver, run_episode
from uivlm.rollout.trace_reader import RecordedRun
from uivlm.rollout.trace_schema import TraceStep

PIXEL_TOLERANCE = 8  # gray levels by which a pixel may differ, as between two capture methods


@dataclass(frozen=True, slots=True)
class ScreenDrift:
    """How a screen differs from the recorded one."""

    step: int  # 0-based
    fraction: float  # of the pixels below the status bar; 1 if the sizes differ
    recorded_size: tuple[int, int]  # pixels: height, width
    live_size: tuple[int, int]

    def __str__(self) -> str:
        screen = f"the screen at step {self.step + 1}"
        if self.recorded_size == self.live_size:
            return f"{screen} differs from the recorded one by {_format_percent(self.fraction)} %"
        (height, width), (live_height, live_width) = self.recorded_size, self.live_size
        change = "is turned" if self.recorded_size == self.live_size[::-1] else "has another size"
        return (
            f"{screen} {change}: it has {live_width} x {live_height} pixels, "
            f"the recorded one {width} x {height}"
        )


class ReplayAgent:
    """Returns the actions of a run in order. Raises ValueError if the run has none.

    `tolerance`: the fraction of a screen's pixels, 0 to 1, that may differ from the recorded screen. Beyond
    it an AgentError ends the run before the next gesture.
    """

    def __init__(self, run: RecordedRun, tolerance: float) -> None:
        if not 0 <= tolerance <= 1:
            raise ValueError(f"tolerance: got {tolerance:g}; expected a fraction of the pixels, 0 to 1")
        self.run = run
        self.steps = replayable_steps(run)
        if not self.steps:
            raise ValueError(f"no action was executed in the run in {run.folder}: there is nothing to replay")
        self.tolerance = tolerance
        self.drifts: list[ScreenDrift] = []

    def reset(self) -> None:
        self.drifts.clear()

    def act(self, history: History) -> Decision:
        t = len(history.steps)
        if t >= len(self.steps):
            raise AgentError(f"the recorded run has {len(self.steps)} steps, and all of them were replayed")
        step = self.steps[t]
        assert step.action is not None
        self.drifts.append(drift := measure_drift(t, self.run.pixels(step), history.screen.pixels))
        if drift.fraction > self.tolerance:
            raise AgentError(
                f"{drift}; the tolerance is {100 * self.tolerance:g} %: "
                "restore the phone's state at the start of the run, or raise the tolerance"
            )
        return Decision(step.action, step.text or "", step.confidence, step.action_type_confidence)


def _format_percent(fraction: float) -> str:
    """Small values do not become 0, whole ones have no exponent."""
    return f"{100 * fraction:.0f}" if fraction >= 0.1 else f"{100 * fraction:.2g}"


def replayable_steps(run: RecordedRun) -> tuple[TraceStep, ...]:
    """The steps that were executed, and an invalid action that ended the run; not what a policy denied."""
    return tuple(step for step in run.steps if step.executed or isinstance(step.action, InvalidAction))


def measure_drift(t: int, recorded: NDArray[np.uint8], live: NDArray[np.uint8]) -> ScreenDrift:
    """Compare two screens, uint8 [H, W, 3]."""
    sizes = (recorded.shape[0], recorded.shape[1]), (live.shape[0], live.shape[1])
    if sizes[0] != sizes[1]:
        return ScreenDrift(t, 1.0, *sizes)
    top = int(recorded.shape[0] * STATUS_BAR_FRACTION)
    difference = np.abs(recorded[top:].astype(np.int16) - live[top:])
    return ScreenDrift(t, float((difference.max(axis=2) > PIXEL_TOLERANCE).mean()), *sizes)


@dataclass(frozen=True, slots=True)
class ReplayResult:
    outcome: Outcome
    drifts: tuple[ScreenDrift, ...]  # of every compared screen

    @property
    def max_drift(self) -> float:
        """The largest fraction of a screen that differed."""
        return max((drift.fraction for drift in self.drifts), default=0.0)


def replay(
    run: RecordedRun, device: Device, tolerance: float, observers: Sequence[RunObserver] = ()
) -> ReplayResult:
    """Execute the run's actions again. A screen that differs beyond `tolerance` ends it as "agent_error"."""
    agent = ReplayAgent(run, tolerance)
    outcome = run_episode(agent, device, run.info.goal, len(agent.steps), observers)
    return ReplayResult(outcome, tuple(agent.drifts))
