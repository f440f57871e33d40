"""Keys and values of the tokens so far, in buffers with free room at the end: a new token copies nothing.

Shapes: B sequences, H heads, M cached tokens, N new tokens, d width of a head.
"""

from typing import Any

from torch import Tensor
from transformers import Cache
from transformers.cache_utils import DynamicLayer

FREE_TOKENS = 512  # room left when a buffer is made: a prompt's newest part and its action fit


class PreallocatedLayer(DynamicLayer):
    """transformers' growing layer, without its copy of all keys and values at every token.

    `keys` and `values` [B, H, M, d] are views of the used part of the buffers.
    """

    buffers: tuple[Tensor, Tensor]

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        self.buffers = (key_states[:, :, :0], value_states[:, :, :0])

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append [B, H, N, d]. Returns all keys and values."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        used = self.get_seq_length()
        end = used + key_states.shape[2]
        if end > self.buffers[0].shape[2]:
            self.buffers = (_enlarge(self.buffers[0], used, end), _enlarge(self.buffers[1], used, end))
        for buffer, new in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[:, :, used:end] = new
        self.keys, self.values = (buffer[:, :, :end] for buffer in self.buffers)
        return self.keys, self.values


def _enlarge(buffer: Tensor, used: int, needed: int) -> Tensor:
    """A buffer for `needed` tokens and some more, with the first `used` ones copied."""
    batch, heads, _, width = buffer.shape
    larger = buffer.new_empty(batch, heads, needed + FREE_TOKENS, width)
    larger[:, :, :used] = buffer[:, :, :used]
    return larger


def truncate(cache: Any, length: int) -> None:
    """Keep the first tokens. Copies nothing: the next ones overwrite what followed."""
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys[:, :, :length], layer.values[:, :, :length]


def preallocated_cache() -> Cache:
    """An empty cache for one batch of sequences."""
    return Cache(layer_class_to_replicate=PreallocatedLayer)
