"""A sentence as token ids, labels and pixels, for one model's way of reading.

Each piece is encoded alone and its ids and labels are appended together, so that labels cannot drift and a
prompt is token for token the beginning of its training sentence.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from uivlm.episode import Screen
from uivlm.sentences.sentence import Picture, Sentence

IGNORE = -100  # label of a token without loss, as torch's cross-entropy has it


class Encoder(Protocol):
    """How one model reads. Text never yields control tokens: those come from `start`, `end` and `picture` alone."""

    start: tuple[int, ...]  # ids before every sentence
    end: int  # id that closes an action

    def words(self, text: str) -> list[int]: ...

    def picture(self, screen: Screen) -> list[int]:
        """Placeholder ids for one screen, as many as the model has visual tokens for it."""

    def pixels(self, screen: Screen) -> NDArray[np.float32]:
        """The screen as the model's vision tower takes it: [3, h, w]."""


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One encoded sentence: `input_ids`, `labels` int64 [T]; `pixels` float32 [N, 3, h, w], N screens."""

    input_ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    pixels: NDArray[np.float32]


def encode(sentence: Sentence, encoder: Encoder, look: bool = True) -> Example:
    """Ids and labels, and the pixels unless `look` is False: then their features are at hand already."""
    ids = list(encoder.start)
    labels = [IGNORE] * len(ids)
    pixels = []
    for piece in sentence:
        if isinstance(piece, Picture):
            new, trained = encoder.picture(piece.screen), False
            if look:
                pixels.append(encoder.pixels(piece.screen))
        else:
            new, trained = encoder.words(piece.text), piece.trained
            if piece.closed:
                new = [*new, encoder.end]
        ids += new
        labels += new if trained else [IGNORE] * len(new)
    stacked = np.stack(pixels) if pixels else np.zeros((0, 3, 1, 1), np.float32)
    return Example(np.array(ids, np.int64), np.array(labels, np.int64), stacked)
