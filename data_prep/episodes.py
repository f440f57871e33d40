"""Steps in any order become episodes: the index of all records in, the episodes to write out, everything counted.

The steps of an episode may be interleaved with others, out of order, spread over parts, twice there, unusable or
missing. Of steps with one number the first wins. Where steps are missing, the policy decides.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.index import Index
from data_prep.settings import Gaps, Settings
from data_prep.split import SPLITS, Choice, Split

Records = NDArray[np.int64]  # numbers of records in the index

POLICIES: dict[Gaps, str] = {
    "keep-prefix": "of an episode with missing steps, the steps before the first gap are kept",
    "drop": "an episode with missing steps is dropped",
    "keep": "of an episode with missing steps, all that is there is kept",
}


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """An episode to write: its records in the order of their steps."""

    id: str
    subset: str
    split: Split
    goal: str
    records: Records

    def __len__(self) -> int:
        return len(self.records)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What to write, and what happened to every record that was read. Reasons and remarks are words for people."""

    episodes: list[Planned]  # in the order in which they first appear
    num_records: int
    unusable: int  # records of which nothing can be made
    dropped_steps: Counter[str]
    dropped_episodes: Counter[str]
    notes: Counter[str]


class Stop:
    """Tells when a limited run has read enough: `limit` wanted episodes are whole."""

    def __init__(self, settings: Settings) -> None:
        self._limit, self._choice = settings.limit, settings.choice
        self._steps: dict[tuple[str, str], set[int]] = {}
        self._whole: set[tuple[str, str]] = set()

    @property
    def limited(self) -> bool:
        return self._limit is not None

    def after(self, part: Index) -> bool:
        """Take in one part's records; is it the last one needed?"""
        for subset, episode_id, records in part.episodes():
            usable = records[part.why.codes[records] < 0]
            if not len(usable) or self._choice.of(subset, episode_id, _said(part, usable)) not in SPLITS:
                continue
            seen = self._steps.setdefault((subset, episode_id), set())
            seen.update(part.step_id[usable].tolist())
            if len(seen) >= part.length[usable[0]]:
                self._whole.add((subset, episode_id))
        return self._limit is not None and len(self._whole) >= self._limit


class _Cleaned(NamedTuple):
    place: int  # of the episode among those that appear
    episode: Planned
    is_whole: bool


def plan_episodes(index: Index, settings: Settings) -> Plan:
    """Group, order and clean. With a limit, whole episodes come before those with missing steps."""
    plan = Plan([], len(index), int((index.why.codes >= 0).sum()), Counter(), Counter(), Counter())
    cleaned: list[_Cleaned] = []
    for place, (subset, episode_id, found) in enumerate(index.episodes()):
        _note_order(index, found, plan.notes)
        usable = _usable(index, found, plan)
        if not len(usable):
            if episode_id:
                plan.dropped_episodes["no usable step"] += 1
            continue
        split = _split(index, subset, episode_id, usable, settings.choice)
        if split not in SPLITS:
            _drop(plan, split, len(usable))
            continue
        records, is_whole = _without_gaps(
            index, _without_duplicates(index, usable, plan), settings.gaps, plan
        )
        if len(records):
            goal = index.goal.at(records[0]) or ""
            cleaned.append(_Cleaned(place, Planned(episode_id, subset, split, goal, records), is_whole))
    if settings.limit is not None:
        cleaned.sort(key=lambda each: not each.is_whole)  # stable: else in order of appearance
        for each in cleaned[settings.limit :]:
            _drop(plan, "beyond the limit", len(each.episode))
        cleaned = sorted(cleaned[: settings.limit])
    plan.episodes.extend(each.episode for each in cleaned)
    return plan


def _drop(plan: Plan, why: str, num_steps: int) -> None:
    """A whole episode goes."""
    plan.dropped_episodes[why] += 1
    plan.dropped_steps[why] += num_steps


def _usable(index: Index, found: Records, plan: Plan) -> Records:
    """Without the steps of which nothing can be made."""
    bad = index.why.codes[found] >= 0
    if not bad.any():
        return found
    plan.dropped_steps.update(index.why.values[code] for code in index.why.codes[found[bad]].tolist())
    return found[~bad]


def _said(index: Index, records: Records) -> Split | None:
    """The source's own split of an episode."""
    return index.said.at(int(records[0]))  # type: ignore[return-value]


def _split(index: Index, subset: str, episode_id: str, records: Records, choice: Choice) -> str:
    """The split of an episode, or why it is left out."""
    if len(set(index.said.codes[records].tolist())) > 1:
        return "in two splits of the source"
    return choice.of(subset, episode_id, _said(index, records))


def _without_duplicates(index: Index, found: Records, plan: Plan) -> Records:
    """One record per step number, in order. Of several the first wins."""
    first: dict[int, int] = {}
    for record, number in zip(found.tolist(), index.step_id[found].tolist(), strict=True):
        kept = first.setdefault(number, record)
        if kept != record:
            same = bool(index.digest[kept] == index.digest[record])
            plan.dropped_steps["exact duplicate" if same else "conflicting duplicate"] += 1
    records = np.asarray([first[number] for number in sorted(first)], np.int64)
    if len(set(index.goal.codes[records].tolist())) > 1:
        plan.notes["episodes with several goals"] += 1
    return records


def _without_gaps(index: Index, records: Records, gaps: Gaps, plan: Plan) -> tuple[Records, bool]:
    """What the policy leaves of an episode, and whether the episode is whole."""
    numbers = index.step_id[records].tolist()
    stated = int(index.length[records[0]])
    prefix = next((i for i, number in enumerate(numbers) if number != i), len(numbers))
    missing = max(stated, numbers[-1] + 1) - len(numbers)
    if numbers[-1] >= stated:
        plan.notes["episodes longer than stated"] += 1
    if not missing:
        return records, True
    plan.notes["episodes with missing steps"] += 1
    plan.notes["missing steps"] += missing
    match gaps:
        case "keep":
            return records, False
        case "keep-prefix" if prefix:
            if prefix < len(numbers):
                plan.dropped_steps["after a gap"] += len(numbers) - prefix
            return records[:prefix], False
        case _:  # `drop`, or a prefix of nothing
            _drop(plan, "episode with a gap", len(numbers))
            return records[:0], False


def _note_order(index: Index, found: Records, notes: Counter[str]) -> None:
    numbers, parts, rows = (column[found].tolist() for column in (index.step_id, index.part, index.row))
    if numbers != sorted(numbers):
        notes["episodes out of order"] += 1
    if parts[0] != parts[-1]:
        notes["episodes over several shards"] += 1
    places = pairwise(zip(parts, rows, strict=True))
    if any(part == next_part and row + 1 != next_row for (part, row), (next_part, next_row) in places):
        notes["episodes not contiguous"] += 1
