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
from uivlm.episode import Screen
from uivlm.lessons import Lesson, lesson
from uivlm.models.llama_vit import Reader
from uivlm.sentences.encode import IGNORE, Example, encode
from uivlm.sentences.sentence import Picture

BINS = 100  # of the places that a base learns
PLACE = (0.25, 0.15)  # share of its y and x in what a patch should name; the rest is its words


def shown_words(
    screen: Screen, reader: Reader, most: int = 2
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """What each patch should name: ids [P, most + 2] of words, y and x; and the share of each in it."""
    rows, columns = reader.config.patches
    ids = np.full((rows * columns, most), reader.pad, np.int64)
    share = np.zeros((rows * columns, most), np.float32)
    for element in screen.elements:
        if element.text:
            row = min(int((element.y + element.height / 2) * rows), rows - 1)
            for word, left, right in _word_spans(element.text, element.x, element.width):
                token = reader.words(f" {word}")[0]
                for column in range(max(0, int(left * columns)), min(columns, int(right * columns) + 1)):
                    overlap = min(right * columns, column + 1) - max(left * columns, column)
                    cell = row * columns + column
                    slot = int(share[cell].argmin())
                    if overlap > max(0.1, share[cell, slot]):
                        ids[cell, slot], share[cell, slot] = token, overlap
    share[share.sum(1) == 0, 0] = 1.0
    share *= (1 - sum(PLACE)) / share.sum(1, keepdims=True)
    return np.concatenate([ids, places(reader)], 1), np.concatenate(
        [share, np.tile(PLACE, (len(share), 1))], 1, dtype=np.float32
    )


def places(reader: Reader) -> NDArray[np.int64]:
    """Ids [P, 2] of the bins in which each patch's middle lies: y, x."""
    rows, columns = reader.config.patches
    ys = [reader.words(f" {int((row + 0.5) / rows * BINS)}")[0] for row in range(rows)]
    xs = [reader.words(f" {int((column + 0.5) / columns * BINS)}")[0] for column in range(columns)]
    return np.array([(y, x) for y in ys for x in xs], np.int64)


def _word_spans(text: str, x: float, width: float) -> Iterator[tuple[str, float, float]]:
    """Each word with its left and right end, as if all letters were equally wide."""
    start = 0
    for word in text.split(" "):
        yield word, x + width * start / len(text), x + width * (start + len(word)) / len(text)
        start += len(word) + 1


@dataclass(frozen=True, slots=True)
class Page:
    """A lesson as arrays."""

    example: Example
    word_ids: NDArray[np.int64]  # [N, P, 4]
    word_share: NDArray[np.float32]  # [N, P, 4]
    marks: NDArray[
        np.int64
    ]  # [T] at each patch: its y bin where it shows what is asked for, else "empty"; else IGNORE


def page(given: Lesson, reader: Reader) -> Page:
    screens = [piece.screen for piece in given.sentence if isinstance(piece, Picture)]
    read = [shown_words(screen, reader) for screen in screens]
    example = encode(given.sentence, reader)
    marks = np.full(len(example.input_ids), IGNORE, np.int64)
    patches = np.flatnonzero(example.input_ids == reader.config.picture_id)
    marks[patches] = np.concatenate(
        [_marks(ids, asked, reader) for (ids, _), asked in zip(read, given.asked, strict=True)]
    )
    return Page(example, np.stack([ids for ids, _ in read]), np.stack([share for _, share in read]), marks)


def _marks(ids: NDArray[np.int64], asked: tuple[Label, ...], reader: Reader) -> NDArray[np.int64]:
    """[P]: the y of the patches inside an asked label's box that show one of its words."""
    rows, columns = reader.config.patches
    marks = np.full(len(ids), reader.pad, np.int64)
    for label in asked:
        words = {reader.words(f" {word}")[0] for word in label.text.split()}
        for cell, (*shown, y, _) in enumerate(ids.tolist()):
            row = (cell // columns + 0.5) / rows
            inside = any(label.box.holds(row, (cell % columns + part) / columns) for part in (0.2, 0.5, 0.8))
            if inside and words & set(shown):
                marks[cell] = y
    return marks


class Stream(IterableDataset[Page]):
    """Lessons without end, a pure function of the seed and the worker's number."""

    def __init__(self, reader: Reader, seed: int) -> None:
        self.reader, self.seed = reader, seed

    def __iter__(self) -> Iterator[Page]:
        torch.set_num_threads(1)
        os.nice(10)  # the training threads wait for each other: whoever draws must not hold one of them up
        info = torch.utils.data.get_worker_info()
        rng = Random(f"{self.seed} {info.id if info else 0}")
        while True:
            yield page(lesson(rng, BINS), self.reader)


def collate(batch: list[Page], pad: int) -> dict[str, Tensor]:
    longest = max(len(one.example.input_ids) for one in batch)
    arrays = {
        "input_ids": np.full((len(batch), longest), pad, np.int64),
        "labels": np.full((len(batch), longest), IGNORE, np.int64),
        "marks": np.full((len(batch), longest), IGNORE, np.int64),
        "attention_mask": np.zeros((len(batch), longest), bool),
    }
    for i, one in enumerate(batch):
        length = len(one.example.input_ids)
        for name, row in zip(
            arrays, (one.example.input_ids, one.example.labels, one.marks, True), strict=True
        ):
            arrays[name][i, :length] = row
    arrays["pixels"] = np.concatenate([one.example.pixels for one in batch])
    arrays["word_ids"] = np.concatenate([one.word_ids for one in batch])
    arrays["word_share"] = np.concatenate([one.word_share for one in batch])
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
