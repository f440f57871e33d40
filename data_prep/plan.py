"""Grouping of steps into episodes: the index of all records in; the episodes to write, and counts, out.

The steps of an episode may be interleaved, out of order, spread over parts, duplicated, unusable or
missing. The first of several steps with the same number is kept. A policy decides about episodes with
missing steps.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.index import RecordIndex
from data_prep.settings import MissingStepsPolicy, PrepSettings
from data_prep.source import SourcePart
from data_prep.split import MAX_EXAMPLES, SPLITS, EpisodeSelection, Split
from uivlm.episodes.subsample import hash_rank

RecordIndices = NDArray[np.int64]  # positions in the index

MISSING_STEPS_POLICIES: dict[MissingStepsPolicy, str] = {
    "keep-prefix": "keep the steps before the first gap",
    "drop": "drop the episode",
    "keep": "keep all recorded steps",
}


@dataclass(frozen=True, slots=True, eq=False)
class PlannedEpisode:
    """An episode to write: its records in the order of their steps."""

    id: str
    subset: str
    split: Split
    goal: str
    records: RecordIndices

    def __len__(self) -> int:
        return len(self.records)


@dataclass(frozen=True, slots=True, eq=False)
class PrepPlan:
    """What to write, and what happened to every record. The keys of the counters are text for people."""

    episodes: list[PlannedEpisode]  # in the order in which they first appear
    num_records: int
    num_unusable: int  # records that cannot become a row
    dropped_steps: Counter[str]
    dropped_episodes: Counter[str]
    notes: Counter[str]
    examples: list[str]  # sentences about dropped episodes, at most MAX_EXAMPLES


class EpisodeLimit:
    """Detects when enough parts are read: each subset has `max_episodes` complete episodes, or no parts."""

    def __init__(self, settings: PrepSettings, parts: Sequence[SourcePart]) -> None:
        self._max_episodes, self._selection = settings.max_episodes, settings.selection
        self._unread = Counter(subset for part in parts for subset in part.subsets)  # number of parts
        self._steps: dict[tuple[str, str], set[int]] = {}
        self._complete: dict[str, set[str]] = {}  # subset -> ids

    @property
    def is_set(self) -> bool:
        return self._max_episodes is not None

    def reached_after(self, part: SourcePart, records: RecordIndex) -> bool:
        """Add one part and its records. Returns whether it is the last part needed."""
        self._unread.subtract(part.subsets)
        for subset, episode_id, indices in records.episodes():
            usable = indices[records.reject_reason.codes[indices] < 0]
            if (
                not len(usable)
                or self._selection.split_of(subset, episode_id, _source_split(records, usable)) not in SPLITS
            ):
                continue
            steps = self._steps.setdefault((subset, episode_id), set())
            steps.update(records.step_id[usable].tolist())
            if len(steps) >= records.stated_length[usable[0]]:
                self._complete.setdefault(subset, set()).add(episode_id)
        return self._max_episodes is not None and all(
            len(self._complete.get(subset, ())) >= self._max_episodes
            for subset, num_parts in self._unread.items()
            if num_parts and (not self._selection.subsets or subset in self._selection.subsets)
        )


def by_turns(parts: Sequence[SourcePart]) -> list[SourcePart]:
    """The parts in another order: the first of each subset, the second of each subset, and so on."""
    num_earlier: Counter[tuple[str, ...]] = Counter()
    turns: list[int] = []
    for part in parts:
        turns.append(num_earlier[part.subsets])
        num_earlier[part.subsets] += 1
    return [part for _, part in sorted(zip(turns, parts, strict=True), key=lambda item: item[0])]


class _CleanedEpisode(NamedTuple):
    position: int  # in order of appearance
    episode: PlannedEpisode
    is_complete: bool


def plan_episodes(index: RecordIndex, settings: PrepSettings) -> PrepPlan:
    """Group, order and clean. With `max_episodes`, as many of each subset are kept, complete ones first."""
    plan = PrepPlan(
        [], len(index), int((index.reject_reason.codes >= 0).sum()), Counter(), Counter(), Counter(), []
    )
    cleaned: list[_CleanedEpisode] = []
    for position, (subset, episode_id, episode_records) in enumerate(index.episodes()):
        _note_order(index, episode_records, plan.notes)
        usable = _usable_records(index, episode_records, plan)
        if not len(usable):
            if episode_id:
                plan.dropped_episodes["no usable step"] += 1
            continue
        split = _split_of(index, subset, episode_id, usable, settings.selection)
        if split not in SPLITS:
            _drop_episode(plan, split, len(usable))
            continue
        if conflict := _conflict(index, usable):
            _drop_episode(plan, "two recordings of one id", len(usable))
            if len(plan.examples) < MAX_EXAMPLES:
                plan.examples.append(f"two recordings of the id {episode_id!a} in {subset}: {conflict}")
            continue
        records, is_complete = _without_gaps(
            index, _without_duplicates(index, usable, plan), settings.missing_steps, plan
        )
        if len(records):
            goal = index.goal.value_at(records[0]) or ""
            episode = PlannedEpisode(episode_id, subset, split, goal, records)
            cleaned.append(_CleanedEpisode(position, episode, is_complete))
    if settings.max_episodes is not None:
        cleaned = _limited(cleaned, settings.max_episodes, plan)
    plan.episodes.extend(item.episode for item in cleaned)
    return plan


def _limited(cleaned: list[_CleanedEpisode], max_per_subset: int, plan: PrepPlan) -> list[_CleanedEpisode]:
    """At most `max_per_subset` episodes of each subset, in order: complete ones first, chosen by a hash."""
    num_kept: Counter[str] = Counter()
    kept: list[_CleanedEpisode] = []
    ranked = sorted(
        cleaned,
        key=lambda item: (not item.is_complete, hash_rank(item.episode.subset, item.episode.id)),
    )
    for item in ranked:
        if num_kept[item.episode.subset] < max_per_subset:
            num_kept[item.episode.subset] += 1
            kept.append(item)
        else:
            _drop_episode(plan, "beyond max_episodes", len(item.episode))
    return sorted(kept)


def _drop_episode(plan: PrepPlan, reason: str, num_steps: int) -> None:
    """Count a whole episode as dropped."""
    plan.dropped_episodes[reason] += 1
    plan.dropped_steps[reason] += num_steps


def _usable_records(index: RecordIndex, episode_records: RecordIndices, plan: PrepPlan) -> RecordIndices:
    """The records without the unusable ones, which are counted."""
    unusable = index.reject_reason.codes[episode_records] >= 0
    if not unusable.any():
        return episode_records
    plan.dropped_steps.update(
        index.reject_reason.values[code]
        for code in index.reject_reason.codes[episode_records[unusable]].tolist()
    )
    return episode_records[~unusable]


def _source_split(index: RecordIndex, records: RecordIndices) -> Split | None:
    """The source's own split of an episode."""
    return index.source_split.value_at(int(records[0]))  # type: ignore[return-value]


def _split_of(
    index: RecordIndex, subset: str, episode_id: str, records: RecordIndices, selection: EpisodeSelection
) -> str:
    """The split of an episode, or why it is excluded."""
    if len(set(index.source_split.codes[records].tolist())) > 1:
        return "in two splits of the source"
    return selection.split_of(subset, episode_id, _source_split(index, records))


def _conflict(index: RecordIndex, episode_records: RecordIndices) -> str:
    """Why the records cannot be of one recording: the facts that contradict; "" if they can.

    A copy of a whole recording is no contradiction: its steps are exact duplicates.
    """
    first = int(episode_records[0])
    others = episode_records[_differs(index.recording.codes, episode_records)]
    if len(others):
        copied = set(index.digest[np.setdiff1d(episode_records, others)].tolist())
        if not copied.issuperset(index.digest[others].tolist()):
            return f"{index.recording.value_at(first)} and {index.recording.value_at(int(others[0]))}"
    for other in episode_records[_differs(index.goal.codes, episode_records)][:1].tolist():
        return f"the goals {index.goal.value_at(first)!a:.60} and {index.goal.value_at(other)!a:.60}"
    for other in episode_records[_differs(index.stated_length, episode_records)][:1].tolist():
        return f"{index.stated_length[first]} and {index.stated_length[other]} steps"
    return ""


def _differs(column: NDArray[Any], records: RecordIndices) -> NDArray[np.bool_]:
    """Which of the records have another value in this column than the first."""
    values = column[records]
    return np.asarray(values != values[0])


def _without_duplicates(index: RecordIndex, episode_records: RecordIndices, plan: PrepPlan) -> RecordIndices:
    """One record per step number, in order; the first of duplicates is kept."""
    first: dict[int, int] = {}
    for record, step_id in zip(
        episode_records.tolist(), index.step_id[episode_records].tolist(), strict=True
    ):
        original = first.setdefault(step_id, record)
        if original != record:
            same = bool(index.digest[original] == index.digest[record])
            plan.dropped_steps["exact duplicate" if same else "conflicting duplicate"] += 1
    return np.asarray([first[step_id] for step_id in sorted(first)], np.int64)


def _without_gaps(
    index: RecordIndex, records: RecordIndices, policy: MissingStepsPolicy, plan: PrepPlan
) -> tuple[RecordIndices, bool]:
    """The records that the policy keeps of an episode, and whether the episode is complete."""
    step_ids = index.step_id[records].tolist()
    stated = int(index.stated_length[records[0]])
    prefix = next((i for i, step_id in enumerate(step_ids) if step_id != i), len(step_ids))
    missing = max(stated, step_ids[-1] + 1) - len(step_ids)
    if step_ids[-1] >= stated:
        plan.notes["episodes longer than stated"] += 1
    if not missing:
        return records, True
    plan.notes["episodes with missing steps"] += 1
    plan.notes["missing steps"] += missing
    match policy:
        case "keep":
            return records, False
        case "keep-prefix" if prefix:
            if prefix < len(step_ids):
                plan.dropped_steps["after a gap"] += len(step_ids) - prefix
            return records[:prefix], False
        case _:  # `drop`, or an empty prefix
            _drop_episode(plan, "episode with a gap", len(step_ids))
            return records[:0], False


def _note_order(index: RecordIndex, episode_records: RecordIndices, notes: Counter[str]) -> None:
    step_ids, parts, rows = (
        column[episode_records].tolist() for column in (index.step_id, index.part_index, index.row_index)
    )
    if step_ids != sorted(step_ids):
        notes["episodes out of order"] += 1
    if parts[0] != parts[-1]:
        notes["episodes over several shards"] += 1
    pairs = pairwise(zip(parts, rows, strict=True))
    if any(part == next_part and row + 1 != next_row for (part, row), (next_part, next_row) in pairs):
        notes["episodes not contiguous"] += 1
