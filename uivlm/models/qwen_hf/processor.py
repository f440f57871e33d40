"""Tokenizer and image processor of Qwen2-VL and later.

In: text and screens. Out: ids and pixels, as `episodes.encode` takes them. An action ends with the token that
ends the model's own turns, `<|im_end|>`. Text never encodes to a control id.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from tokenizers import Tokenizer
from transformers import PretrainedConfig

from uivlm.episodes.encode import Vocabulary, digest
from uivlm.episodes.sentence import ScreenPiece
from uivlm.models.vocabulary import vocabulary

MAX_ASPECT_RATIO = 200  # times the shorter side: transformers refuses longer screens


@dataclass(frozen=True, slots=True)
class VisualTokenBudget:
    """Number of visual tokens of a screen, by its age (`episodes.sentence.ScreenPiece`).

    One token is 28 x 28 pixels, with Qwen3-VL 32 x 32.
    """

    max_tokens: int = 512  # of a screen of age 0
    # Of ages 1, 2, ...; the last one holds for all older screens. Empty: `max_tokens`.
    max_tokens_by_age: tuple[int, ...] = ()
    min_tokens: int = 4  # smaller screens are enlarged

    def __post_init__(self) -> None:
        if not 1 <= self.min_tokens <= self.max_tokens:
            raise ValueError(
                f"min_tokens: got {self.min_tokens}; expected 1 to max_tokens, {self.max_tokens}"
            )
        for tokens in self.max_tokens_by_age:
            if not self.min_tokens <= tokens <= self.max_tokens:
                raise ValueError(
                    f"max_tokens_by_age: got {tokens}; expected min_tokens, {self.min_tokens}, "
                    f"to max_tokens, {self.max_tokens}"
                )

    def max_tokens_at(self, age: int) -> int:
        """Maximum number of visual tokens of a screen of that age."""
        if age == 0 or not self.max_tokens_by_age:
            return self.max_tokens
        return self.max_tokens_by_age[min(age, len(self.max_tokens_by_age)) - 1]


def smart_resize(height: int, width: int, factor: int, min_tokens: int, max_tokens: int) -> tuple[int, int]:
    """Height and width in pixels: multiples of `factor`, with `min_tokens` to `max_tokens` visual tokens."""
    if max(height, width) > MAX_ASPECT_RATIO * min(height, width):
        raise ValueError(
            f"a screen is {height} x {width} pixels: its aspect ratio must be at most {MAX_ASPECT_RATIO} : 1"
        )
    h, w = round(height / factor), round(width / factor)  # in visual tokens
    if h * w > max_tokens:
        shrink = math.sqrt(height * width / (max_tokens * factor**2))
        h, w = (max(1, math.floor(side / shrink / factor)) for side in (height, width))
    elif h * w < min_tokens:
        grow = math.sqrt(min_tokens * factor**2 / (height * width))
        h, w = (math.ceil(side * grow / factor) for side in (height, width))
    return h * factor, w * factor


def resize(rgb: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    if rgb.shape[:2] == (height, width):
        return rgb
    return np.asarray(Image.fromarray(rgb).resize((width, height), Image.Resampling.BICUBIC))


class QwenHFProcessor:
    """`tokenizer`: all its added tokens are special (`files.read_tokenizer`)."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        config: PretrainedConfig,
        eos_id: int,
        pad_id: int,
        budget: VisualTokenBudget | None = None,
    ) -> None:
        self.tokenizer, self.config, self.budget = tokenizer, config, budget or VisualTokenBudget()
        tokenizer.encode_special_tokens = True  # "<|im_end|>" in a goal is ten characters, not the end token
        self.special_ids = frozenset(tokenizer.get_added_tokens_decoder())
        self.bos_ids: tuple[int, ...] = ()
        self.counts_by_size = True
        self.eos_id, self.pad_id = eos_id, pad_id
        self.image_token_id = int(config.image_token_id)
        self.max_length = int(config.text_config.max_position_embeddings)  # tokens
        vision = config.vision_config
        self.factor = int(vision.patch_size) * int(vision.spatial_merge_size)  # pixels a side of a token

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In another process: pickling a tokenizer drops this flag."""
        self.__dict__.update(state)
        self.tokenizer.encode_special_tokens = True

    @property
    def fingerprint(self) -> str:
        return digest(self.tokenizer.to_str(), self.budget, self.factor)

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: list[int]) -> str:
        text_ids = [token for token in ids if token not in self.special_ids]
        return str(self.tokenizer.decode(text_ids, skip_special_tokens=False))

    def is_text_token(self, token: int) -> bool:
        """Does the token have text? `decode` leaves control tokens out."""
        return token >= 0 and token not in self.special_ids and self.tokenizer.id_to_token(token) is not None

    def image_size(self, piece: ScreenPiece) -> tuple[int, int]:
        """Height and width of the screen in the model's input, in pixels."""
        height, width = piece.screen.pixels.shape[:2]
        return smart_resize(
            height, width, self.factor, self.budget.min_tokens, self.budget.max_tokens_at(piece.age)
        )

    def vocabulary(self) -> Vocabulary:
        return vocabulary(self.tokenizer, self.is_text_token)

    def image_token_ids(self, piece: ScreenPiece) -> list[int]:
        height, width = self.image_size(piece)
        placeholders = [self.image_token_id] * (height * width // self.factor**2)
        return [int(self.config.vision_start_token_id), *placeholders, int(self.config.vision_end_token_id)]

    def pixel_values(self, piece: ScreenPiece) -> NDArray[np.uint8]:
        rgb = resize(piece.screen.pixels, *self.image_size(piece))
        return np.ascontiguousarray(rgb.transpose(2, 0, 1))
