"""How often an agent does what people did, step by step with the true past (teacher forcing).

In: an agent and recorded episodes. Out: one Verdict a step, written to `verdicts.jsonl`; then a Summary of them.
The denominator is every step of every episode, counted before the agent is asked for the first time. Words that are
no action are wrong, and kept. Such a score says nothing about live success: the past is always the recorded one.

Rates, each per subset and overall (overall: the plain mean of the subsets, as in the AITW paper):

- partial: correct steps / length of the episode, averaged over episodes (AITW and UI-VLM papers)
- micro: correct steps / all steps (the code of Auto-UI, SeeClick and ShowUI)
- complete: episodes with every step right
- types: steps with AITW's type right, taps and swipes being one type
- failures: steps whose words are no action
"""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from uivlm.actions.action import Action, Type
from uivlm.actions.aitw import from_aitw, to_aitw
from uivlm.actions.language import KINDS, NotAnAction, kind
from uivlm.agents.agent import Agent, Decision
from uivlm.episode import Episode, Step
from uivlm.evaluation.match import boxes_of, matches
from uivlm.sentences.store import Episodes

DRAWS = 1000  # bootstrap samples
LEVEL = 0.95
RATES = ("partial", "micro", "complete", "types", "failures")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One step: what the agent said at step `t` of an episode, what people did, and whether it matches."""

    episode: str
    t: int  # 0-based
    subset: str
    said: str
    guess: Action | None  # None: the words are no action
    gold: Action
    correct: bool
    kind: str  # of the gold action
    reason: str  # why the words are no action, else ""
    confidence: float | None  # [0, 1]
    latency_ms: float


@dataclass(frozen=True, slots=True)
class Score:
    """Rates in [0, 1] of one subset, or their means over the subsets."""

    num_episodes: int
    num_steps: int
    partial: float
    low: float  # 95 % bootstrap interval of `partial`, by episode
    high: float
    micro: float
    complete: float
    types: float
    failures: float


@dataclass(frozen=True, slots=True)
class Summary:
    overall: Score
    subsets: dict[str, Score]  # by name, in the order of the data
    kinds: dict[str, tuple[int, int]]  # kind of gold action -> (correct steps, all steps)
    texts: tuple[int, int]  # of the recorded texts: typed just so, all; AITW's rule does not compare them


def evaluate(
    agent: Agent, episodes: Sequence[Episode], out_path: Path, console: Console | None = None
) -> list[Verdict]:
    """Ask the agent about every step and write the verdicts to the file `out_path`.

    The file appears when all steps are done. What a broken run leaves is `<name>.partial`.
    """
    lengths = _count(episodes)
    out_path.parent.mkdir(parents=True, exist_ok=True)
    partial = out_path.with_name(f"{out_path.name}.partial")
    columns = (TextColumn("eval"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    verdicts: list[Verdict] = []
    right = 0
    with (
        partial.open("w", encoding="ascii") as rows,
        Progress(*columns, TimeRemainingColumn(), console=console or Console(stderr=True)) as progress,
    ):
        bar = progress.add_task("", total=sum(lengths))
        for i, length in enumerate(lengths):
            episode = episodes[i]
            if len(episode.steps) != length:
                raise ValueError(
                    f"episode {i} has {len(episode.steps)} steps where {length} were counted at the start: "
                    "the data changed during the run"
                )
            for verdict in _judge_episode(agent, episode):
                verdicts.append(verdict)
                rows.write(json.dumps(to_row(verdict)) + "\n")
                right += verdict.correct
                progress.update(
                    bar, advance=1, description=f"{100 * right / len(verdicts):.1f} % of steps correct"
                )
    os.replace(partial, out_path)
    return verdicts


def read_verdicts(path: Path) -> list[Verdict]:
    """The verdicts that `evaluate` wrote."""
    with path.open(encoding="ascii") as rows:
        return [from_row(json.loads(row)) for row in rows]


def to_row(verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON values; actions as AITW's fields."""
    row = {field.name: getattr(verdict, field.name) for field in fields(verdict)}
    for name in ("guess", "gold"):
        if row[name] is not None:
            row[name] = dict(zip(("type", "touch", "lift", "text"), to_aitw(row[name]), strict=True))
    return row


def from_row(row: dict[str, Any]) -> Verdict:
    actions = {
        name: None
        if row[name] is None
        else from_aitw(*(row[name][part] for part in ("type", "touch", "lift", "text")))
        for name in ("guess", "gold")
    }
    return Verdict(**{**row, **actions})


def by_episode(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    """Verdicts cut into episodes, in the order of `evaluate`: step 0 opens one. Refuses missing steps."""
    found: list[list[Verdict]] = []
    for verdict in verdicts:
        if verdict.t == 0:
            found.append([])
        same = found and (not found[-1] or _place(found[-1][0]) == _place(verdict))
        if not same or verdict.t != len(found[-1]):
            raise ValueError(
                f"the verdict on step {verdict.t} of episode {verdict.episode!r} does not follow the one before it: "
                "the file lacks steps or was reordered"
            )
        found[-1].append(verdict)
    return found


def summarise(verdicts: Sequence[Verdict], seed: int = 0) -> Summary:
    """The rates of a run. `seed` draws the episodes of the bootstrap."""
    if not verdicts:
        raise ValueError("there is no verdict to sum up: the run had no steps")
    groups: dict[str, list[list[Verdict]]] = {}
    for episode in by_episode(verdicts):
        groups.setdefault(episode[0].subset, []).append(episode)
    rng = np.random.default_rng(seed)
    subsets, draws = {}, []
    for name, episodes in groups.items():
        shares = np.array([sum(v.correct for v in episode) / len(episode) for episode in episodes])
        draws.append(_resampled_means(shares, rng))
        subsets[name] = _score(episodes, draws[-1])
    scores = list(subsets.values())
    low, high = _interval(np.mean(draws, axis=0))
    rates = {name: float(np.mean([getattr(s, name) for s in scores])) for name in RATES}
    num_episodes, num_steps = sum(s.num_episodes for s in scores), sum(s.num_steps for s in scores)
    overall = Score(num_episodes, num_steps, low=low, high=high, **rates)
    return Summary(overall, subsets, _by_kind(verdicts), _texts(verdicts))


def _texts(verdicts: Sequence[Verdict]) -> tuple[int, int]:
    typed = [v for v in verdicts if isinstance(v.gold, Type)]
    return sum(v.guess == v.gold for v in typed), len(typed)


def _count(episodes: Sequence[Episode]) -> list[int]:
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


def _judge_episode(agent: Agent, episode: Episode) -> Iterator[Verdict]:
    agent.reset()
    for t, step in enumerate(episode.steps):
        began = time.perf_counter()
        decision = agent.act(episode.history(t))
        latency_ms = (time.perf_counter() - began) * 1000
        yield _judge(episode, t, step, decision, latency_ms)


def _judge(episode: Episode, t: int, step: Step, decision: Decision, latency_ms: float) -> Verdict:
    answer = decision.action
    guess, reason = (None, answer.reason) if isinstance(answer, NotAnAction) else (answer, "")
    return Verdict(
        episode=episode.id,
        t=t,
        subset=episode.subset,
        said=decision.words,
        guess=guess,
        gold=step.action,
        correct=guess is not None and matches(guess, step.action, boxes_of(step.screen)),
        kind=kind(step.action),
        reason=reason,
        confidence=decision.confidence,
        latency_ms=latency_ms,
    )


def _place(verdict: Verdict) -> tuple[str, str]:
    return verdict.subset, verdict.episode


def _score(episodes: list[list[Verdict]], draws: NDArray[np.float64]) -> Score:
    steps = [verdict for episode in episodes for verdict in episode]
    low, high = _interval(draws)
    return Score(
        num_episodes=len(episodes),
        num_steps=len(steps),
        partial=float(np.mean([np.mean([v.correct for v in episode]) for episode in episodes])),
        low=low,
        high=high,
        micro=sum(v.correct for v in steps) / len(steps),
        complete=sum(all(v.correct for v in episode) for episode in episodes) / len(episodes),
        types=sum(v.guess is not None and to_aitw(v.guess)[0] == to_aitw(v.gold)[0] for v in steps)
        / len(steps),
        failures=sum(v.guess is None for v in steps) / len(steps),
    )


def _resampled_means(shares: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    return np.array([shares[rng.integers(len(shares), size=len(shares))].mean() for _ in range(DRAWS)])


def _interval(draws: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _by_kind(verdicts: Sequence[Verdict]) -> dict[str, tuple[int, int]]:
    total = Counter(v.kind for v in verdicts)
    right = Counter(v.kind for v in verdicts if v.correct)
    return {name: (right[name], total[name]) for name in KINDS if total[name]}
