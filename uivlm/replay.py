"""A recorded run done again: a trace and a phone in, how it ended this time and how far its screens differed out."""

from dataclasses import dataclass

from uivlm.agents.replay import Drift, ReplayAgent
from uivlm.devices.device import Device
from uivlm.loop import Outcome, Witness, run_episode
from uivlm.trace_read import Run


@dataclass(frozen=True, slots=True)
class Replayed:
    outcome: Outcome
    drifts: tuple[Drift, ...]  # of every screen that was compared

    @property
    def most(self) -> float:
        """The largest share of a screen that differed."""
        return max((drift.share for drift in self.drifts), default=0.0)


def replay(run: Run, device: Device, witness: Witness | None, strict: float) -> Replayed:
    """The run again. Where more than the share `strict` of a screen differs from the recorded one, it ends as "agent error"
    before anything is touched. ValueError where in the run nothing was done."""
    agent = ReplayAgent(run, strict)
    outcome = run_episode(agent, device, run.goal, len(agent.rows), witness)
    return Replayed(outcome, tuple(agent.drifts))
