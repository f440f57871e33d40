"""A sentence as token ids, labels and pixels, for one model's way of reading.

Each piece is encoded alone and its ids and labels are appended together, so that labels cannot drift and a
prompt is token for token the beginning of its training sentence.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from uivlm.sentences.sentence import Picture, Sentence

IGNORE = -100  # label of a token without loss, as torch's cross-entropy has it


class Encoder(Protocol):
    """How one model reads. Text never yields control tokens: those come from `start`, `end` and `picture` alone."""

    start: tuple[int, ...]  # ids before every sentence
    end: int  # id that closes an action
    placeholder: int  # id that stands where a visual token goes

    def words(self, text: str) -> list[int]: ...

    def picture(self, seen: Picture) -> list[int]:
        """Ids for one screen, among them as many placeholders as the model has visual tokens for it."""

    def pixels(self, seen: Picture) -> NDArray[np.float32]:
        """The screen as the model's vision tower takes it: [3, h, w]."""


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One encoded sentence: `input_ids`, `labels` int64 [T]; of each screen its visual tokens and, unless its features
    are at hand already, its `pixels` float32 [3, h, w].
    """

    input_ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    tokens: tuple[int, ...]
    pixels: tuple[NDArray[np.float32], ...]


def encode(sentence: Sentence, encoder: Encoder, look: bool = True) -> Example:
    """Ids and labels, and the pixels unless `look` is False."""
    ids = list(encoder.start)
    labels = [IGNORE] * len(ids)
    tokens, pixels = [], []
    for piece in sentence:
        if isinstance(piece, Picture):
            new, trained = encoder.picture(piece), False
            tokens.append(new.count(encoder.placeholder))
            if look:
                pixels.append(encoder.pixels(piece))
        else:
            new, trained = encoder.words(piece.text), piece.trained
            if piece.closed:
                new = [*new, encoder.end]
        ids += new
        labels += new if trained else [IGNORE] * len(new)
    return Example(np.array(ids, np.int64), np.array(labels, np.int64), tuple(tokens), tuple(pixels))
