"""A recorded run as an agent: it says again what was said then, and watches how far the screens differ.

In: a run and the history. Out: the recorded decision, and a Drift for each step. It stops rather than act on a screen that is
another one than it was recorded on.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uivlm.actions.language import NotAnAction
from uivlm.agents.agent import AgentError, Decision
from uivlm.episode import History
from uivlm.trace_read import Row, Run

STATUS_BAR = 0.04  # top share of the screen that may change at any time (clock, notifications)
SAME = 8  # grey levels that a pixel may be off, as by another way to capture the screen


@dataclass(frozen=True, slots=True)
class Drift:
    """How a screen differs from the recorded one."""

    t: int  # 0-based
    share: float  # of the pixels below the status bar; 1 where the sizes differ
    recorded: tuple[int, int]  # pixels: height, width
    live: tuple[int, int]

    def __str__(self) -> str:
        if self.recorded == self.live:
            return (
                f"the screen at step {self.t + 1} differs from the recorded one by {_percent(self.share)} %"
            )
        (height, width), (live_height, live_width) = self.recorded, self.live
        how = "is turned" if self.recorded == self.live[::-1] else "has another size"
        return (
            f"the screen at step {self.t + 1} {how}: it has {live_width} x {live_height} pixels, "
            f"the recorded one {width} x {height}"
        )


class ReplayAgent:
    """Says the actions of a run one after the other. `strict`: the share of a screen's pixels, 0 to 1, that may differ from the
    recorded screen; beyond it an AgentError ends the run before anything is touched. ValueError where there is nothing to say.
    """

    def __init__(self, run: Run, strict: float) -> None:
        if not 0 <= strict <= 1:
            raise ValueError(f"a strictness of {strict:g}: it is a share of the pixels, 0 to 1")
        self.rows = said(run)
        if not self.rows:
            raise ValueError(f"nothing was done in the run in {run.folder}: there is nothing to replay")
        self.strict = strict
        self.drifts: list[Drift] = []

    def reset(self) -> None:
        self.drifts.clear()

    def act(self, history: History) -> Decision:
        t = len(history.steps)
        if t >= len(self.rows):
            raise AgentError(f"the recorded run has {len(self.rows)} steps, and all of them were replayed")
        row = self.rows[t]
        assert row.action is not None
        self.drifts.append(found := drift(t, row.pixels(), history.screen.pixels))
        if found.share > self.strict:
            raise AgentError(
                f"{found}, where at most {100 * self.strict:g} % may differ: put the phone into the state in which the run "
                "began, or allow more"
            )
        return Decision(row.action, row.words or "", row.confidence, row.kind_confidence)


def _percent(share: float) -> str:
    """Small ones are never 0, whole ones never e+02."""
    return f"{100 * share:.0f}" if share >= 0.1 else f"{100 * share:.2g}"


def said(run: Run) -> tuple[Row, ...]:
    """The rows of a run that can be said again: those that were carried out, and words that ended it. What a policy denied, or
    a phone did not do, is not among them."""
    return tuple(row for row in run.rows if row.done or isinstance(row.action, NotAnAction))


def drift(t: int, recorded: NDArray[np.uint8], live: NDArray[np.uint8]) -> Drift:
    """Both screens uint8 [H, W, 3]."""
    sizes = (recorded.shape[0], recorded.shape[1]), (live.shape[0], live.shape[1])
    if sizes[0] != sizes[1]:
        return Drift(t, 1.0, *sizes)
    top = int(recorded.shape[0] * STATUS_BAR)
    difference = np.abs(recorded[top:].astype(np.int16) - live[top:])
    return Drift(t, float((difference.max(axis=2) > SAME).mean()), *sizes)
