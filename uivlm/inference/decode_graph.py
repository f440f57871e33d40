"""Decoding one token of each sequence in buffers that never move, so that a CUDA graph can replay the step.

In: the keys and values of a prefill. Out: logits after each token, and the prefill's cache with the new
tokens. Launched one by one, the kernels of one token take longer to start than to run; a graph starts all at
once.

Shapes: B rows (sequences, and unused rows), C tokens of a buffer, H heads, d width of a head, V vocabulary.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache
from transformers.cache_utils import DynamicLayer

MIN_CAPACITY = 512  # tokens of the smallest buffer; each larger one has twice as many
MAX_GRAPHS = 8  # whose buffers are in memory: a new bucket beyond them replaces the least recently used one
NUM_WARMUP_RUNS = 3  # before a capture, as torch.cuda.graph demands: libraries allocate at their first call

Forward = Callable[[], Tensor]


def capture_graph(forward: Forward) -> Forward:
    """A function that replays the kernels of `forward`, and returns the same tensor each time."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(NUM_WARMUP_RUNS):
            forward()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    # the engines of other adapters may run in other threads meanwhile
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        output = forward()

    def replay() -> Tensor:
        graph.replay()
        return output

    return replay


class StaticLayer(DynamicLayer):
    """Buffers [B, H, C, d]. A new token is written at `column` [1], which is read on the device."""

    keys: Tensor
    values: Tensor

    def __init__(self, keys: Tensor, values: Tensor, column: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.keys, self.values, self.column = keys, values, column
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write [B, H, 1, d]. Returns the whole buffers: a mask hides what is not used."""
        self.keys.index_copy_(2, self.column, key_states)
        self.values.index_copy_(2, self.column, value_states)
        return self.keys, self.values


class StaticDecoder:
    """One bucket: at most B sequences of at most C tokens, one batch at a time."""

    def __init__(
        self, model: Any, like: Any, num_rows: int, capacity: int, capture: Callable[[Forward], Forward]
    ) -> None:
        """`like`: a cache with the model's layers."""
        self.model, self.num_rows, self.capacity, self.capture = model, num_rows, capacity, capture
        some = like.layers[0].keys
        # token ids, is it a token or padding?, number of new tokens before it, column in the buffers
        self.inputs = torch.zeros(4, num_rows, dtype=torch.long, device=some.device)
        self.start = torch.zeros_like(self.inputs[0])  # position of the first new token
        self.mask = torch.zeros(num_rows, 1, 1, capacity, dtype=torch.bool, device=some.device)
        column = self.inputs[3, :1]
        # zeros: hidden values are multiplied by 0, and must be finite
        self.cache: Any = Cache(
            layers=[
                StaticLayer(
                    _zeros(layer.keys, num_rows, capacity), _zeros(layer.values, num_rows, capacity), column
                )
                for layer in like.layers
            ]
        )
        self.replay: Forward | None = None
        self.num_sequences = self.first = self.end = 0  # new tokens are in the columns `first` to `end`
        self.num_new: list[int] = []  # tokens of each row

    def load(self, cache: Any, attention_mask: Tensor) -> None:
        """Start after these tokens. `attention_mask`: bool [number of sequences, number of tokens]."""
        self.num_sequences, self.first = attention_mask.shape
        self.end, self.num_new = self.first, [0] * self.num_rows
        rows = slice(0, self.num_sequences)
        for own, layer in zip(self.cache.layers, cache.layers, strict=True):
            own.keys[rows, :, : self.first] = layer.keys
            own.values[rows, :, : self.first] = layer.values
        self.mask.zero_()
        self.mask[rows, 0, 0, : self.first] = attention_mask.to(self.mask.device)
        stored = getattr(cache, "position_ids", None)
        self.start[rows] = self.mask[rows].sum((1, 2, 3)) if stored is None else stored.amax((0, 2)) + 1

    @property
    def is_full(self) -> bool:
        return self.end == self.capacity

    def step(self, tokens: Sequence[int | None]) -> Tensor:
        """Run one token of each sequence; None: padding. Logits [number of sequences, V].

        The next step overwrites them.
        """
        unused = self.num_rows - len(tokens)  # rows that attend to themselves: to nothing would give NaN
        inputs = [
            [*(token or 0 for token in tokens), *[0] * unused],
            [*(int(token is not None) for token in tokens), *[1] * unused],
            self.num_new,
            [self.end] * self.num_rows,
        ]
        self.inputs.copy_(torch.tensor(inputs), non_blocking=True)
        if self.replay is None:
            self.replay = self.capture(self.forward)
        logits = self.replay()
        self.num_new = [count + present for count, present in zip(self.num_new, inputs[1], strict=True)]
        self.end += 1
        return logits[: len(tokens)]

    def forward(self) -> Tensor:
        """Logits [B, V]. Reads and writes the buffers alone: a second run changes nothing."""
        token_ids, is_token, num_new, column = self.inputs
        self.mask.index_copy_(3, column[:1], is_token.bool()[:, None, None, None])
        outputs = self.model(
            inputs_embeds=self.model.get_input_embeddings()(token_ids[:, None]),
            attention_mask=self.mask,
            position_ids=(self.start + num_new)[:, None],
            cache=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: Tensor = outputs.logits[:, -1]
        return logits

    def append_to(self, cache: Any) -> None:
        """Append the keys and values of the new tokens to the cache that was loaded."""
        rows, new = slice(0, self.num_sequences), slice(self.first, self.end)
        for i, layer in enumerate(self.cache.layers):
            cache.update(layer.keys[rows, :, new], layer.values[rows, :, new], i)
        if (stored := getattr(cache, "position_ids", None)) is not None:
            present = self.mask[rows, 0, 0, new].long()
            positions = (self.start[rows, None] + present.cumsum(1) - 1) * present  # 0 at padding
            cache.position_ids = torch.cat([stored, positions.expand(3, -1, -1)], -1)
        self.first = self.end


class DecodeGraphs:
    """The static decoders of one model, by batch size and capacity: each bucket is captured once.

    A graph reads weights where they were: values that change in place are seen, weights that were replaced
    drop all graphs.
    """

    def __init__(self, model: nn.Module, capture: Callable[[Forward], Forward] = capture_graph) -> None:
        self.model, self.capture = model, capture
        self.decoders: OrderedDict[tuple[int, int], StaticDecoder] = OrderedDict()
        self.weight_addresses: list[int] = []

    def load(self, cache: Any, attention_mask: Tensor) -> StaticDecoder:
        """The decoder of the smallest bucket with room for another token, loaded with these sequences."""
        addresses = [value.data_ptr() for value in self.model.parameters()]
        if addresses != self.weight_addresses:
            self.decoders.clear()
            self.weight_addresses = addresses
        num_sequences, length = attention_mask.shape
        bucket = _power_of_two(num_sequences), max(MIN_CAPACITY, _power_of_two(length + 1))
        decoder = self.decoders.pop(bucket, None)
        if decoder is None:
            while len(self.decoders) >= MAX_GRAPHS:  # first: two buffers at once might not fit
                self.decoders.popitem(last=False)
            decoder = StaticDecoder(self.model, cache, *bucket, self.capture)
        self.decoders[bucket] = decoder
        decoder.load(cache, attention_mask)
        return decoder


def _power_of_two(number: int) -> int:
    """The smallest one that is not less."""
    return 1 << (number - 1).bit_length()


def _zeros(like: Tensor, num_rows: int, capacity: int) -> Tensor:
    return like.new_zeros(num_rows, like.shape[1], capacity, like.shape[3])
