"""Online evaluation: an agent on devices that can check whether a goal is reached.

In: an agent and trials. Out: a result for each trial, and their summary. A trial succeeds if the device's own
check passes AND the agent ended the run itself with the expected finish. Both conditions are also reported
separately.
"""

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
from uivlm.evaluation.intervals import wilson_interval
from uivlm.rollout.loop import RunStatus, run_episode
from uivlm.rollout.trace_writer import TraceWriter


@dataclass(frozen=True, slots=True)
class Trial:
    """A goal on a device in the goal's initial state."""

    goal: str
    device: Device
    succeeded: Callable[[], bool]  # the device's own check, called after the run
    expected_status: Status = "complete"  # of the agent's finish


@dataclass(frozen=True, slots=True)
class TrialResult:
    goal: str
    status: RunStatus
    finished_correctly: bool  # the agent itself ended the run with the expected status
    goal_reached: bool  # by the device's own check
    num_steps: int
    seconds: float
    message: str

    @property
    def success(self) -> bool:
        return self.finished_correctly and self.goal_reached


@dataclass(frozen=True, slots=True)
class OnlineSummary:
    num_trials: int
    num_successes: int
    success_rate: float  # successes / trials
    success_rate_low: float  # Wilson 95 % interval
    success_rate_high: float
    num_finished_correctly: int
    num_goal_reached: int
    mean_steps: float
    mean_seconds: float  # of a trial
    status_counts: dict[str, int]  # RunStatus -> trials


def run_trials(
    agent: Agent,
    trials: Iterable[Trial],
    max_steps: int,
    num_trials: int | None = None,
    trace_dir: Path | None = None,
    console: Console | None = None,
) -> list[TrialResult]:
    """Run the trials in order. They may be created lazily; Ctrl-C stops all of them.

    `num_trials` is their number if `trials` has no length. `trace_dir` is a folder for one trace per trial.
    """
    if num_trials is None and isinstance(trials, Sequence):
        num_trials = len(trials)
    results: list[TrialResult] = []
    columns = (TextColumn("eval-online"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeRemainingColumn(), console=console or Console(stderr=True)) as progress:
        bar = progress.add_task("", total=num_trials)
        for i, trial in enumerate(trials):
            trace = None if trace_dir is None else TraceWriter(trace_dir / f"{i:04d}", trial.goal)
            results.append(_run_trial(agent, trial, max_steps, trace))
            num_successes = sum(result.success for result in results)
            progress.update(bar, advance=1, description=f"{num_successes} of {len(results)} succeeded")
    return results


def _run_trial(agent: Agent, trial: Trial, max_steps: int, trace: TraceWriter | None) -> TrialResult:
    start = time.perf_counter()
    outcome = run_episode(agent, trial.device, trial.goal, max_steps, () if trace is None else (trace,))
    if outcome.status == "interrupted":
        raise KeyboardInterrupt
    finished, reached = outcome.status == trial.expected_status, bool(trial.succeeded())
    if trace is not None:
        checks = {"goal_reached": str(reached).lower(), "finished_correctly": str(finished).lower()}
        trace.set_task_success(reached and finished, checks)
    return TrialResult(
        goal=trial.goal,
        status=outcome.status,
        finished_correctly=finished,
        goal_reached=reached,
        num_steps=len(outcome.steps),
        seconds=time.perf_counter() - start,
        message=outcome.message,
    )


def summarize_trials(results: Sequence[TrialResult]) -> OnlineSummary:
    if not results:
        raise ValueError("no trial results to summarize")
    num_successes = sum(result.success for result in results)
    low, high = wilson_interval(num_successes, len(results))
    return OnlineSummary(
        num_trials=len(results),
        num_successes=num_successes,
        success_rate=num_successes / len(results),
        success_rate_low=low,
        success_rate_high=high,
        num_finished_correctly=sum(result.finished_correctly for result in results),
        num_goal_reached=sum(result.goal_reached for result in results),
        mean_steps=sum(result.num_steps for result in results) / len(results),
        mean_seconds=sum(result.seconds for result in results) / len(results),
        status_counts=dict(Counter(str(result.status) for result in results).most_common()),
    )


def online_table(title: str, rows: Mapping[str, OnlineSummary]) -> Table:
    """One row a summary."""
    table = Table("", title=title)
    for heading in ("success", "95 % CI", "goal reached", "finished correctly", "steps", "seconds"):
        table.add_column(heading, justify="right")
    table.add_column("status")
    for name, row in rows.items():
        table.add_row(
            name,
            f"{100 * row.success_rate:.1f} % ({row.num_successes} of {row.num_trials})",
            f"{100 * row.success_rate_low:.1f} to {100 * row.success_rate_high:.1f}",
            str(row.num_goal_reached),
            str(row.num_finished_correctly),
            f"{row.mean_steps:.1f}",
            f"{row.mean_seconds:.1f}",
            ", ".join(f"{count} {status}" for status, count in row.status_counts.items()),
        )
    return table
