"""Random screens and lessons as arrays: what patches should name, the tokens of lessons, where their answers
are.

In: screens (`random_screens.py`) and lessons (`lesson.py`). Out: batches for the pre-training of the tiny
base. Shapes: N screens of P patches, T tokens, S visual tokens of a screen.
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

from uivlm.actions.text import ActionText
from uivlm.episodes.encode import IGNORE
from uivlm.episodes.episode import Element, Screen
from uivlm.episodes.sentence import ScreenPiece
from uivlm.models.bridge.processor import BridgeProcessor
from uivlm.training.tiny_base.lesson import random_lesson, with_touch_jitter
from uivlm.training.tiny_base.random_screens import RandomScreen, random_screen
from uivlm.training.tiny_base.screen_index import Ask, ExpertAction, Lesson, ScreenIndex, Show, Spot
from uivlm.training.tiny_base.vocabulary import ICON_WORDS

# Estimated tokens of a lesson: its goal, each question, each screen.
TOKENS_PER_GOAL, TOKENS_PER_QUESTION, TOKENS_PER_SCREEN = 20, 13, 32
NUM_BINS = 100  # bins of the coordinates that the base learns
TARGET_WEIGHTS = (0.6, 0.25, 0.15)  # of what a patch should name: its words or icons, its y, its x


def patch_targets(
    screen: Screen, processor: BridgeProcessor
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """What each patch should name: ids [P, 4] of up to two words or icons, y and x; their weights [P, 4]."""
    rows, columns = processor.config.patch_grid
    ids = np.full((rows * columns, 2), processor.pad_id, np.int64)
    for element in screen.elements:
        row = min(int((element.y + element.height / 2) * rows), rows - 1)
        for column, word in _element_words(element, columns):
            slot = ids[row * columns + column]
            slot[0 if slot[0] == processor.pad_id else 1] = processor.encode(f" {word}")[0]
    word_weight, y, x = TARGET_WEIGHTS
    two = ids[:, 1] != processor.pad_id
    weights = np.stack([np.where(two, word_weight / 2, word_weight), np.where(two, word_weight / 2, 0)], 1)
    return np.concatenate([ids, patch_positions(processor)], 1), np.concatenate(
        [weights, np.tile((y, x), (len(weights), 1))], 1, dtype=np.float32
    )


def _element_words(element: Element, columns: int) -> Iterator[tuple[int, str]]:
    """Each word of an element, or the meaning of its icon, with its column."""
    if element.text:
        first = int(element.x * columns)
        words = [word.rstrip("?") for word in element.text.split()]
    else:
        first = int((element.x + element.width / 2) * columns)
        words = [ICON_WORDS[element.ui_type]] if element.ui_type in ICON_WORDS else []
    yield from ((first + i, word) for i, word in enumerate(words) if word and first + i < columns)


def patch_positions(processor: BridgeProcessor) -> NDArray[np.int64]:
    """Ids [P, 2] of the bins of each patch's center: y, x."""
    rows, columns = processor.config.patch_grid
    ys = [_bin_id((row + 0.5) / rows, processor) for row in range(rows)]
    xs = [_bin_id((column + 0.5) / columns, processor) for column in range(columns)]
    return np.array([(y, x) for y in ys for x in xs], np.int64)


def _bin_id(coordinate: float, processor: BridgeProcessor) -> int:
    return processor.encode(f" {int(coordinate * NUM_BINS)}")[0]


class ScreenStream(IterableDataset[tuple[RandomScreen, Tensor]]):
    """An endless stream of random screens and their pixels [3, h, w]: a pure function of the seed and the
    worker id.
    """

    def __init__(self, processor: BridgeProcessor, seed: str) -> None:
        self.processor, self.seed = processor, seed

    def __iter__(self) -> Iterator[tuple[RandomScreen, Tensor]]:
        torch.set_num_threads(1)
        os.nice(10)  # training threads wait for each other; drawing must not delay one of them
        info = torch.utils.data.get_worker_info()
        rng = Random(f"{self.seed} {info.id if info else 0}")
        while True:
            drawn = random_screen(rng)
            pixels = torch.from_numpy(self.processor.pixel_values(ScreenPiece(drawn.screen)))
            without_pixels = Screen(
                np.empty((0, 0, 3), np.uint8), drawn.screen.elements
            )  # the drawing is large
            yield replace(drawn, screen=without_pixels), pixels


@dataclass(frozen=True, slots=True)
class EncodedLesson:
    """A lesson as arrays.

    `marks` are the y and x of what decides an answer: at the patches that show it, and at the last word of a
    question about the previous screen. All other patches have the padding id, all other tokens IGNORE.
    """

    input_ids: NDArray[np.int64]  # [T]
    labels: NDArray[np.int64]  # [T]
    marks: NDArray[np.int64]  # [T, 2]
    pages: tuple[int, ...]  # indices into the screen index


def encode_lesson(
    lesson: Lesson, names: Sequence[NDArray[np.int64]], processor: BridgeProcessor
) -> EncodedLesson:
    """`names` [S, 5] of each indexed page: what each visual token names, and the index of its patch."""
    action_text = ActionText(NUM_BINS)
    ids = list(processor.bos_ids)
    labels = [IGNORE] * len(ids)
    marks = [(IGNORE, IGNORE)] * len(ids)
    pages: list[int] = []
    for piece in lesson:
        match piece:
            case Ask(text, spot):
                new, trained = processor.encode(f"{text}\n"), False
                new_marks = [(IGNORE, IGNORE)] * len(new)
                if spot is not None and (spot_marks := _marks(names[pages[-1]], spot, processor)):
                    new_marks[-2] = next(iter(spot_marks.values()))
            case Show(page, spot):
                pages.append(page)
                spot_marks = _marks(names[page], spot, processor) if spot else {}
                empty = processor.pad_id, processor.pad_id
                newline = processor.encode("\n")
                new, trained = [processor.image_token_id] * len(names[page]) + newline, False
                new_marks = [spot_marks.get(token, empty) for token in range(len(names[page]))]
                new_marks += [(IGNORE, IGNORE)] * len(newline)
            case ExpertAction(action):
                new, trained = [*processor.encode(action_text.format(action)), processor.eos_id], True
                new_marks = [(IGNORE, IGNORE)] * len(new)
        ids += new
        labels += new if trained else [IGNORE] * len(new)
        marks += new_marks
    return EncodedLesson(np.array(ids), np.array(labels), np.array(marks), tuple(pages))


def _marks(names: NDArray[np.int64], spot: Spot, processor: BridgeProcessor) -> dict[int, tuple[int, int]]:
    """By visual token that shows the spot: y and x of the tap for it, or else of the token's own patch."""
    rows, columns = processor.config.patch_grid
    words = {processor.encode(f" {word.rstrip('?')}")[0] for word in spot.text_words}
    tap = None if spot.at is None else (_bin_id(spot.at.y, processor), _bin_id(spot.at.x, processor))
    marks = {}
    for token, (*named, y, x, patch) in enumerate(names.tolist()):
        center = (patch // columns + 0.5) / rows, (patch % columns + 0.5) / columns
        if words & set(named) and spot.box.contains(*center):
            marks[token] = tap or (y, x)
    return marks


@dataclass(frozen=True, slots=True)
class LessonConfig:
    """The settings of random lessons."""

    num_screens: tuple[int, ...]  # of a lesson; one of them is drawn
    num_questions: int  # in addition to the goal
    related_fraction: float  # how often a goal names something related to the label, instead of the label
    touch_jitter: bool  # are points where fingers hit, or exact?

    @property
    def seed(self) -> str:
        """Part of the random seed.

        The shipped base was made with these words: other words give another base.
        """
        return (
            f"Course(lengths={self.num_screens}, questions={self.num_questions}, "
            f"related={self.related_fraction}, by_hand={self.touch_jitter})"
        )


def lesson_batches(
    seed: str,
    config: LessonConfig,
    num_tokens: int,
    index: ScreenIndex,
    names: Sequence[NDArray[np.int64]],
    processor: BridgeProcessor,
) -> Iterator[dict[str, Tensor]]:
    """Endless batches of about `num_tokens`: a pure function of the seed.

    All lessons of a batch have the same number of screens and questions.
    """
    rng = Random(f"lessons {seed} {config.seed}")
    num_questions, related_fraction = config.num_questions, config.related_fraction
    while True:
        num_screens = rng.choice(config.num_screens)
        tokens_per_lesson = (
            TOKENS_PER_GOAL + num_questions * TOKENS_PER_QUESTION + num_screens * TOKENS_PER_SCREEN
        )
        batch_size = max(1, num_tokens // tokens_per_lesson)
        lessons = [
            random_lesson(rng, index, num_screens, num_questions, related_fraction) for _ in range(batch_size)
        ]
        if config.touch_jitter:
            lessons = [with_touch_jitter(rng, lesson) for lesson in lessons]
        yield collate_lessons(
            [encode_lesson(lesson, names, processor) for lesson in lessons], processor.pad_id
        )


def collate_lessons(batch: Sequence[EncodedLesson], pad_id: int) -> dict[str, Tensor]:
    """Tensors [B, T], [B, T], [B, T, 2], padded on the right, and the pages of all lessons in order."""
    longest = max(len(lesson.input_ids) for lesson in batch)
    arrays = {
        "input_ids": np.full((len(batch), longest), pad_id, np.int64),
        "labels": np.full((len(batch), longest), IGNORE, np.int64),
        "marks": np.full((len(batch), longest, 2), IGNORE, np.int64),
    }
    for i, lesson in enumerate(batch):
        for name, row in zip(arrays, (lesson.input_ids, lesson.labels, lesson.marks), strict=True):
            arrays[name][i, : len(row)] = row
    arrays["pages"] = np.array([page for lesson in batch for page in lesson.pages])
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
