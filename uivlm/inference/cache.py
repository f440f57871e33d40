"""What a step may keep of the steps before: features of screens, and the keys and values of a common beginning.

Both are keyed by content (token ids, and the SHA-256 of each screen), so that nothing has to be told when a
conversation changes: a miss costs only time.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn
from transformers import DynamicCache

from uivlm.models.interleave import look_at
from uivlm.models.model import Reader
from uivlm.sentences.sentence import Picture

SCREENS = 64  # screens whose features are kept

Key = int | bytes  # of one token: its id, or the hash of the screen that it is a part of


def screen_key(picture: Picture, tokens: int) -> bytes:
    """One for what is seen: the pixels, at the size that gives so many visual tokens."""
    pixels = np.ascontiguousarray(picture.screen.pixels)
    return hashlib.sha256(f"{pixels.shape} {tokens}".encode() + pixels.tobytes()).digest()


class Features:
    """What the frozen vision encoder said of the latest screens."""

    def __init__(self, module: nn.Module, reader: Reader, size: int = SCREENS) -> None:
        self.module, self.reader, self.size = module, reader, size
        self.kept: OrderedDict[bytes, Tensor] = OrderedDict()

    def of(self, pictures: Sequence[Picture], keys: Sequence[bytes]) -> list[Tensor]:
        """[S, width] for each screen; only screens not seen lately pass the encoder."""
        new = {key: picture for key, picture in zip(keys, pictures, strict=True) if key not in self.kept}
        looked = look_at(self.module, [self.reader.pixels(picture) for picture in new.values()])
        self.kept.update(zip(new, looked, strict=True))
        for key in keys:
            self.kept.move_to_end(key)
        found = [self.kept[key] for key in keys]
        while len(self.kept) > self.size:
            self.kept.popitem(last=False)
        return found


class Prefix:
    """Keys and values of the last conversation. `keys` names each token that they hold."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.values: Any = DynamicCache()

    def crop(self, wanted: Sequence[Key]) -> int:
        """Keep the longest beginning shared with `wanted`, but leave its last token to be read; its length."""
        shared = 0
        for mine, other in zip(self.keys, wanted[:-1], strict=False):
            if mine != other:
                break
            shared += 1
        if shared == 0:
            self.values = DynamicCache()
        elif shared < len(self.keys):
            self.values.crop(shared - len(self.keys))  # negative: so many tokens off the end
        self.keys = list(wanted[:shared])
        return shared
