"""Which episodes train and which test: a published list of ids, or a stated rule; and what leaks between them.

In: a JSON file `{label: [ids]}` or nothing. Out: the split of an episode id, or why it is left out, and a report of
leaks.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Split = Literal["train", "validation", "test"]

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
LABELS: dict[str, Split] = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
HASH_RULE = "what the source says; else 80/10/10 by the SHA-256 of the parent episode's id"
EXAMPLES = 5  # ids named in a sentence or a report

_PART = re.compile(r"(\d+)\.\d+-\d+\.")  # AITW `single`: <parent>.<start>-<end>.<goal>


@dataclass(frozen=True, slots=True)
class SplitRule:
    """The split of each episode id. Without a list of ids, the hash decides."""

    name: str  # for the report
    labels: Mapping[str, Split] | None = field(default=None, repr=False)

    def of(self, episode_id: str, said: Split | None = None) -> Split | None:
        """The episode's split; None for an id that the list does not name. `said`: the source's own word."""
        return said or by_hash(episode_id) if self.labels is None else self.labels.get(episode_id)


Left = Literal["not of the subsets", "not in the split file", "not in the share"]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which episodes are prepared, known from their ids alone, so that no other screen is ever encoded."""

    rule: SplitRule
    subsets: frozenset[str] = frozenset()  # none: all of them
    shares: Mapping[str, float] = field(default_factory=dict)  # subset -> share of its train episodes
    seed: int = 0  # another seed, other episodes in the share

    def of(self, subset: str, episode_id: str, said: Split | None = None) -> Split | Left:
        """The split of an episode, or why it is left out."""
        if self.subsets and subset not in self.subsets:
            return "not of the subsets"
        split = self.rule.of(episode_id, said)
        if split is None:
            return "not in the split file"
        share = self.shares.get(subset, 1.0)
        if split == "train" and _fraction(f"{self.seed} {episode_id}") >= share:
            return "not in the share"
        return split


def _fraction(text: str) -> float:
    """A number from 0 (inclusive) to 1 that looks random, the same for the same text everywhere."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6]) / 2**48


def parent(episode_id: str) -> str:
    """The episode that a `single` id was cut from; any other id is its own parent."""
    part = _PART.match(episode_id)
    return part[1] if part else episode_id


def by_hash(episode_id: str) -> Split:
    """HASH_RULE. Parts of one parent episode stay together."""
    tenth = int.from_bytes(hashlib.sha256(parent(episode_id).encode()).digest()[:8]) % 10
    return "train" if tenth < 8 else "validation" if tenth == 8 else "test"


def read_split(path: Path | None) -> SplitRule:
    """The rule of a split file, or the hash rule. Raises ValueError with one sentence."""
    if path is None:
        return SplitRule(HASH_RULE)
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError(f"there is no split file {path}") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"the split file {path} cannot be read as JSON: {error}") from None
    return SplitRule(f"the list of {path.name}", _labels(content, path))


def read_shares(told: Iterable[str]) -> dict[str, float]:
    """`google_apps=0.1`, each for a subset. ValueError with one sentence."""
    shares: dict[str, float] = {}
    for one in told:
        subset, _, number = one.partition("=")
        try:
            share = float(number)
        except ValueError:
            share = -1.0
        if not subset or not 0 <= share <= 1:
            raise ValueError(
                f"--share {one!r}: write SUBSET=SHARE with a share from 0 to 1, such as google_apps=0.1"
            )
        shares[subset] = share
    return shares


def _labels(content: object, path: Path) -> dict[str, Split]:
    if not isinstance(content, dict) or not content:
        raise ValueError(f"the split file {path} is not an object of labels, each with a list of episode ids")
    labels: dict[str, Split] = {}
    twice: dict[str, tuple[Split, Split]] = {}
    for label, ids in content.items():
        if label not in LABELS:
            raise ValueError(f"the split file {path} has the label {label!r}: known are {', '.join(LABELS)}")
        if not isinstance(ids, list) or not all(type(i) in (str, int) for i in ids):
            raise ValueError(f"the split file {path} has no list of episode ids under {label!r}")
        for episode_id in map(str, ids):
            before = labels.setdefault(episode_id, LABELS[label])
            if before != LABELS[label]:
                twice[episode_id] = (before, LABELS[label])
    if twice:
        first, (one, other) = next(iter(twice.items()))
        raise ValueError(
            f"the split file {path} puts {len(twice)} episode ids under two labels, the first is {first!r} "
            f"in {one} and {other}: remove them from one"
        )
    return labels


def leaks(episodes: Iterable[tuple[str, str, Split]]) -> dict[str, dict[str, int | list[str]]]:
    """What the test split shares with train, from (id, goal, split) of each prepared episode.

    For the id, the parent episode and the goal text: how many test episodes share it, of how many, and examples.
    """
    listed = list(episodes)
    train = [(i, goal) for i, goal, split in listed if split == "train"]
    test = [(i, goal) for i, goal, split in listed if split == "test"]
    seen = {
        "id": {i for i, _ in train},
        "parent": {parent(i) for i, _ in train},
        "goal": {g for _, g in train},
    }
    report: dict[str, dict[str, int | list[str]]] = {}
    for what, known in seen.items():
        keys = [{"id": i, "parent": parent(i), "goal": goal}[what] for i, goal in test]
        shared = [key for key in keys if key in known]
        report[what] = {
            "test_episodes": len(shared), "of": len(test), "examples": sorted(set(shared))[:EXAMPLES]
        }  # fmt: skip
    return report
