"""Offline evaluation: predict an action at every recorded step, compare it with the recorded one, write
verdicts.

In: an agent and recorded episodes. Out: one Verdict a step, in `verdicts.jsonl`. The denominator is every
step of every episode, counted before the first prediction. Output that is not an action is wrong.

Two modes. Teacher forcing, as published scores are made: at each step the past is the recorded one.
Free-running: the past holds the agent's own actions, before the recorded screens. If the agent finishes, or
its output is not an action, the episode ends as it would on a phone, and the remaining steps are wrong.
Neither is online success: the screens do not follow from the agent's actions.

Episodes are batched in groups, and a group is written when it is done. A run that is interrupted resumes with
the missing groups. Which episodes share a group never changes, so the predictions do not either.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from uivlm import atomic
from uivlm.actions.action import Finish, InvalidAction
from uivlm.actions.decision import Decision
from uivlm.agents.agent import Agent, BatchAgent
from uivlm.episodes.dataset import PreparedEpisodes
from uivlm.episodes.episode import Episode, History, Step
from uivlm.evaluation.verdict import (
    VERSION,
    Verdict,
    header_to_line,
    to_verdict,
    verdict_from_line,
    verdict_to_line,
)
from uivlm.parallel import ExecutorName, make_executor

ActFn = Callable[[Sequence[History]], Sequence[Decision]]


@dataclass(frozen=True, slots=True)
class Group:
    """Episodes that are batched."""

    first_index: int  # of its first episode in the data
    episodes: Sequence[Episode]


GroupScorer = Callable[[Group], list[Verdict]]  # the verdicts on all steps of its episodes


@dataclass(frozen=True, slots=True)
class EvalMode:
    free_running: bool = False  # the agent's own past instead of the recorded one
    batch_size: int = 1  # episodes in a group


def evaluate(
    agent: Agent,
    episodes: Sequence[Episode],
    out_path: Path,
    console: Console | None = None,
    mode: EvalMode | None = None,
) -> list[Verdict]:
    """Evaluate one agent in this process."""
    mode = mode or EvalMode()
    return evaluate_groups(partial(score_group, agent, mode), episodes, out_path, mode, None, console)


def evaluate_groups(
    scorer: GroupScorer,
    episodes: Sequence[Episode],
    out_path: Path,
    mode: EvalMode,
    run_info: dict[str, Any] | None,
    console: Console | None = None,
    workers: int = 1,
    executor_type: ExecutorName = "local",
) -> list[Verdict]:
    """Apply `scorer` to all groups of the episodes; write the verdicts to `out_path` and return them.

    The file appears when all steps are done. An interrupted run leaves `<name>.partial`, which starts with
    `run_info`: the same run resumes from it, any other run raises ValueError. With `run_info=None` every run
    starts from the first group.
    """
    lengths = episode_lengths(episodes)
    header = {
        "version": VERSION,
        "num_steps": sum(lengths),
        "free_running": mode.free_running,
        "batch_size": mode.batch_size,
        **(run_info or {}),
    }
    partial_path = out_path.with_name(f"{out_path.name}.partial")
    groups = [
        range(first, min(first + mode.batch_size, len(lengths)))
        for first in range(0, len(lengths), mode.batch_size)
    ]
    done = [] if run_info is None else _load_partial(partial_path, header, lengths, groups)
    verdicts = [verdict for group in done for verdict in group]
    jobs = (Group(group.start, episodes[group.start : group.stop]) for group in groups[len(done) :])
    out_path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_file(partial_path, header_to_line(header) + b"".join(map(verdict_to_line, verdicts)))
    columns = (TextColumn("eval"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with (
        make_executor(workers, executor_type) as executor,
        partial_path.open("ab") as file,
        Progress(*columns, TimeRemainingColumn(), console=console or Console(stderr=True)) as progress,
    ):
        bar = progress.add_task("", total=sum(lengths), completed=len(verdicts))
        scored = executor.map_ordered(scorer, jobs)
        for group, new_verdicts in zip(groups[len(done) :], scored, strict=True):
            _check_count(group, len(new_verdicts), sum(lengths[i] for i in group))
            file.write(b"".join(map(verdict_to_line, new_verdicts)))
            file.flush()
            verdicts += new_verdicts
            accuracy = sum(verdict.correct for verdict in verdicts) / len(verdicts)
            description = f"{100 * accuracy:.1f} % of steps correct"
            progress.update(bar, advance=len(new_verdicts), description=description)
    os.replace(partial_path, out_path)
    return verdicts


def episode_lengths(episodes: Sequence[Episode]) -> list[int]:
    """The number of steps of each episode. Screens of prepared data are not read."""
    if isinstance(episodes, PreparedEpisodes):
        lengths: list[int] = episodes.num_steps.tolist()
    else:
        lengths = [len(episodes[i].steps) for i in range(len(episodes))]
    if not lengths:
        raise ValueError("no episode to evaluate: the data or the split is empty")
    if 0 in lengths:
        i = lengths.index(0)
        raise ValueError(f"episode {i} ({episodes[i].id!r}) has no steps and thus no score: leave it out")
    return lengths


def score_group(agent: Agent, mode: EvalMode, group: Group) -> list[Verdict]:
    """The verdicts on all steps of a group, episode by episode."""
    act = _act_fn(agent, mode)
    agent.reset()
    if isinstance(agent, BatchAgent):  # a resumed run starts its groups as an uninterrupted one does
        agent.reset_cache()
    runs = [_EpisodeRun(group.first_index + i, group.episodes[i]) for i in range(len(group.episodes))]
    for t in range(max(len(run.episode.steps) for run in runs)):
        active = [run for run in runs if t < len(run.episode.steps) and not run.finished]
        start = time.perf_counter()
        decisions = act([run.history(t, mode.free_running) for run in active]) if active else ()
        latency_ms = (time.perf_counter() - start) * 1000
        for run, decision in zip(active, decisions, strict=True):
            run.record(t, decision, latency_ms, mode.free_running)
    return [verdict for run in runs for verdict in run.all_verdicts()]


def _act_fn(agent: Agent, mode: EvalMode) -> ActFn:
    if mode.batch_size == 1:
        return lambda histories: [agent.act(history) for history in histories]
    if not isinstance(agent, BatchAgent):
        raise ValueError(
            f"--batch-size: got {mode.batch_size}; expected 1, as this agent takes one history at a time"
        )
    return agent.act_batch


class _EpisodeRun:
    """The state of one episode of a group."""

    def __init__(self, index: int, episode: Episode) -> None:
        self.index, self.episode = index, episode
        self.own_steps: tuple[Step, ...] = ()
        self.verdicts: list[Verdict] = []
        self.finished = False  # by the agent itself, in free-running mode

    def history(self, t: int, free_running: bool) -> History:
        recorded = self.episode.history(t)
        return replace(recorded, steps=self.own_steps) if free_running else recorded

    def record(self, t: int, decision: Decision, latency_ms: float, free_running: bool) -> None:
        self.verdicts.append(to_verdict(self.index, self.episode, t, decision, latency_ms))
        if not free_running:
            return
        if isinstance(decision.action, InvalidAction | Finish):
            self.finished = True
        else:
            self.own_steps += (Step(self.episode.steps[t].screen, decision.action),)

    def all_verdicts(self) -> Iterator[Verdict]:
        yield from self.verdicts
        for t in range(len(self.verdicts), len(self.episode.steps)):
            yield to_verdict(self.index, self.episode, t, None, 0.0)


def _check_count(group: range, num_verdicts: int, expected: int) -> None:
    if num_verdicts != expected:
        raise ValueError(
            f"episodes {group.start} to {group.stop - 1}: got {num_verdicts} steps; expected {expected}, "
            "as counted at the start. The data changed during the run"
        )


def _load_partial(
    path: Path, header: dict[str, Any], lengths: Sequence[int], groups: Sequence[range]
) -> list[list[Verdict]]:
    """The verdicts on the complete groups that an interrupted run left. Raises ValueError for another run."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []  # a killed run tears its last line
    if not lines:
        return []
    left = _parse_header(lines[0])
    expected = json.loads(json.dumps(header))
    if left != expected:
        names = ", ".join(
            sorted(name for name in {**left, **expected} if left.get(name) != expected.get(name))
        )
        raise ValueError(
            f"{path}: left by another run, with another {names}. Remove it, or choose another --out"
        )
    rows = iter(lines[1:])
    done: list[list[Verdict]] = []
    for group in groups:
        num_rows = sum(lengths[i] for i in group)
        complete = [row for _, row in zip(range(num_rows), rows, strict=False)]
        if len(complete) < num_rows:
            break
        done.append([verdict_from_line(row, str(path)) for row in complete])
    return done


def _parse_header(line: bytes) -> dict[str, Any]:
    """The header, or {} for a line that is not one."""
    try:
        header = json.loads(line)
    except ValueError:
        return {}
    return header if isinstance(header, dict) else {}
