"""How Qwen-VL reads and speaks: the base model's way, without chat tokens, which it does not know.

In: words and screens. Out: ids and pixels, as `sentences.encode` wants them.
"""

import numpy as np
from numpy.typing import NDArray

from uivlm.models.qwen_vl.config import QwenVLConfig
from uivlm.models.qwen_vl.pixels import pixels_of
from uivlm.models.qwen_vl.tokens import Tokens
from uivlm.sentences.sentence import Picture


class Reader:
    def __init__(self, tokens: Tokens, config: QwenVLConfig) -> None:
        if tokens.control["<img>"] != config.image_start or len(tokens) > config.vocab_size:
            raise ValueError(
                f"the tokens do not fit the model: {len(tokens)} with <img> at {tokens.control['<img>']}, the model "
                f"has {config.vocab_size} with <img> at {config.image_start}"
            )
        self.tokens, self.config = tokens, config
        self.start: tuple[int, ...] = ()
        self.end = self.pad = tokens.control["<|endoftext|>"]
        self.placeholder = config.placeholder
        # Beyond seq_length the plain positions are not those that the model was made with.
        original = config.long_context == "original"
        self.context = config.max_position_embeddings if original else config.seq_length  # tokens

    def words(self, text: str) -> list[int]:
        return self.tokens.encode(text)

    def text(self, ids: list[int]) -> str:
        return self.tokens.decode(ids, control=False)

    def speaks(self, token: int) -> bool:
        """Is it a token of text? Control ids have no text: `text` leaves them out."""
        return 0 <= token < self.tokens.num_ranks

    def picture(self, seen: Picture) -> list[int]:
        return self.tokens.picture(self.config.queries)

    def pixels(self, seen: Picture) -> NDArray[np.float32]:
        return pixels_of(seen.screen.pixels, int(self.config.visual["image_size"]))
