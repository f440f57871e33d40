"""Which rows share a forward pass, in which order: a pure function of (seed, epoch).

In: the exact length of each row, a mixture. Out: batches, as tuples of rows. Successive batches go to
successive processes. Every process gets the same number of them, and each row of an epoch is in one batch.
"""

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from uivlm.training.mixture import MixtureSampler

STEPS_PER_POOL = 32  # optimizer steps among which rows of similar length are grouped
ROWS_PER_BUFFER = 4096  # rows that are packed together: more fill better, fewer mix better

Batch = tuple[int, ...]  # the rows of one forward pass


@dataclass(frozen=True, slots=True)
class BatchLayout:
    """How many rows a forward pass takes, and how many forward passes an optimizer step has."""

    per_device_batch_size: int  # without effect if rows are packed
    max_packed_tokens: int | None  # None: rows are padded
    gradient_accumulation_steps: int
    num_processes: int

    @property
    def batches_per_step(self) -> int:
        return self.gradient_accumulation_steps * self.num_processes


class BatchSampler(Sampler[Batch]):
    """The batches of one epoch; the number of batches is the same in every epoch."""

    def __init__(
        self,
        lengths: NDArray[np.int32],
        mixture: MixtureSampler,
        layout: BatchLayout,
        seed: int,
        num_epochs: int,
    ) -> None:
        self.lengths, self.mixture, self.layout, self.seed = lengths, mixture, layout, seed
        self.epoch = 0
        # other rows share a packed batch in each epoch, so that their number differs a little
        epochs = range(1 if layout.max_packed_tokens is None else max(1, num_epochs))
        largest = max(len(self._plan(epoch)) for epoch in epochs)
        self.num_batches = math.ceil(largest / layout.num_processes) * layout.num_processes

    def set_epoch(self, epoch: int) -> None:  # called by the Trainer
        self.epoch = epoch

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[Batch]:
        planned = self._plan(self.epoch)
        if self.layout.max_packed_tokens is None:
            # empty ones at the end: the other steps have the same rows for any number of processes
            return iter(planned + [()] * (self.num_batches - len(planned)))
        batches = even_out(planned, self.num_batches)
        order = np.random.default_rng((self.seed, self.epoch, 1)).permutation(len(batches))
        return iter([batches[i] for i in order])

    def _plan(self, epoch: int) -> list[Batch]:
        rows, layout = self.mixture.sample_epoch(self.seed, epoch), self.layout
        if layout.max_packed_tokens is not None:
            return packed_batches(rows, self.lengths, layout.max_packed_tokens, self.seed, epoch)
        size = layout.per_device_batch_size
        order = length_grouped_order(rows, self.lengths, size * layout.batches_per_step, self.seed, epoch)
        return [tuple(order[i : i + size]) for i in range(0, len(order), size)]


def length_grouped_order(
    rows: Sequence[int], lengths: NDArray[np.int32], rows_per_step: int, seed: int, epoch: int
) -> list[int]:
    """Row indices in order of use.

    They depend on the rows of an optimizer step, not on batch and accumulation.
    """
    random = np.random.default_rng((seed, epoch))
    shuffled = [rows[i] for i in random.permutation(len(rows))]
    whole = len(shuffled) - len(shuffled) % rows_per_step
    steps: list[list[int]] = []
    for first in range(0, whole, rows_per_step * STEPS_PER_POOL):
        pool = sorted(
            shuffled[first : min(first + rows_per_step * STEPS_PER_POOL, whole)], key=lambda i: lengths[i]
        )
        steps += [pool[i : i + rows_per_step] for i in range(0, len(pool), rows_per_step)]
    mixed = [steps[i] for i in random.permutation(len(steps))]
    return [i for part in [*mixed, shuffled[whole:]] for i in part]  # a short last step stays last


def packed_batches(
    rows: Sequence[int], lengths: NDArray[np.int32], max_tokens: int, seed: int, epoch: int
) -> list[Batch]:
    """Batches of at most `max_tokens` tokens; no row is longer."""
    random = np.random.default_rng((seed, epoch))
    shuffled = np.asarray(rows)[random.permutation(len(rows))]
    batches: list[Batch] = []
    for first in range(0, len(shuffled), ROWS_PER_BUFFER):
        buffer = shuffled[first : first + ROWS_PER_BUFFER]
        batches += _best_fit(buffer.tolist(), lengths[buffer].tolist(), max_tokens)
    return batches


def _best_fit(rows: list[int], lengths: list[int], max_tokens: int) -> list[Batch]:
    """Longest rows first, each into the fullest batch that has room (best-fit decreasing)."""
    batches: list[list[int]] = []
    room: list[tuple[int, int]] = []  # (free tokens, batch), sorted
    for i in sorted(range(len(rows)), key=lambda i: -lengths[i]):
        found = bisect_left(room, (lengths[i], 0))
        if found < len(room):
            free, batch = room.pop(found)
        else:
            free, batch = max_tokens, len(batches)
            batches.append([])
        assert lengths[i] <= free
        batches[batch].append(rows[i])
        insort(room, (free - lengths[i], batch))
    return [tuple(batch) for batch in batches]


def even_out(batches: Sequence[Batch], count: int) -> list[Batch]:
    """`count` batches of the same rows.

    The batches with the most rows are halved. If each has only one row, the new batches are empty.
    """
    result = list(batches)
    largest = [(-len(batch), -i) for i, batch in enumerate(result)]
    heapq.heapify(largest)
    while len(result) < count:
        size, place = heapq.heappop(largest) if largest else (0, 0)
        if size >= -1:
            return result + [()] * (count - len(result))
        batch, half = result[-place], -size // 2
        result[-place] = batch[: len(batch) - half]
        result.append(batch[len(batch) - half :])
        for i in (-place, len(result) - 1):
            heapq.heappush(largest, (-len(result[i]), -i))
    return result
