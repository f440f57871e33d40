"""An agent is asked about every recorded step; what it says is judged and written down.

In: an agent and recorded episodes. Out: one Verdict a step, in `verdicts.jsonl`. The denominator is every step of every
episode, counted before the agent is asked for the first time. Words that are no action are wrong, and kept.

Two ways to ask. Teacher forcing, as published figures are made: at each step the past is the recorded one. Free-running: the past
holds the agent's own actions, before the recorded screens; where it finishes, or says no action, the episode ends as it
would on a phone, and what is left of it is wrong. Neither is live success: screens do not follow from the agent's actions.

Episodes are asked in groups, side by side, and a group is written when it is done. A run that was stopped goes on with the
groups that are missing; which episodes share a group never changes, so the words do not either.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from uivlm.actions.action import Finish
from uivlm.actions.language import NotAnAction
from uivlm.agents.agent import Agent, Decision, SideBySide
from uivlm.engine import Engine, crew
from uivlm.episode import Episode, History, Step
from uivlm.evaluation.verdict import VERSION, Verdict, from_row, judge, to_row
from uivlm.sentences.store import Episodes

Asked = Callable[[Sequence[History]], Sequence[Decision]]


@dataclass(frozen=True, slots=True)
class Group:
    """Episodes that are asked side by side; the first is the `first`-th of the data."""

    first: int
    episodes: Sequence[Episode]


Judged = Callable[[Group], list[Verdict]]  # on all steps of its episodes


@dataclass(frozen=True, slots=True)
class Way:
    """How the agent is asked."""

    free: bool = False  # its own past instead of the recorded one
    together: int = 1  # episodes side by side


def evaluate(
    agent: Agent,
    episodes: Sequence[Episode],
    out_path: Path,
    console: Console | None = None,
    way: Way | None = None,
) -> list[Verdict]:
    """Ask one agent, here, about every step."""
    chosen = way or Way()
    return run(partial(judged, agent, chosen), episodes, out_path, chosen, None, console)


def run(
    work: Judged,
    episodes: Sequence[Episode],
    out_path: Path,
    way: Way,
    about: dict[str, Any] | None,
    console: Console | None = None,
    workers: int = 1,
    engine: Engine = "pool",
) -> list[Verdict]:
    """`work` on all groups of the episodes; the verdicts, written to the file `out_path`.

    The file appears when all steps are done. What a stopped run leaves is `<name>.partial`, with what the run is `about`: the
    same run goes on with it, of another one it is refused (ValueError). `about` None: every run begins anew.
    """
    lengths = count(episodes)
    told = {
        **(about or {}),
        "rows": VERSION,
        "free": way.free,
        "together": way.together,
        "steps": sum(lengths),
    }
    unfinished = out_path.with_name(f"{out_path.name}.partial")
    groups = [
        range(first, min(first + way.together, len(lengths)))
        for first in range(0, len(lengths), way.together)
    ]
    done = {} if about is None else _left(unfinished, told, groups)
    missing = [group for group in groups if group not in done]
    jobs = (Group(group.start, episodes[group.start : group.stop]) for group in missing)
    out_path.parent.mkdir(parents=True, exist_ok=True)
    _write(unfinished, [told, *(to_row(verdict) for part in done.values() for verdict in part)])
    columns = (TextColumn("eval"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with (
        crew(workers, engine) as hands,
        unfinished.open("a", encoding="ascii") as rows,
        Progress(*columns, TimeRemainingColumn(), console=console or Console(stderr=True)) as progress,
    ):
        bar = progress.add_task("", total=sum(lengths), completed=sum(map(len, done.values())))
        right = sum(verdict.correct for part in done.values() for verdict in part)
        for group, verdicts in zip(missing, hands.in_order(work, jobs), strict=True):
            if len(verdicts) != (number := sum(lengths[i] for i in group)):
                raise ValueError(
                    f"episodes {group.start} to {group.stop - 1} have {len(verdicts)} steps where {number} were counted "
                    "at the start: the data changed during the run"
                )
            done[group] = verdicts
            rows.write(_lines(map(to_row, verdicts)))
            rows.flush()
            right += sum(verdict.correct for verdict in verdicts)
            progress.update(bar, advance=len(verdicts))
            shown = f"{100 * right / progress.tasks[bar].completed:.1f} % of steps correct"
            progress.update(bar, description=shown)
    verdicts = [verdict for group in groups for verdict in done[group]]
    _write(out_path, map(to_row, verdicts))
    unfinished.unlink()
    return verdicts


def count(episodes: Sequence[Episode]) -> list[int]:
    """The steps of each episode; of prepared data without reading a screen."""
    if isinstance(episodes, Episodes):
        lengths = [place.num_rows for place in episodes.places]
    else:
        lengths = [len(episodes[i].steps) for i in range(len(episodes))]
    if not lengths:
        raise ValueError("there is no episode to evaluate: the data or the split is empty")
    if 0 in lengths:
        i = lengths.index(0)
        raise ValueError(f"episode {i} ({episodes[i].id!r}) has no steps: it has no score, leave it out")
    return lengths


def judged(agent: Agent, way: Way, group: Group) -> list[Verdict]:
    """The verdicts on all steps of some episodes, episode by episode."""
    ask = _asked(agent, way)
    agent.reset()
    if isinstance(agent, SideBySide):  # a run that goes on begins its groups as a whole run does
        agent.forget()
    runs = [_Run(group.first + i, group.episodes[i]) for i in range(len(group.episodes))]
    for t in range(max(len(run.episode.steps) for run in runs)):
        going = [run for run in runs if t < len(run.episode.steps) and not run.over]
        began = time.perf_counter()
        decisions = ask([run.history(t, way.free) for run in going]) if going else ()
        latency_ms = (time.perf_counter() - began) * 1000
        for run, decision in zip(going, decisions, strict=True):
            run.take(t, decision, latency_ms, way.free)
    return [verdict for run in runs for verdict in run.all_verdicts()]


def _asked(agent: Agent, way: Way) -> Asked:
    if way.together == 1:
        return lambda histories: [agent.act(history) for history in histories]
    if not isinstance(agent, SideBySide):
        raise ValueError("this agent answers one history at a time: ask it with --together 1")
    return agent.act_all


class _Run:
    """One episode on its way. `over`: the agent itself ended it."""

    def __init__(self, index: int, episode: Episode) -> None:
        self.index, self.episode = index, episode
        self.own: tuple[Step, ...] = ()
        self.verdicts: list[Verdict] = []
        self.over = False

    def history(self, t: int, free: bool) -> History:
        recorded = self.episode.history(t)
        return replace(recorded, steps=self.own) if free else recorded

    def take(self, t: int, decision: Decision, latency_ms: float, free: bool) -> None:
        self.verdicts.append(judge(self.index, self.episode, t, decision, latency_ms))
        if not free:
            return
        if isinstance(decision.action, NotAnAction | Finish):
            self.over = True
        else:
            self.own += (Step(self.episode.steps[t].screen, decision.action),)

    def all_verdicts(self) -> Iterator[Verdict]:
        yield from self.verdicts
        for t in range(len(self.verdicts), len(self.episode.steps)):
            yield judge(self.index, self.episode, t, None, 0.0)


def _left(path: Path, about: dict[str, Any], groups: Sequence[range]) -> dict[range, list[Verdict]]:
    """What a stopped run of the same kind left: the verdicts on whole groups."""
    rows = _rows(path)
    if not rows:
        return {}
    told = json.loads(json.dumps(about))
    if rows[0] != told:
        differ = ", ".join(
            sorted(name for name in {**rows[0], **told} if rows[0].get(name) != told.get(name))
        )
        raise ValueError(
            f"{path} was left by another run (not the same: {differ}): remove it, or name another folder with --out"
        )
    by_index: dict[int, list[Verdict]] = {}
    for verdict in map(from_row, rows[1:]):
        by_index.setdefault(verdict.index, []).append(verdict)
    whole = {i for i, part in by_index.items() if len(part) == part[0].steps}
    return {group: [v for i in group for v in by_index[i]] for group in groups if whole.issuperset(group)}


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file up to the first that is torn: the last of a killed run."""
    rows: list[dict[str, Any]] = []
    for line in path.read_text("ascii", errors="replace").splitlines() if path.is_file() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def _write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """All of it or nothing."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(_lines(rows), encoding="ascii")
    os.replace(fresh, path)


def _lines(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)
