"""What a step may keep of the steps before: features of screens, and the keys and values of a common beginning.

Both are keyed by content (token ids, and the SHA-256 of each screen), so that nothing has to be told when a
conversation changes: a miss costs only time.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import DynamicCache

from uivlm.episode import Screen
from uivlm.models.model import Reader

SCREENS = 64  # screens whose features are kept

Key = int | bytes  # of one token: its id, or the hash of the screen that it is a part of


def screen_key(screen: Screen) -> bytes:
    pixels = np.ascontiguousarray(screen.pixels)
    return hashlib.sha256(f"{pixels.shape}".encode() + pixels.tobytes()).digest()


class Features:
    """What the frozen vision encoder said of the latest screens."""

    def __init__(self, module: nn.Module, reader: Reader, size: int = SCREENS) -> None:
        self.module, self.reader, self.size = module, reader, size
        self.kept: OrderedDict[bytes, Tensor] = OrderedDict()

    def of(self, screens: Sequence[Screen], keys: Sequence[bytes]) -> list[Tensor]:
        """[S, width] for each screen; only screens not seen lately pass the encoder, in one forward."""
        new = {key: screen for key, screen in zip(keys, screens, strict=True) if key not in self.kept}
        if new:
            pixels = np.stack([self.reader.pixels(screen) for screen in new.values()])
            device = next(self.module.parameters()).device
            looked = self.module.look(torch.from_numpy(pixels).to(device))  # type: ignore[operator]
            self.kept.update(zip(new, looked.unbind(), strict=True))
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
