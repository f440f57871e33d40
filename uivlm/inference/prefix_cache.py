"""What a step reuses of earlier steps: features of screens, and keys and values of a common prefix.

Both caches are keyed by content (token ids, and a SHA-256 of each screen), so no invalidation is needed: a
miss costs time only. Shapes: B sequences, M cached tokens, H heads, d width of a head, S visual tokens of a
screen, V vocabulary.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from uivlm.episodes.encode import Processor
from uivlm.episodes.episode import Screen
from uivlm.episodes.sentence import ScreenPiece
from uivlm.inference.decode_graph import DecodeGraphs, StaticDecoder
from uivlm.inference.kv_cache import preallocated_cache, truncate
from uivlm.models.multimodal import encode_screens

MAX_CACHED_SCREENS = 64  # screens whose features are cached, in addition to the prefixes

CacheKey = int | bytes  # of one token: its id, or the key of the screen that it belongs to
_DIGESTS: WeakKeyDictionary[Screen, bytes] = (
    WeakKeyDictionary()
)  # a screen stays in the history for many steps


def screen_key(piece: ScreenPiece, num_tokens: int) -> bytes:
    """Key of a screen, seen in that number of visual tokens."""
    screen = piece.screen
    if screen not in _DIGESTS:
        # not of `screen.png`: a recorded screen keeps no PNG, and encoding one takes five times as long as
        # this hash
        pixels = np.ascontiguousarray(screen.pixels)
        _DIGESTS[screen] = hashlib.sha256(f"{pixels.shape}".encode() + pixels.tobytes()).digest()
    return b"%d %b" % (num_tokens, _DIGESTS[screen])


class ImageFeatureCache:
    """Features of the most recently used screens."""

    def __init__(self, model: nn.Module, processor: Processor, max_screens: int = MAX_CACHED_SCREENS) -> None:
        self.model, self.processor, self.max_screens = model, processor, max_screens
        self.entries: OrderedDict[bytes, Tensor] = OrderedDict()

    def get(self, pieces: Sequence[ScreenPiece], keys: Sequence[bytes]) -> list[Tensor]:
        """[S, width] of each screen. Only screens that are not cached pass the vision encoder."""
        new = {key: piece for key, piece in zip(keys, pieces, strict=True) if key not in self.entries}
        features = encode_screens(self.model, [self.processor.pixel_values(piece) for piece in new.values()])
        self.entries.update(zip(new, features, strict=True))
        for key in keys:
            self.entries.move_to_end(key)
        requested = [self.entries[key] for key in keys]
        while len(self.entries) > self.max_screens:
            self.entries.popitem(last=False)
        return requested


@dataclass(frozen=True, slots=True, eq=False)
class CachedPrefix:
    keys: tuple[CacheKey, ...] = ()  # of all M tokens: the prompt, then what was generated
    prompt_length: int = 0  # tokens
    layers: tuple[tuple[Tensor, Tensor], ...] = ()  # keys and values [1, H, M, d] of each layer
    position_ids: Tensor | None = None  # [3, 1, M], of models that store them

    def truncate(self, length: int) -> "CachedPrefix":
        return CachedPrefix(
            self.keys[:length],
            min(self.prompt_length, length),
            tuple((k[:, :, :length], v[:, :, :length]) for k, v in self.layers),
            None if self.position_ids is None else self.position_ids[..., :length],
        )

    def common_prefix_length(self, keys: Sequence[CacheKey]) -> int:
        for i, (own, other) in enumerate(zip(self.keys, keys, strict=False)):
            if own != other:
                return i
        return min(len(self.keys), len(keys))


class PrefixCache:
    """The most recent prefixes, at most `max_prefixes`."""

    def __init__(self, max_prefixes: int) -> None:
        self.max_prefixes = max_prefixes
        self.prefixes: list[CachedPrefix] = []  # the newest last

    def match_prefix(self, keys: Sequence[CacheKey]) -> CachedPrefix:
        """The longest cached prefix of `keys`, perhaps empty."""
        best, best_length = CachedPrefix(), 0
        for prefix in self.prefixes:
            if (shared := prefix.common_prefix_length(keys)) > best_length:
                best, best_length = prefix, shared
        return best.truncate(best_length)

    def add(self, prefix: CachedPrefix) -> None:
        """Prefixes whose prompt the new one continues are dropped: they could only serve another generated
        text.
        """
        others = [
            other for other in self.prefixes if other.common_prefix_length(prefix.keys) < other.prompt_length
        ]
        self.prefixes = [*others, prefix][max(0, len(others) + 1 - self.max_prefixes) :]


class BatchDecoder:
    """Sequences that are decoded as one batch, each after its own prefix.

    Rows are padded on the left, again in each step; `attention_mask` [B, M] is False at padding.
    """

    def __init__(
        self,
        model: nn.Module,
        pad_id: int,
        prefixes: Sequence[CachedPrefix],
        graphs: DecodeGraphs | None = None,  # of this model
    ) -> None:
        self.model, self.pad_id = model, pad_id
        self.device = next(model.parameters()).device
        self.keys = [list(prefix.keys) for prefix in prefixes]
        self.prompt_lengths: list[int] = []  # set by the first step
        lengths = torch.tensor([len(prefix.keys) for prefix in prefixes])
        longest = int(lengths.max())
        self.attention_mask = torch.arange(longest) >= longest - lengths[:, None]
        self.cache: Any = preallocated_cache()
        for layer, parts in enumerate(zip(*(_layers_or_empty(prefixes)), strict=True)):
            keys, values = (_concat_padded([part[i] for part in parts], longest, 2) for i in (0, 1))
            self.cache.update(keys, values, layer)
        self.graphs = graphs
        self.static: StaticDecoder | None = None  # has the newest tokens, which `cache` lacks
        stored = [prefix.position_ids for prefix in prefixes if prefix.position_ids is not None]
        if longest and stored:
            empty = stored[0][..., :0]
            positions = [empty if prefix.position_ids is None else prefix.position_ids for prefix in prefixes]
            padded = [_pad_left(position_ids, longest, 2) for position_ids in positions]
            self.cache.position_ids = torch.cat(padded, 1)  # type: ignore[attr-defined]

    def step(
        self, token_ids: Sequence[Sequence[int]], keys: Sequence[Sequence[CacheKey]], features: Tensor | None
    ) -> Tensor:
        """Run the next tokens of each sequence, perhaps none. Logits [B, V] after the last of them.

        `features` [1, number of visual tokens, width]: of the screens in these tokens, row by row.
        """
        self._leave_static_buffers()
        longest = max(map(len, token_ids))
        padded = torch.full((len(token_ids), longest), self.pad_id)
        mask = torch.zeros(len(token_ids), longest, dtype=torch.bool)
        for i, row in enumerate(token_ids):
            if row:
                padded[i, -len(row) :], mask[i, -len(row) :] = torch.tensor(row), True
        self.attention_mask = torch.cat([self.attention_mask, mask], 1)
        options = {}
        if not self.attention_mask.all():
            position_ids = (self.attention_mask.cumsum(1) - 1).clamp(min=0)[:, -longest:]
            options = {
                "attention_mask": self.attention_mask.to(self.device),
                "position_ids": position_ids.to(self.device),
            }
        outputs = self.model(
            padded.to(self.device),
            features=features,
            cache=self.cache,
            use_cache=True,
            logits_to_keep=1,
            **options,
        )
        for own, new in zip(self.keys, keys, strict=True):
            own += new
        self.prompt_lengths = self.prompt_lengths or [len(own) for own in self.keys]
        logits: Tensor = outputs.logits[:, -1]
        return logits

    def decode(self, token_ids: Sequence[Sequence[int]]) -> Tensor:
        """`step` for generated text after a prefill: token by token in static buffers, if there are graphs.

        The next step overwrites the logits.
        """
        if self.graphs is None:
            return self.step(token_ids, token_ids, None)
        columns = zip_longest(*(reversed(row) for row in token_ids))
        for tokens in reversed(list(columns)):
            if self.static is None or self.static.is_full:
                self._leave_static_buffers()
                self.static = self.graphs.load(self.cache, self.attention_mask)
            logits = self.static.step(tokens)
            present = torch.tensor([[token is not None] for token in tokens])
            self.attention_mask = torch.cat([self.attention_mask, present], 1)
        for own, new in zip(self.keys, token_ids, strict=True):
            own += new
        return logits

    def _leave_static_buffers(self) -> None:
        if self.static is not None:
            self.static.append_to(self.cache)
            self.static = None

    def truncate(self, length: int) -> None:
        """Keep the first tokens of a single sequence, without a copy."""
        assert len(self.keys) == 1, "rows are padded on the left: the first tokens of several are not these"
        self._leave_static_buffers()
        truncate(self.cache, length)
        self.attention_mask = self.attention_mask[:, :length]
        del self.keys[0][length:]

    def cached_prefixes(self) -> list[CachedPrefix]:
        """The state of each sequence, without padding."""
        self._leave_static_buffers()
        position_ids = getattr(self.cache, "position_ids", None)
        prefixes = []
        for i, keys in enumerate(self.keys):
            mask = self.attention_mask[i]
            tokens = slice(None) if mask.all() else mask.nonzero()[:, 0].to(self.device)
            layers = tuple(
                (layer.keys[i : i + 1, :, tokens], layer.values[i : i + 1, :, tokens])
                for layer in self.cache.layers
            )
            own = None if position_ids is None else position_ids[:, i : i + 1, tokens]
            prefixes.append(CachedPrefix(tuple(keys), self.prompt_lengths[i], layers, own))
        return prefixes


def _layers_or_empty(prefixes: Sequence[CachedPrefix]) -> list[Sequence[tuple[Tensor, Tensor]]]:
    """The layers of each prefix. An empty prefix gets layers of no tokens, like those of the others."""
    known = next((prefix.layers for prefix in prefixes if prefix.layers), ())
    empty = tuple((k[:, :, :0], v[:, :, :0]) for k, v in known)
    return [prefix.layers or empty for prefix in prefixes]


def _concat_padded(parts: Sequence[Tensor], length: int, dim: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat([_pad_left(part, length, dim) for part in parts])


def _pad_left(part: Tensor, length: int, dim: int) -> Tensor:
    """Zeros in front, up to `length`."""
    shape = list(part.shape)
    shape[dim] = length - part.shape[dim]
    return torch.cat([part.new_zeros(shape), part], dim)
