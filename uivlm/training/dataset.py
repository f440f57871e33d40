"""Windows of episodes as examples: read and encoded on access, in a seeded order.

In: episodes (map-style), a prompt format, a processor. Out: examples for `training/collator.py`.
"""

import multiprocessing
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch.utils.data import Dataset, Sampler

from uivlm.episodes.encode import IGNORE, Example, Processor, encode
from uivlm.episodes.episode import Episode
from uivlm.episodes.sentence import PromptFormat, Window
from uivlm.models.build import check_length
from uivlm.training.mixture import MixtureSampler

STEPS_PER_POOL = 32  # optimizer steps among which rows of similar length are grouped


def encode_window(
    window: Window,
    first_window: bool,
    prompt_format: PromptFormat,
    processor: Processor,
    episode_id: str,
    image_token_ids: Iterable[list[int]] | None = None,
) -> Example:
    """A window as an example; ValueError, with the episode, if it is longer than the model's context.

    `image_token_ids`: the ids of its screens, if they are known already. Then the example has no pixels.
    """
    sentence = prompt_format.sentence(window)
    example = encode(sentence, processor, image_token_ids is None, image_token_ids)
    check_length(example.input_ids, processor, f"episode {episode_id!r}")
    return replace(example, first_window=first_window)


class WindowDataset(Dataset[Example]):
    """Every window of every episode. `num_steps` is the length of each episode, known without reading it."""

    def __init__(
        self,
        episodes: Sequence[Episode],
        num_steps: Sequence[int],
        prompt_format: PromptFormat,
        processor: Processor,
    ) -> None:
        self.episodes, self.prompt_format, self.processor = episodes, prompt_format, processor
        spans = [list(prompt_format.spans(n)) for n in num_steps]
        self.window_refs = [(e, k) for e, windows in enumerate(spans) for k in range(len(windows))]
        # of each row: a close proxy for its number of tokens
        self.num_screens = [end - start for windows in spans for start, _, end in windows]

    def __len__(self) -> int:
        return len(self.window_refs)

    def __getitem__(self, index: int) -> Example:
        return self.window(index)[1]

    def window(self, index: int) -> tuple[Window, Example]:
        """A row's window and its example."""
        e, k = self.window_refs[index]
        episode = self.episodes[e]
        window = list(self.prompt_format.windows(episode))[k]
        return window, encode_window(window, k == 0, self.prompt_format, self.processor, episode.id)


class FilledDataset(Dataset[Example]):
    """A dataset in which index ~i is a filler: row i without a trained token."""

    def __init__(self, rows: Dataset[Example]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)  # type: ignore[arg-type]  # torch's Dataset does not declare it

    def __getitem__(self, index: int) -> Example:
        return self.rows[index] if index >= 0 else without_labels(self.rows[~index])


def without_labels(example: Example) -> Example:
    return replace(
        example,
        labels=np.full_like(example.labels, IGNORE),
        action_types=example.action_types[:0],
        first_window=False,
    )


def append_fillers(
    order: Sequence[int], lengths: Sequence[int], batch_size: int, num_processes: int
) -> list[int]:
    """The order with fillers (`FilledDataset`), so that all processes run equally many full batches.

    Their gradients are summed together. Without fillers, the last rows would be repeated and counted twice.
    """
    shortest = min(order, key=lambda i: lengths[i])  # costs least
    return [*order, *[~shortest] * num_fillers(len(order), batch_size, num_processes)]


def num_fillers(num_rows: int, batch_size: int, num_processes: int) -> int:
    return -num_rows % (batch_size * num_processes) if num_processes > 1 else 0


class LengthGroupedSampler(Sampler[int]):
    """The order of one epoch, with fillers at its end: a pure function of (seed, epoch).

    Rows of similar length share an optimizer step. `batch_size`: rows per forward pass of a process.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        mixture: MixtureSampler,
        rows_per_step: int,
        seed: int,
        batch_size: int = 1,
        num_processes: int = 1,
    ) -> None:
        self.lengths, self.mixture, self.rows_per_step = lengths, mixture, rows_per_step
        self.batch_size, self.num_processes = batch_size, num_processes
        self.seed, self.epoch = seed, 0

    def set_epoch(self, epoch: int) -> None:  # called by the Trainer
        self.epoch = epoch

    def __len__(self) -> int:
        num_rows = sum(self.mixture.num_samples)
        return num_rows + num_fillers(num_rows, self.batch_size, self.num_processes)

    def __iter__(self) -> Iterator[int]:
        rows = self.mixture.sample_epoch(self.seed, self.epoch)
        order = length_grouped_order(rows, self.lengths, self.rows_per_step, self.seed, self.epoch)
        return iter(append_fillers(order, self.lengths, self.batch_size, self.num_processes))


def length_grouped_order(
    rows: Sequence[int], lengths: Sequence[int], rows_per_step: int, seed: int, epoch: int
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


START_METHOD = "forkserver"
WORKER_MODULES = [  # imported once, not by each worker
    "uivlm.training.dataset",
    "uivlm.training.collator",
    "uivlm.training.validation",
    "transformers.trainer_utils",  # seeds the Trainer's workers
]


def resolve_num_workers(requested: int | None) -> int:
    """The recipe's `train.num_workers`; its default is half of the CPU cores, at most eight."""
    return max(1, min(8, (os.cpu_count() or 1) // 2)) if requested is None else requested


def loader_options(num_workers: int, prefetch_factor: int = 2) -> dict[str, Any]:
    """Arguments of a DataLoader. Without workers, the process reads its data itself."""
    if not num_workers:
        return {"num_workers": 0}
    multiprocessing.get_context(START_METHOD).set_forkserver_preload(WORKER_MODULES)
    return {
        "num_workers": num_workers,
        "multiprocessing_context": START_METHOD,
        "persistent_workers": True,  # started once, not in every epoch
        "prefetch_factor": prefetch_factor,
    }
