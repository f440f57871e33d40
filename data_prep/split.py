"""The split of every episode: from a published list of ids or a fixed rule; and leaks between the splits.

In: JSON files `{label: [ids]}` or nothing. Out: the split of an episode id, or why it is excluded, and a
report of leaks.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Split = Literal["train", "validation", "test"]

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
LABELS: dict[str, Split] = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
HASH_RULE = "the source's own split; else 80/10/10 by the SHA-256 of the parent episode's id"
MAX_EXAMPLES = 5  # ids in an error or a report

_PART = re.compile(r"(\d+)\.\d+-\d+\.")  # AITW `single`: <parent>.<start>-<end>.<goal>


DuplicateIdsPolicy = Literal["refuse", "drop", "first"]


@dataclass(frozen=True, slots=True)
class SplitRule:
    """The split of each episode id: by lists of ids or, without one, by hash."""

    name: str  # for the report
    labels: Mapping[str, Split] | None = field(default=None, repr=False)
    duplicate_ids: frozenset[str] = frozenset()  # under two labels of the lists
    duplicate_policy: DuplicateIdsPolicy = "refuse"

    def split_of(self, episode_id: str, source_split: Split | None = None) -> Split | None:
        """The split; None for an id that is not in the list. A list overrides the source's own split."""
        if self.labels is not None:
            return self.labels.get(episode_id)
        return source_split or split_by_hash(episode_id)


ExclusionReason = Literal[
    "not in the subsets", "not in the split file", "under two split labels", "not in the subsample"
]


@dataclass(frozen=True, slots=True)
class EpisodeSelection:
    """Which episodes are prepared. Their ids alone decide, so that no other screen is ever encoded."""

    rule: SplitRule
    subsets: frozenset[str] = frozenset()  # empty: all
    subsample: Mapping[str, float] = field(default_factory=dict)  # subset -> fraction of its train episodes
    seed: int = 0  # of the subsample

    def split_of(
        self, subset: str, episode_id: str, source_split: Split | None = None
    ) -> Split | ExclusionReason:
        """The split of an episode, or why it is excluded."""
        if self.subsets and subset not in self.subsets:
            return "not in the subsets"
        split = self.rule.split_of(episode_id, source_split)
        if split is None:
            duplicate = episode_id in self.rule.duplicate_ids
            return "under two split labels" if duplicate else "not in the split file"
        fraction = self.subsample.get(subset, 1.0)
        if split == "train" and _hash_fraction(f"{self.seed} {episode_id}") >= fraction:
            return "not in the subsample"
        return split


def _hash_fraction(text: str) -> float:
    """A pseudorandom number in [0, 1) that depends on the text alone."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6]) / 2**48


def parent_id(episode_id: str) -> str:
    """The episode that a `single` episode was cut from; any other episode is its own parent."""
    part = _PART.match(episode_id)
    return part[1] if part else episode_id


def split_by_hash(episode_id: str) -> Split:
    """The split by HASH_RULE. Parts of one parent episode get the same split."""
    tenth = int.from_bytes(hashlib.sha256(parent_id(episode_id).encode()).digest()[:8]) % 10
    return "train" if tenth < 8 else "validation" if tenth == 8 else "test"


def read_split(paths: Sequence[Path] = (), duplicate_policy: DuplicateIdsPolicy = "refuse") -> SplitRule:
    """The rule of the split files together or, without one, the hash rule. Raises ValueError.

    An id under two labels, of one file or of two, is an error, excluded, or has its first label in the order
    of the files.
    """
    if not paths:
        return SplitRule(HASH_RULE)
    labels: dict[str, Split] = {}
    conflicts: dict[str, tuple[Split, Split]] = {}
    for path in paths:
        for split, episode_id in _labelled_ids(path):
            first = labels.setdefault(episode_id, split)
            if first != split:
                conflicts.setdefault(episode_id, (first, split))
    names = ", ".join(path.name for path in paths)
    if conflicts and duplicate_policy == "refuse":
        episode_id, (first, split) = next(iter(conflicts.items()))
        raise ValueError(
            f"--split {names}: {len(conflicts)} episode ids are under two labels, such as {episode_id!r} in "
            f"{first} and {split}. Remove them from one, or choose --duplicate-ids drop or first"
        )
    if duplicate_policy == "drop":
        labels = {episode_id: split for episode_id, split in labels.items() if episode_id not in conflicts}
    return SplitRule(f"the list of {names}", labels, frozenset(conflicts), duplicate_policy)


def check_subsets(selection: EpisodeSelection, known: Iterable[str]) -> None:
    """Raise ValueError for a subset that the source does not have: `known` are those that it has."""
    names = sorted(set(known))
    for option, chosen in (("subset", selection.subsets), ("subsample", selection.subsample)):
        for name in sorted(set(chosen) - set(names)):
            raise ValueError(f"{option}: got {name!r}; expected a subset of the source: {', '.join(names)}")


def parse_subsample(arguments: Iterable[str]) -> dict[str, float]:
    """The fraction of each subset, from arguments such as `google_apps=0.1`. Raises ValueError."""
    fractions: dict[str, float] = {}
    for argument in arguments:
        subset, _, value = argument.partition("=")
        try:
            fraction = float(value)
        except ValueError:
            fraction = -1.0
        if not subset or not 0 <= fraction <= 1:
            raise ValueError(
                f"subsample: got {argument!r}; expected SUBSET=FRACTION from 0 to 1, such as google_apps=0.1"
            )
        fractions[subset] = fraction
    return fractions


def _labelled_ids(path: Path) -> Iterator[tuple[Split, str]]:
    """The ids of a split file, each with its split, in the order of the file. Raises ValueError."""
    try:
        content = json.loads(path.read_bytes())  # with or without a byte order mark
    except FileNotFoundError:
        raise ValueError(f"there is no split file {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"the split file {path} is not JSON: {error}") from None
    if not isinstance(content, dict) or not content:
        raise ValueError(
            f"the split file {path} must be an object of labels, each with a list of episode ids"
        )
    for label, ids in content.items():
        if label not in LABELS:
            raise ValueError(
                f"the split file {path}: got the label {label!r}; expected one of {', '.join(LABELS)}"
            )
        if not isinstance(ids, list) or not all(type(i) in (str, int) for i in ids):
            raise ValueError(f"the split file {path}: {label!r} must be a list of episode ids")
        for episode_id in ids:
            yield LABELS[label], str(episode_id)


def find_leaks(episodes: Iterable[tuple[str, str, Split]]) -> dict[str, dict[str, int | list[str]]]:
    """The overlap of test with train, from (id, goal, split) of each prepared episode.

    For the id, the parent episode and the goal text: the number of test episodes that share it, and examples.
    """
    episodes = list(episodes)
    train = [(i, goal) for i, goal, split in episodes if split == "train"]
    test = [(i, goal) for i, goal, split in episodes if split == "test"]
    train_values = {
        "id": {i for i, _ in train},
        "parent": {parent_id(i) for i, _ in train},
        "goal": {g for _, g in train},
    }
    report: dict[str, dict[str, int | list[str]]] = {}
    for name, in_train in train_values.items():
        values = [{"id": i, "parent": parent_id(i), "goal": goal}[name] for i, goal in test]
        shared = [value for value in values if value in in_train]
        report[name] = {
            "test_episodes": len(shared), "of": len(test), "examples": sorted(set(shared))[:MAX_EXAMPLES]
        }  # fmt: skip
    return report
