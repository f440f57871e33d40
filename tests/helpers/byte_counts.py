"""Token counts in other processes: a processor of bytes that imports no torch."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from uivlm.episodes.dataset import PreparedData
from uivlm.episodes.sentence import PromptFormat, ScreenPiece
from uivlm.episodes.window_index import open_window_index


class ByteProcessor:
    bos_ids: tuple[int, ...] = ()
    eos_id, pad_id, image_token_id, max_length = 256, 257, 258, 4096
    counts_by_size, fingerprint = True, "bytes, one visual token"

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode()

    def is_text_token(self, token: int) -> bool:
        return token < 256

    def image_token_ids(self, piece: ScreenPiece) -> list[int]:
        return [self.image_token_id]

    def pixel_values(self, piece: ScreenPiece) -> NDArray[np.uint8]:
        return np.zeros((3, 2, 2), np.uint8)


def count(folder: Path) -> list[int]:
    episodes = PreparedData.open(folder).episodes("train")
    return open_window_index(episodes, "a", PromptFormat(), ByteProcessor()).num_tokens.tolist()
