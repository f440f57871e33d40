"""How the successors of Qwen-VL read and speak.

In: words and screens. Out: ids and pixels, as `sentences.encode` wants them. An action ends with the token that ends
the model's own turns, `<|im_end|>`. Text never yields a control id.
"""

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import PretrainedConfig

from uivlm.models.qwen_hf.pixels import Scale, Sight, resized, size
from uivlm.sentences.sentence import Picture


class Reader:
    """`tokenizer`: all its added tokens are special (`files.read_tokenizer`)."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        config: PretrainedConfig,
        scale: Scale,
        end: int,
        pad: int,
        sight: Sight | None = None,
    ) -> None:
        self.tokenizer, self.config, self.scale, self.sight = tokenizer, config, scale, sight or Sight()
        tokenizer.encode_special_tokens = True  # "<|im_end|>" in a goal is ten characters, not the end token
        self.control = frozenset(tokenizer.get_added_tokens_decoder())
        self.start: tuple[int, ...] = ()
        self.end, self.pad = end, pad
        self.placeholder = int(config.image_token_id)
        self.context = int(config.text_config.max_position_embeddings)  # tokens
        vision = config.vision_config
        self.factor = int(vision.patch_size) * int(vision.spatial_merge_size)  # pixels a side of a token

    def words(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def text(self, ids: list[int]) -> str:
        said = [token for token in ids if token not in self.control]
        return str(self.tokenizer.decode(said, skip_special_tokens=False))

    def speaks(self, token: int) -> bool:
        """Is it a token of text? Control ids have no text: `text` leaves them out."""
        return token >= 0 and token not in self.control and self.tokenizer.id_to_token(token) is not None

    def size(self, seen: Picture) -> tuple[int, int]:
        """Height and width of the screen as the model sees it, in pixels."""
        height, width = seen.screen.pixels.shape[:2]
        return size(height, width, self.factor, self.sight.least, self.sight.budget(seen.age))

    def picture(self, seen: Picture) -> list[int]:
        height, width = self.size(seen)
        places = [self.placeholder] * (height * width // self.factor**2)
        return [int(self.config.vision_start_token_id), *places, int(self.config.vision_end_token_id)]

    def pixels(self, seen: Picture) -> NDArray[np.float32]:
        """[3, h, w]"""
        return self.scale(resized(seen.screen.pixels, *self.size(seen)))
