"""What a step may keep of the steps before: features of screens, and the keys and values of a common beginning.

Both are keyed by content (token ids, and the SHA-256 of each screen), so that nothing has to be told when a
conversation changes: a miss costs only time. Shapes: B conversations, M tokens that were read, H heads, d their width.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from transformers import DynamicCache

from uivlm.episode import Screen
from uivlm.models.interleave import look_at
from uivlm.models.model import Reader
from uivlm.sentences.sentence import Picture

SCREENS = 64  # screens whose features are kept, beside those of the conversations

Key = int | bytes  # of one token: its id, or the hash of the screen that it is a part of


_DIGESTS: WeakKeyDictionary[Screen, bytes] = (
    WeakKeyDictionary()
)  # a screen stays in the history for many steps


def screen_key(picture: Picture, tokens: int) -> bytes:
    """One for what is seen: the pixels, at the size that gives so many visual tokens."""
    screen = picture.screen
    if screen not in _DIGESTS:
        pixels = np.ascontiguousarray(screen.pixels)
        _DIGESTS[screen] = hashlib.sha256(f"{pixels.shape}".encode() + pixels.tobytes()).digest()
    return b"%d %b" % (tokens, _DIGESTS[screen])


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


@dataclass(frozen=True, slots=True, eq=False)
class Conversation:
    """What was read of one. `keys` names each token; the first `asked` of them were the prompt, the others its answer. Of these,
    keys and values [1, H, M, d] of each layer, and where they stand [3, 1, M] if the model tells."""

    keys: tuple[Key, ...] = ()
    asked: int = 0
    layers: tuple[tuple[Tensor, Tensor], ...] = ()
    places: Tensor | None = None

    def beginning(self, length: int) -> "Conversation":
        return Conversation(
            self.keys[:length],
            min(self.asked, length),
            tuple((k[:, :, :length], v[:, :, :length]) for k, v in self.layers),
            None if self.places is None else self.places[..., :length],
        )

    def shared(self, keys: Sequence[Key]) -> int:
        """How many tokens both begin with."""
        for i, (mine, other) in enumerate(zip(self.keys, keys, strict=False)):
            if mine != other:
                return i
        return min(len(self.keys), len(keys))


class Kept:
    """The latest conversations, at most `size`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.latest: list[Conversation] = []  # the newest last

    def beginning(self, keys: Sequence[Key]) -> Conversation:
        """The longest beginning of `keys` that was read before."""
        found, length = Conversation(), 0
        for one in self.latest:
            if (shared := one.shared(keys)) > length:
                found, length = one, shared
        return found.beginning(length)

    def add(self, one: Conversation) -> None:
        """Those that it goes on from are dropped: of them only the answer may be another."""
        self.latest = [other for other in self.latest if other.shared(one.keys) < other.asked]
        self.latest = [*self.latest, one][max(0, len(self.latest) + 1 - self.size) :]


class Reading:
    """Conversations that are read on together, each from its own beginning. Rows are padded on the left, each time anew:
    `mask` [B, M] tells what is real."""

    def __init__(self, module: nn.Module, pad: int, begun: Sequence[Conversation]) -> None:
        self.module, self.pad = module, pad
        self.device = next(module.parameters()).device
        self.keys = [list(one.keys) for one in begun]
        self.asked: list[int] = []  # how many of these are the prompt, once it was read
        longest = max(len(one.keys) for one in begun)
        lengths = torch.tensor([len(one.keys) for one in begun])
        self.mask = torch.arange(longest) >= longest - lengths[:, None]
        self.cache: Any = DynamicCache()
        for layer, parts in enumerate(zip(*(_filled(begun)), strict=True)):
            keys, values = (_stacked([part[i] for part in parts], longest, 2) for i in (0, 1))
            self.cache.update(keys, values, layer)
        if longest and (places := [one.places for one in begun if one.places is not None]):
            like = places[0][..., :0]
            self.cache.places = torch.cat(  # type: ignore[attr-defined]
                [_padded(like if one.places is None else one.places, longest, 2) for one in begun], 1
            )

    def read(
        self, rows: Sequence[Sequence[int]], keys: Sequence[Sequence[Key]], features: Tensor | None
    ) -> Tensor:
        """Each conversation's next tokens, perhaps none; logits [B, vocabulary] after the last of them.

        `features` [1, V, width]: of the screens in them, row by row.
        """
        longest = max(map(len, rows))
        ids = torch.full((len(rows), longest), self.pad)
        real = torch.zeros(len(rows), longest, dtype=torch.bool)
        for i, row in enumerate(rows):
            if row:
                ids[i, -len(row) :], real[i, -len(row) :] = torch.tensor(row), True
        self.mask = torch.cat([self.mask, real], 1)
        options = {}
        if not self.mask.all():
            places = (self.mask.cumsum(1) - 1).clamp(min=0)[:, -longest:]
            options = {"attention_mask": self.mask.to(self.device), "places": places.to(self.device)}
        outputs = self.module(
            ids.to(self.device),
            features=features,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
            **options,
        )
        for mine, new in zip(self.keys, keys, strict=True):
            mine += new
        self.asked = self.asked or [len(mine) for mine in self.keys]
        logits: Tensor = outputs.logits[:, -1]
        return logits

    def conversations(self) -> list[Conversation]:
        """Each alone again, without padding."""
        places = getattr(self.cache, "places", None)
        found = []
        for i, keys in enumerate(self.keys):
            real = self.mask[i]
            where = slice(None) if real.all() else real.nonzero()[:, 0].to(self.device)
            layers = tuple(
                (layer.keys[i : i + 1, :, where], layer.values[i : i + 1, :, where])
                for layer in self.cache.layers
            )
            own = None if places is None else places[:, i : i + 1, where]
            found.append(Conversation(tuple(keys), self.asked[i], layers, own))
        return found


def _filled(begun: Sequence[Conversation]) -> list[Sequence[tuple[Tensor, Tensor]]]:
    """Layers of each; of one that is new, layers of no tokens."""
    known = next((one.layers for one in begun if one.layers), ())
    nothing = tuple((k[:, :, :0], v[:, :, :0]) for k, v in known)
    return [one.layers or nothing for one in begun]


def _stacked(parts: Sequence[Tensor], longest: int, dim: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat([_padded(part, longest, dim) for part in parts])


def _padded(part: Tensor, longest: int, dim: int) -> Tensor:
    """Zeros before it."""
    missing = list(part.shape)
    missing[dim] = longest - part.shape[dim]
    return torch.cat([part.new_zeros(missing), part], dim)
