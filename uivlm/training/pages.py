"""Lessons as arrays: what a sentence says, and what each patch of its screens should name and mark.

In: lessons (`uivlm/lessons.py`). Out: batches for the pre-training of the tiny base. Shapes: N screens of P patches, T
tokens.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import IterableDataset

from uivlm.devices.sim.interface import Label
from uivlm.episode import Element, Screen
from uivlm.lessons import Lesson, lesson
from uivlm.models.llama_vit import Reader
from uivlm.sentences.encode import IGNORE, Example, encode
from uivlm.sentences.sentence import Picture

LENGTHS = (2, 3, 3, 4, 6, 8)  # screens of a lesson
BINS = 100  # of the places that a base learns
SHARE = (0.6, 0.25, 0.15)  # of what a patch should name: its words or signs, its y, its x
SIGNS = {
    "ICON_SWITCH_ON": "on",
    "ICON_SWITCH_OFF": "off",
    "ICON_PLUS": "plus",
    "ICON_SEARCH": "search",
    "ICON_MORE": "more",
    "ICON_CURSOR": "type",
    "ICON_V_BACKWARD": "back",
    "ICON_NAV_BAR_CIRCLE": "home",
}


def shown_words(screen: Screen, reader: Reader) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """What each patch should name: ids [P, 4] of up to two words or signs, y and x; and the share of each in it."""
    rows, columns = reader.config.patches
    ids = np.full((rows * columns, 2), reader.pad, np.int64)
    for element in screen.elements:
        row = min(int((element.y + element.height / 2) * rows), rows - 1)
        for column, word in _names(element, columns):
            slot = ids[row * columns + column]
            slot[0 if slot[0] == reader.pad else 1] = reader.words(f" {word}")[0]
    words, y, x = SHARE
    two = ids[:, 1] != reader.pad
    share = np.stack([np.where(two, words / 2, words), np.where(two, words / 2, 0)], 1)
    return np.concatenate([ids, places(reader)], 1), np.concatenate(
        [share, np.tile((y, x), (len(share), 1))], 1, dtype=np.float32
    )


def _names(element: Element, columns: int) -> Iterator[tuple[int, str]]:
    """Each word of an element, or what its sign means, with its column."""
    if element.text:
        first = int(element.x * columns)
        words = [word.rstrip("?") for word in element.text.split()]
    else:
        first = int((element.x + element.width / 2) * columns)
        words = [SIGNS[element.kind]] if element.kind in SIGNS else []
    yield from ((first + i, word) for i, word in enumerate(words) if word and first + i < columns)


def places(reader: Reader) -> NDArray[np.int64]:
    """Ids [P, 2] of the bins in which each patch's middle lies: y, x."""
    rows, columns = reader.config.patches
    ys = [_bin((row + 0.5) / rows, reader) for row in range(rows)]
    xs = [_bin((column + 0.5) / columns, reader) for column in range(columns)]
    return np.array([(y, x) for y in ys for x in xs], np.int64)


def _bin(at: float, reader: Reader) -> int:
    return reader.words(f" {int(at * BINS)}")[0]


@dataclass(frozen=True, slots=True)
class Page:
    """A lesson as arrays."""

    example: Example
    word_ids: NDArray[np.int64]  # [N, P, 4]
    word_share: NDArray[np.float32]  # [N, P, 4]
    marks: NDArray[
        np.int64
    ]  # [T, 2] at each patch: the y and x to tap where it shows what is asked for, else "empty"; else IGNORE


def page(given: Lesson, reader: Reader) -> Page:
    screens = [piece.screen for piece in given.sentence if isinstance(piece, Picture)]
    read = [shown_words(screen, reader) for screen in screens]
    example = encode(given.sentence, reader)
    marks = np.full((len(example.input_ids), 2), IGNORE, np.int64)
    patches = np.flatnonzero(example.input_ids == reader.config.picture_id)
    marks[patches] = np.concatenate(
        [_marks(ids, asked, reader) for (ids, _), asked in zip(read, given.asked, strict=True)]
    )
    return Page(example, np.stack([ids for ids, _ in read]), np.stack([share for _, share in read]), marks)


def _marks(ids: NDArray[np.int64], asked: tuple[Label, ...], reader: Reader) -> NDArray[np.int64]:
    """[P, 2]: where to tap, y and x, at the patches inside an asked label's box that show one of its words."""
    rows, columns = reader.config.patches
    marks = np.full((len(ids), 2), reader.pad, np.int64)
    for label in asked:
        words = {reader.words(f" {word}")[0] for word in label.text.split()}
        for cell, (*shown, _, _) in enumerate(ids.tolist()):
            middle = ((cell // columns + 0.5) / rows, (cell % columns + 0.5) / columns)
            if label.box.holds(*middle) and words & set(shown):
                marks[cell] = _bin(label.at.y, reader), _bin(label.at.x, reader)
    return marks


class Stream(IterableDataset[dict[str, Tensor]]):
    """Batches of lessons without end, a pure function of the seed and the worker's number.

    All lessons of a batch have equally many screens, and all batches about equally many.
    """

    def __init__(self, reader: Reader, seed: int, screens: int) -> None:
        self.reader, self.seed, self.screens = reader, seed, screens

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        torch.set_num_threads(1)
        os.nice(10)  # the training threads wait for each other: whoever draws must not hold one of them up
        info = torch.utils.data.get_worker_info()
        rng = Random(f"{self.seed} {info.id if info else 0}")
        while True:
            length = rng.choice(LENGTHS)
            lessons = [lesson(rng, BINS, length) for _ in range(max(1, self.screens // length))]
            yield collate([page(one, self.reader) for one in lessons], self.reader.pad)


def collate(batch: list[Page], pad: int) -> dict[str, Tensor]:
    longest = max(len(one.example.input_ids) for one in batch)
    arrays = {
        "input_ids": np.full((len(batch), longest), pad, np.int64),
        "labels": np.full((len(batch), longest), IGNORE, np.int64),
        "marks": np.full((len(batch), longest, 2), IGNORE, np.int64),
        "attention_mask": np.zeros((len(batch), longest), bool),
    }
    for i, one in enumerate(batch):
        length = len(one.example.input_ids)
        for name, row in zip(
            arrays, (one.example.input_ids, one.example.labels, one.marks, True), strict=True
        ):
            arrays[name][i, :length] = row
    arrays["pixels"] = np.stack([screen for one in batch for screen in one.example.pixels])
    arrays["word_ids"] = np.concatenate([one.word_ids for one in batch])
    arrays["word_share"] = np.concatenate([one.word_share for one in batch])
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
