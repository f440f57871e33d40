"""Tokenizer and image processor of Qwen-VL, in the base model's format: it has no chat tokens.

In: text and screens. Out: ids and pixels, as `episodes.encode` takes them.
"""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from uivlm.episodes.encode import Vocabulary, digest
from uivlm.episodes.sentence import ScreenPiece
from uivlm.models.qwen_vl.config import QwenVLConfig
from uivlm.models.qwen_vl.tokenizer import QwenTokenizer


def resize(rgb: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """[h, w, 3] -> [3, size, size]: bicubic, as in Pillow 13.

    Pillow resizes one axis, rounds to bytes, then resizes the other. Before version 13 the width always came
    first; now the height does if it shrinks much more. On a tall phone that changes a pixel by several levels
    of 255. The order is fixed here, so that every version gives the same pixels.
    """
    height, width = rgb.shape[:2]
    height_first = height - size > 2 * max(width - size, 0)
    between = (width, size) if height_first else (size, height)
    bicubic = Image.Resampling.BICUBIC
    resized = Image.fromarray(rgb).resize(between, bicubic).resize((size, size), bicubic)
    return np.ascontiguousarray(np.asarray(resized).transpose(2, 0, 1))


class QwenVLProcessor:
    def __init__(self, tokenizer: QwenTokenizer, config: QwenVLConfig) -> None:
        if tokenizer.special_tokens["<img>"] != config.image_start_id or len(tokenizer) > config.vocab_size:
            raise ValueError(
                f"the tokens do not fit the model: {len(tokenizer)} with <img> at "
                f"{tokenizer.special_tokens['<img>']}, the model "
                f"has {config.vocab_size} with <img> at {config.image_start_id}"
            )
        self.tokenizer, self.config = tokenizer, config
        self.bos_ids: tuple[int, ...] = ()
        self.counts_by_size = True
        self.eos_id = self.pad_id = tokenizer.special_tokens["<|endoftext|>"]
        self.image_token_id = config.image_token_id
        # the model was not trained with plain positions beyond seq_length
        original = config.long_context == "original"
        self.max_length = config.max_position_embeddings if original else config.seq_length  # tokens

    @property
    def fingerprint(self) -> str:
        return digest(self.tokenizer.fingerprint, self.config.num_queries, self.config.visual["image_size"])

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, with_special_tokens=False)

    def is_text_token(self, token: int) -> bool:
        """Does the token have text? `decode` leaves control tokens out."""
        return 0 <= token < self.tokenizer.num_ranks

    def vocabulary(self) -> Vocabulary:
        single = self.tokenizer.encoding.decode_single_token_bytes
        return Vocabulary(tuple(single(token) for token in range(self.tokenizer.num_ranks)))

    def image_token_ids(self, piece: ScreenPiece) -> list[int]:
        return self.tokenizer.image_token_ids(self.config.num_queries)

    def pixel_values(self, piece: ScreenPiece) -> NDArray[np.uint8]:
        return resize(piece.screen.pixels, int(self.config.visual["image_size"]))
