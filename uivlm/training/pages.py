"""Random screens and lessons as arrays: what patches should name, what a lesson says, where its answers stand.

In: screens (`devices.sim.interface`) and lessons (`uivlm/lessons`). Out: batches for the pre-training of the tiny base.
Shapes: N screens of P patches, T tokens.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import IterableDataset

from uivlm.actions.language import Language
from uivlm.devices.sim.interface import Interface, interface
from uivlm.episode import Element, Screen
from uivlm.lessons.lesson import by_hand, lesson
from uivlm.lessons.pieces import Answer, Ask, Lesson, Show, Spot
from uivlm.lessons.shelf import Shelf
from uivlm.lessons.words import SIGNS
from uivlm.models.llama_vit import Reader
from uivlm.sentences.encode import IGNORE
from uivlm.sentences.sentence import Picture

# Tokens of a lesson, nearly: what is asked for at first, each question, each screen.
ASKED, QUESTION, SCREEN = 20, 13, 32
BINS = 100  # of the places that a base learns
SHARE = (0.6, 0.25, 0.15)  # of what a patch should name: its words or signs, its y, its x


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


class Stream(IterableDataset[tuple[Interface, Tensor]]):
    """Random screens without end, each also as pixels [3, h, w]: a pure function of the seed and the worker's number."""

    def __init__(self, reader: Reader, seed: str) -> None:
        self.reader, self.seed = reader, seed

    def __iter__(self) -> Iterator[tuple[Interface, Tensor]]:
        torch.set_num_threads(1)
        os.nice(10)  # the training threads wait for each other: whoever draws must not hold one of them up
        info = torch.utils.data.get_worker_info()
        rng = Random(f"{self.seed} {info.id if info else 0}")
        while True:
            shown = interface(rng)
            bare = Screen(np.empty((0, 0, 3), np.uint8), shown.screen.elements)  # what was drawn is large
            yield replace(shown, screen=bare), torch.from_numpy(self.reader.pixels(Picture(shown.screen)))


@dataclass(frozen=True, slots=True)
class Sheet:
    """A lesson as arrays, with its pages' numbers on the shelf.

    `marks` [T, 2]: the y and x of what decides an answer, at the patches that show it and at the last word of a question
    about the screen before; "empty" at all other patches; else IGNORE.
    """

    input_ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    marks: NDArray[np.int64]
    pages: tuple[int, ...]


def sheet(given: Lesson, names: Sequence[NDArray[np.int64]], reader: Reader) -> Sheet:
    """`names` [S, 5] of each page of the shelf: what each visual token names, and the number of its patch."""
    say = Language(BINS).say
    ids, labels, marks = (
        list(reader.start),
        [IGNORE] * len(reader.start),
        [(IGNORE, IGNORE)] * len(reader.start),
    )
    pages: list[int] = []
    for piece in given:
        match piece:
            case Ask(text, spot):
                new, trained = reader.words(f"{text}\n"), False
                marked = [(IGNORE, IGNORE)] * len(new)
                if spot is not None and (found := _marks(names[pages[-1]], spot, reader)):
                    marked[-2] = next(iter(found.values()))
            case Show(page, spot):
                pages.append(page)
                found = _marks(names[page], spot, reader) if spot else {}
                new, trained = [reader.placeholder] * len(names[page]), False
                marked = [found.get(token, (reader.pad, reader.pad)) for token in range(len(new))]
                line = reader.words("\n")
                new, marked = new + line, marked + [(IGNORE, IGNORE)] * len(line)
            case Answer(action):
                new, trained = [*reader.words(say(action)), reader.end], True
                marked = [(IGNORE, IGNORE)] * len(new)
        ids += new
        labels += new if trained else [IGNORE] * len(new)
        marks += marked
    return Sheet(np.array(ids), np.array(labels), np.array(marks), tuple(pages))


def _marks(names: NDArray[np.int64], spot: Spot, reader: Reader) -> dict[int, tuple[int, int]]:
    """By visual token: where a finger goes for what it shows of the spot, or else where it is itself; y and x."""
    rows, columns = reader.config.patches
    words = {reader.words(f" {word.rstrip('?')}")[0] for word in spot.words}
    found = {}
    for token, (*shown, y, x, patch) in enumerate(names.tolist()):
        if words & set(shown) and spot.box.holds(
            (patch // columns + 0.5) / rows, (patch % columns + 0.5) / columns
        ):
            found[token] = (y, x) if spot.at is None else (_bin(spot.at.y, reader), _bin(spot.at.x, reader))
    return found


@dataclass(frozen=True, slots=True)
class Course:
    """What lessons are like."""

    lengths: tuple[int, ...]  # screens of a lesson
    questions: int  # beside what is asked for at first
    related: float  # how often what belongs to a label is said for it
    by_hand: bool  # are points as fingers hit them, or exact?


def lessons(
    seed: str, course: Course, tokens: int, shelf: Shelf, names: Sequence[NDArray[np.int64]], reader: Reader
) -> Iterator[dict[str, Tensor]]:
    """Batches of about so many tokens without end, a pure function of the seed. All lessons of a batch have equally
    many screens and questions."""
    rng = Random(f"lessons {seed} {course}")
    while True:
        length = rng.choice(course.lengths)
        size = max(1, tokens // (ASKED + course.questions * QUESTION + length * SCREEN))
        batch = [lesson(rng, shelf, length, course.questions, course.related) for _ in range(size)]
        if course.by_hand:
            batch = [by_hand(rng, one) for one in batch]
        yield collate([sheet(one, names, reader) for one in batch], reader.pad)


def collate(batch: Sequence[Sheet], pad: int) -> dict[str, Tensor]:
    longest = max(len(one.input_ids) for one in batch)
    arrays = {
        "input_ids": np.full((len(batch), longest), pad, np.int64),
        "labels": np.full((len(batch), longest), IGNORE, np.int64),
        "marks": np.full((len(batch), longest, 2), IGNORE, np.int64),
    }
    for i, one in enumerate(batch):
        for name, row in zip(arrays, (one.input_ids, one.labels, one.marks), strict=True):
            arrays[name][i, : len(row)] = row
    arrays["pages"] = np.array([page for one in batch for page in one.pages])
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
