"""Labelled gestures: the corpus (tests/golden/gestures) in, gestures and rates out."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from uivlm.safety.labels import has_keyword

CORPUS = Path(__file__).parents[2] / "tests" / "golden" / "gestures" / "corpus.jsonl"


@dataclass(frozen=True, slots=True)
class LabelledGesture:
    id: str  # a disguised copy has the id of its original, ~ and the disguise
    language: str
    texts: tuple[str, ...]  # on the touched element
    kind: Literal["commit", "harmless"]
    disguise: str
    source: str

    @property
    def held_out(self) -> bool:
        """Half of all ids. A disguised copy is in the half of its original."""
        return hashlib.sha256(self.id.split("~")[0].encode()).digest()[0] % 2 == 1


@dataclass(frozen=True, slots=True)
class Rates:
    """How many gestures of each kind there are, and for how many a person is asked."""

    commits: int
    asked_commits: int
    harmless: int
    asked_harmless: int

    @property
    def recall(self) -> float:
        return self.asked_commits / self.commits

    @property
    def false_ask_rate(self) -> float:
        return self.asked_harmless / self.harmless


def read_corpus(path: Path = CORPUS) -> list[LabelledGesture]:
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [LabelledGesture(**{**row, "texts": tuple(row["texts"])}) for row in rows]


def asked(gestures: Iterable[LabelledGesture], keywords: Sequence[str]) -> frozenset[str]:
    """The ids of the gestures for which a person is asked."""
    return frozenset(
        gesture.id for gesture in gestures if any(has_keyword(text, keywords) for text in gesture.texts)
    )


def rates(gestures: Iterable[LabelledGesture], asked_ids: frozenset[str]) -> Rates:
    by_kind: dict[str, list[bool]] = {"commit": [], "harmless": []}
    for gesture in gestures:
        by_kind[gesture.kind].append(gesture.id in asked_ids)
    commits, harmless = by_kind["commit"], by_kind["harmless"]
    return Rates(len(commits), sum(commits), len(harmless), sum(harmless))
