"""The bridge's tokenizer and image processor: text to ids and back, screens to pixels.

In: texts and screens. Out: ids, and pixels uint8 [3, h, w] of the vision encoder's input size.
"""

from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from uivlm.episodes.encode import Vocabulary, digest
from uivlm.episodes.episode import Screen
from uivlm.episodes.sentence import ScreenPiece
from uivlm.models.bridge.blank_patches import find_blank, with_token
from uivlm.models.bridge.model import BridgeConfig, as_token_id
from uivlm.models.vocabulary import vocabulary


class BridgeProcessor:
    """Control ids lie above the tokenizer's own, so that text never encodes to them."""

    def __init__(self, tokenizer: Tokenizer, config: BridgeConfig) -> None:
        self.tokenizer, self.config = tokenizer, config
        tokenizer.encode_special_tokens = True  # "</s>" in a goal is five characters, not the end token
        text = config.text_config
        self.bos_ids: tuple[int, ...] = (as_token_id(text.bos_token_id),)
        self.eos_id = as_token_id(text.eos_token_id)
        self.pad_id = as_token_id(text.pad_token_id)
        self.image_token_id = config.image_token_id
        self.counts_by_size = config.visual_tokens != "non_blank"
        self.max_length = int(text.max_position_embeddings)  # tokens

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In another process: pickling a tokenizer drops this flag."""
        self.__dict__.update(state)
        self.tokenizer.encode_special_tokens = True

    @property
    def fingerprint(self) -> str:
        config = self.config
        settings = config.visual_tokens, config.grid_size, config.patch_grid, self._image_settings()
        return digest(self.tokenizer.to_str(), self.bos_ids, *settings)

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))

    def is_text_token(self, token: int) -> bool:
        """Does the token have text? `decode` leaves control tokens out."""
        control = (*self.bos_ids, self.eos_id, self.pad_id, self.image_token_id)
        return token not in control and self.tokenizer.id_to_token(token) is not None

    def vocabulary(self) -> Vocabulary:
        return vocabulary(self.tokenizer, self.is_text_token)

    def image_token_ids(self, piece: ScreenPiece) -> list[int]:
        config = self.config
        match config.visual_tokens:
            case "pooled":
                tokens = 1
            case "grid":
                tokens = config.grid_size[0] * config.grid_size[1]
            case "all":
                tokens = config.patch_grid[0] * config.patch_grid[1]
            case "non_blank":
                tokens = _count_non_blank(piece.screen, *self._image_settings())
        return [config.image_token_id] * tokens

    def pixel_values(self, piece: ScreenPiece) -> NDArray[np.uint8]:
        """Resized to the encoder's input without keeping the aspect ratio: fractions survive."""
        config = self.config
        return np.asarray(_resize(piece.screen, config.image_size, config.resample).numpy())

    def _image_settings(self) -> "ImageSettings":
        return self.config.image_size, self.config.resample, self.config.patch_size


# The encoder's input size, how to resize to it, and its patch size.
ImageSettings = tuple[tuple[int, int], str, tuple[int, int]]
# a screen stays in the history for many steps
_NUM_NON_BLANK: WeakKeyDictionary[Screen, dict[ImageSettings, int]] = WeakKeyDictionary()


def _count_non_blank(screen: Screen, *settings: *ImageSettings) -> int:
    """Number of patches that are visual tokens."""
    known = _NUM_NON_BLANK.setdefault(screen, {})
    if settings not in known:
        size, resample, patch_size = settings
        blank = find_blank(_resize(screen, size, resample)[None], patch_size)
        known[settings] = int(with_token(blank).sum())
    return known[settings]


@lru_cache(maxsize=16)  # screens: the number of tokens is needed before the pixels
def _resize(screen: Screen, size: tuple[int, int], resample: str) -> Tensor:
    """uint8 [3, h, w]"""
    # Pillow's filter in a quarter of its time; a few values differ by one level, and Pillow 13 changed its
    # own
    shown = torch.tensor(screen.pixels).permute(2, 0, 1)[None]
    return functional.interpolate(shown, size, mode=resample, antialias=True)[0].contiguous()
