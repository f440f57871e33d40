"""A sentence as token ids, labels, action types and pixels, for one model's processor.

Each piece is encoded alone. Its ids, labels and action types are appended together, so they cannot drift
apart. A prompt is therefore, token by token, a prefix of its training sentence.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from uivlm.actions.text import ACTION_TYPES, action_type
from uivlm.episodes.sentence import ScreenPiece, Sentence

TOKEN_TYPES = (*ACTION_TYPES, "thought")  # of trained tokens
IGNORE = -100  # label of a token without loss, as in torch's cross-entropy


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What each token adds to the text. Bytes, since a token may hold only a part of a character."""

    token_bytes: tuple[bytes, ...]  # by id; b"" for control tokens and unused ids
    # the same at the start of a text, where some tokenizers drop a space; None: the same everywhere
    first_token_bytes: tuple[bytes, ...] | None = None


class Processor(Protocol):
    """A model's tokenizer and image processor.

    Text never encodes to control tokens: only `bos_ids`, `eos_id` and `image_token_ids` yield them.
    """

    bos_ids: tuple[int, ...]  # ids before every sentence
    eos_id: int  # id that ends an action
    image_token_id: int  # id that is replaced by a visual token
    pad_id: int  # id that pads short rows; the attention mask hides it
    max_length: int  # maximum number of tokens of a sentence
    counts_by_size: bool  # does the size of a screen alone decide its number of visual tokens?

    @property
    def fingerprint(self) -> str:
        """A digest of everything that decides the number of tokens of a text and of a screen."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: list[int]) -> str: ...

    def is_text_token(self, token: int) -> bool: ...

    def vocabulary(self) -> Vocabulary:
        """The bytes of all tokens. Constrained decoding compares these, not decoded text."""

    def image_token_ids(self, piece: ScreenPiece) -> list[int]:
        """Ids of one screen, with one `image_token_id` for each of its visual tokens."""

    def pixel_values(self, piece: ScreenPiece) -> NDArray[np.uint8]:
        """The screen, resized to what the model reads: levels 0 to 255, [3, h, w].

        The model scales them on its device: in float32, a screen would be four times as many bytes to move.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One encoded sentence. T tokens, S visual tokens of a screen."""

    input_ids: NDArray[np.int64]  # [T]
    labels: NDArray[np.int64]  # [T]: IGNORE or the token's own id
    action_types: NDArray[np.int64]  # [trained tokens]: index into TOKEN_TYPES; of an action, its type
    num_visual_tokens: tuple[int, ...]  # S of each screen
    pixels: tuple[NDArray[np.uint8], ...] = ()  # [3, h, w] of each screen; empty if not requested
    features: tuple[NDArray[np.float32], ...] = ()  # cached, instead of pixels: [S, vision encoder's width]
    first_window: bool = True  # is it the first window of its episode?


def digest(*parts: object) -> str:
    """A digest of values that print all they hold: text, bytes, numbers, tuples, lists and dataclasses."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def encode(
    sentence: Sentence,
    processor: Processor,
    with_pixels: bool = True,
    image_token_ids: Iterable[list[int]] | None = None,
) -> Example:
    """The example of a sentence.

    `image_token_ids`: the ids of its screens in order, if they are known already.
    """
    known_ids = None if image_token_ids is None else iter(image_token_ids)
    ids = list(processor.bos_ids)
    labels = [IGNORE] * len(ids)
    action_types: list[int] = []
    num_visual_tokens, pixels = [], []
    for piece in sentence:
        if isinstance(piece, ScreenPiece):
            new = processor.image_token_ids(piece) if known_ids is None else next(known_ids)
            num_visual_tokens.append(new.count(processor.image_token_id))
            if with_pixels:
                pixels.append(processor.pixel_values(piece))
            ids += new
            labels += [IGNORE] * len(new)
            continue
        new = processor.encode(piece.text)
        if piece.action is not None:
            new = [*new, processor.eos_id]
        ids += new
        labels += new if piece.trained else [IGNORE] * len(new)
        if piece.trained:
            kind = "thought" if piece.action is None else action_type(piece.action)
            action_types += [TOKEN_TYPES.index(kind)] * len(new)
    return Example(
        np.array(ids, np.int64),
        np.array(labels, np.int64),
        np.array(action_types, np.int64),
        tuple(num_visual_tokens),
        tuple(pixels),
    )
