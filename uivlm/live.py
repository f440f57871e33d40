"""Live success: an agent on phones that know whether a goal is reached. Trials in, results and their summary out.

A trial succeeds when the phone's own check says so AND the agent ended the run itself with the finish that the goal
calls for. Both halves are also reported apart.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from uivlm.actions.action import Status
from uivlm.agents.agent import Agent
from uivlm.devices.device import Device
from uivlm.loop import Ending, run_episode
from uivlm.trace import Trace

Z_95 = 1.959964  # standard normal deviate of a two-sided 95 % interval


@dataclass(frozen=True, slots=True)
class Trial:
    """A goal on a phone that was put in its first state."""

    goal: str
    device: Device
    succeeded: Callable[[], bool]  # the phone's own check, asked after the run
    finish: Status = "complete"  # what the agent has to say at the end


@dataclass(frozen=True, slots=True)
class LiveResult:
    goal: str
    status: Ending
    finished: bool  # the agent itself said the finish that the goal calls for
    reached: bool  # the phone's own check
    steps: int
    seconds: float
    message: str

    @property
    def success(self) -> bool:
        return self.finished and self.reached


@dataclass(frozen=True, slots=True)
class LiveSummary:
    num_trials: int
    num_successes: int
    rate: float  # successes / trials
    low: float  # Wilson 95 % interval of the rate
    high: float
    num_finished: int
    num_reached: int
    mean_steps: float
    mean_seconds: float  # of a trial
    statuses: dict[str, int]  # ending -> trials


def run_live(
    agent: Agent,
    trials: Iterable[Trial],
    limit: int,
    total: int | None = None,
    traces: Path | None = None,
    console: Console | None = None,
) -> list[LiveResult]:
    """One result a trial. Trials may be made one by one; Ctrl-C stops all of them.

    `total` is their number where `trials` has no length; `traces` is a folder for one trace a trial.
    """
    if total is None and isinstance(trials, Sequence):
        total = len(trials)
    results: list[LiveResult] = []
    columns = (TextColumn("live"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeRemainingColumn(), console=console or Console(stderr=True)) as progress:
        bar = progress.add_task("", total=total)
        for i, trial in enumerate(trials):
            trace = None if traces is None else Trace(traces / f"{i:04d}", trial.goal)
            results.append(_run(agent, trial, limit, trace))
            wins = sum(result.success for result in results)
            progress.update(bar, advance=1, description=f"{wins} of {len(results)} succeeded")
    return results


def _run(agent: Agent, trial: Trial, limit: int, trace: Trace | None) -> LiveResult:
    began = time.perf_counter()
    outcome = run_episode(agent, trial.device, trial.goal, limit, trace)
    if outcome.status == "interrupted":
        raise KeyboardInterrupt
    finished, reached = outcome.status == trial.finish, bool(trial.succeeded())
    if trace is not None:
        trace.judged(f"goal {'' if reached else 'not '}reached, {'' if finished else 'not '}rightly finished")
    return LiveResult(
        goal=trial.goal,
        status=outcome.status,
        finished=finished,
        reached=reached,
        steps=len(outcome.steps),
        seconds=time.perf_counter() - began,
        message=outcome.message,
    )


def summarise(results: Sequence[LiveResult]) -> LiveSummary:
    if not results:
        raise ValueError("no trial was run: there is nothing to sum up")
    wins = sum(result.success for result in results)
    low, high = wilson(wins, len(results))
    return LiveSummary(
        num_trials=len(results),
        num_successes=wins,
        rate=wins / len(results),
        low=low,
        high=high,
        num_finished=sum(result.finished for result in results),
        num_reached=sum(result.reached for result in results),
        mean_steps=sum(result.steps for result in results) / len(results),
        mean_seconds=sum(result.seconds for result in results) / len(results),
        statuses=dict(Counter(str(result.status) for result in results).most_common()),
    )


def live_table(title: str, rows: Mapping[str, LiveSummary]) -> Table:
    """A row for each name."""
    table = Table("", title=title)
    for head in ("success", "95 %", "reached", "rightly finished", "steps", "seconds"):
        table.add_column(head, justify="right")
    table.add_column("endings")
    for name, row in rows.items():
        table.add_row(
            name,
            f"{100 * row.rate:.1f} % ({row.num_successes} of {row.num_trials})",
            f"{100 * row.low:.1f} to {100 * row.high:.1f}",
            str(row.num_reached),
            str(row.num_finished),
            f"{row.mean_steps:.1f}",
            f"{row.mean_seconds:.1f}",
            ", ".join(f"{number} {ending}" for ending, number in row.statuses.items()),
        )
    return table


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % score interval of a share (Wilson 1927)."""
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"{successes} successes of {trials} trials")
    share = successes / trials
    centre = (share + Z_95**2 / (2 * trials)) / (1 + Z_95**2 / trials)
    half = Z_95 * math.sqrt(share * (1 - share) / trials + Z_95**2 / (4 * trials**2)) / (1 + Z_95**2 / trials)
    return max(0.0, centre - half), min(1.0, centre + half)
