"""Steps in any order become episodes: the index of all records in, the episodes to write out, everything counted.

The steps of an episode may be interleaved with others, out of order, spread over shards, twice there or missing.
Of steps with one number the first wins. Where steps are missing, the policy decides.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from data_prep.spill import Entry
from data_prep.split import Split

Gaps = Literal["keep-prefix", "drop", "keep"]

POLICIES: dict[Gaps, str] = {
    "keep-prefix": "of an episode with missing steps, the steps before the first gap are kept",
    "drop": "an episode with missing steps is dropped",
    "keep": "of an episode with missing steps, all that is there is kept",
}

Drop = Literal[
    "exact duplicate", "conflicting duplicate", "after a gap", "episode with a gap", "not in the split file",
    "beyond the limit",
]  # fmt: skip
Note = Literal[
    "episodes with missing steps", "missing steps", "episodes out of order", "episodes not contiguous",
    "episodes over several shards", "episodes longer than stated", "episodes with several goals",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Planned:
    """An episode to write: its steps in order, each with the place of its row."""

    id: str
    subset: str
    split: Split
    steps: tuple[Entry, ...]

    @property
    def goal(self) -> str:
        return self.steps[0].goal


@dataclass(frozen=True, slots=True)
class Plan:
    """What to write, and what happened to every record that was read."""

    episodes: list[Planned]  # in the order in which they first appear
    num_records: int
    dropped_steps: Counter[Drop]
    dropped_episodes: Counter[Drop]
    notes: Counter[Note]


class Stop:
    """Tells when a limited run has read enough: `limit` wanted episodes are whole."""

    def __init__(self, limit: int | None, split_of: Callable[[str], Split | None]) -> None:
        self._limit, self._split_of = limit, split_of
        self._steps: dict[tuple[str, str], set[int]] = {}
        self._whole: set[tuple[str, str]] = set()

    def after(self, entries: Iterable[Entry]) -> bool:
        """Take in one shard's entries; is it the last one needed?"""
        if self._limit is None:
            return False
        for e in entries:
            if self._split_of(e.episode_id) is None:
                continue
            seen = self._steps.setdefault((e.subset, e.episode_id), set())
            seen.add(e.step_id)
            if len(seen) >= e.episode_length:
                self._whole.add((e.subset, e.episode_id))
        return len(self._whole) >= self._limit


def plan_episodes(
    entries: Iterable[Entry], split_of: Callable[[str], Split | None], gaps: Gaps, limit: int | None = None
) -> Plan:
    """Group, order and clean. With a limit, whole episodes come before those with missing steps."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.subset, entry.episode_id), []).append(entry)
    plan = Plan([], sum(map(len, groups.values())), Counter(), Counter(), Counter())
    _note_order(groups, plan.notes)
    whole: list[Planned] = []
    partial: list[Planned] = []
    for (subset, episode_id), found in groups.items():
        split = split_of(episode_id)
        if split is None:
            _drop(plan, "not in the split file", len(found))
            continue
        unique = _without_duplicates(found, plan)
        kept, is_whole = _without_gaps(unique, gaps, plan)
        if kept:
            (whole if is_whole else partial).append(Planned(episode_id, subset, split, tuple(kept)))
    chosen = [*whole, *partial]
    if limit is not None:
        for episode in chosen[limit:]:
            _drop(plan, "beyond the limit", len(episode.steps))
        chosen = chosen[:limit]
    order = {key: i for i, key in enumerate(groups)}
    plan.episodes.extend(sorted(chosen, key=lambda episode: order[episode.subset, episode.id]))
    return plan


def _drop(plan: Plan, why: Drop, num_steps: int) -> None:
    """A whole episode goes."""
    plan.dropped_episodes[why] += 1
    plan.dropped_steps[why] += num_steps


def _without_duplicates(found: list[Entry], plan: Plan) -> list[Entry]:
    """One entry per step number, in order. Of several the first wins."""
    first: dict[int, Entry] = {}
    for entry in found:
        kept = first.setdefault(entry.step_id, entry)
        if kept is not entry:
            same = kept.digest == entry.digest
            plan.dropped_steps["exact duplicate" if same else "conflicting duplicate"] += 1
    if len({entry.goal for entry in first.values()}) > 1:
        plan.notes["episodes with several goals"] += 1
    return [first[number] for number in sorted(first)]


def _without_gaps(steps: list[Entry], gaps: Gaps, plan: Plan) -> tuple[list[Entry], bool]:
    """What the policy leaves of an episode, and whether the episode is whole."""
    stated = steps[0].episode_length
    prefix = next((i for i, entry in enumerate(steps) if entry.step_id != i), len(steps))
    missing = max(stated, steps[-1].step_id + 1) - len(steps)
    if steps[-1].step_id >= stated:
        plan.notes["episodes longer than stated"] += 1
    if not missing:
        return steps, True
    plan.notes["episodes with missing steps"] += 1
    plan.notes["missing steps"] += missing
    match gaps:
        case "keep":
            return steps, False
        case "keep-prefix" if prefix:
            if prefix < len(steps):
                plan.dropped_steps["after a gap"] += len(steps) - prefix
            return steps[:prefix], False
        case _:  # `drop`, or a prefix of nothing
            _drop(plan, "episode with a gap", len(steps))
            return [], False


def _note_order(groups: dict[tuple[str, str], list[Entry]], notes: Counter[Note]) -> None:
    for found in groups.values():
        numbers = [entry.step_id for entry in found]
        if numbers != sorted(numbers):
            notes["episodes out of order"] += 1
        if len({entry.shard for entry in found}) > 1:
            notes["episodes over several shards"] += 1
        pairs = pairwise(found)
        if any(a.shard == b.shard and a.row + 1 != b.row for a, b in pairs):
            notes["episodes not contiguous"] += 1
