"""Windows of episodes as examples, read and encoded on access.

In: episodes (map-style), a prompt format, a processor. Out: examples for `training/collator.py`.
"""

import json
import logging
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import ConcatDataset, Dataset

from uivlm.episodes.dataset import PreparedEpisodes
from uivlm.episodes.encode import Example, Processor, encode
from uivlm.episodes.episode import Episode
from uivlm.episodes.rows import DamagedScreenError
from uivlm.episodes.sentence import PromptFormat, Window
from uivlm.episodes.window_index import FOLDER, WindowIndex
from uivlm.models.build import check_length
from uivlm.training.batches import Batch

MAX_DAMAGED_SHARE = 0.001  # of the episodes may have a damaged screen, but one always may
LOGGER = logging.getLogger(__name__)


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


class RowDataset(Protocol):
    """Examples of known length."""

    @property
    def num_tokens(self) -> NDArray[np.int32]:
        """The length of each row."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Example: ...


class WindowDataset(Dataset[Example]):
    """The windows of an index of the episodes."""

    def __init__(
        self,
        episodes: Sequence[Episode],
        index: WindowIndex,
        prompt_format: PromptFormat,
        processor: Processor,
    ) -> None:
        self.episodes, self.prompt_format, self.processor = episodes, prompt_format, processor
        self.index = index

    @property
    def num_tokens(self) -> NDArray[np.int32]:
        return self.index.num_tokens

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, index: int) -> Example:
        return self.window(index)[1]

    def window(self, index: int, with_elements: bool = False) -> tuple[Window, Example]:
        """A row's window and its example. ValueError if its length is not the one in the index.

        The window is read from prepared data without other screens, and with elements only if they are asked
        for.
        """
        k = int(self.index.window[index])
        episode = self._read_episode(int(self.index.episode[index]), k, with_elements)
        window = list(self.prompt_format.windows(episode))[k]
        example = encode_window(window, k == 0, self.prompt_format, self.processor, episode.id)
        if len(example.input_ids) != self.num_tokens[index]:
            raise ValueError(
                f"a sentence of episode {episode.id!r} has {len(example.input_ids)} tokens; its data has "
                f"{self.num_tokens[index]} in {FOLDER}. Remove that folder"
            )
        return window, example

    def _read_episode(self, index: int, k: int, with_elements: bool) -> Episode:
        """The episode, with the screens of its window `k`."""
        if not isinstance(self.episodes, PreparedEpisodes):
            return self.episodes[index]
        spans = list(self.prompt_format.spans(int(self.episodes.num_steps[index])))
        start, _, end = spans[k]
        return self.episodes.with_screens(index, start, end, with_elements)


class ConcatWindowDataset(ConcatDataset[Example]):
    """The windows of all sources, one source after the other."""

    datasets: list[WindowDataset]  # type: ignore[assignment]  # torch has them as datasets without lengths

    @property
    def num_tokens(self) -> NDArray[np.int32]:
        return np.concatenate([part.num_tokens for part in self.datasets])


@dataclass(frozen=True, slots=True)
class DamageLog:
    """The damaged episodes that a run has skipped, one a line, in a file that all its processes write."""

    file: Path
    max_episodes: int

    @staticmethod
    def open(folder: Path, num_episodes: int) -> "DamageLog":
        return DamageLog(folder / "damaged_episodes.jsonl", max(1, int(MAX_DAMAGED_SHARE * num_episodes)))

    def add(self, error: DamagedScreenError) -> None:
        """Note a damaged episode; ValueError if there are too many."""
        line = json.dumps(str(error))
        known = self.read()
        if str(error) in known:
            return
        if len(known) >= self.max_episodes:
            raise ValueError(
                f"{error}. {len(known)} episodes with damaged screens were skipped before this one; at most "
                f"{self.max_episodes} are, {MAX_DAMAGED_SHARE:.1%} of all. Prepare the data again"
            ) from error
        LOGGER.warning("%s. Its sentences are skipped", error)
        with self.file.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def read(self) -> set[str]:
        """What was noted, also by earlier processes of a resumed run."""
        lines = self.file.read_text("utf-8").splitlines() if self.file.is_file() else []
        return {json.loads(line) for line in lines}


class BatchDataset(Dataset[list[Example]]):
    """Rows read by planned batches (`training/batches.py`). Rows with a damaged screen are left out.

    A loader with batch size 1 and a sampler of batches reads one batch at a time.
    """

    def __init__(self, rows: RowDataset, damage_log: DamageLog) -> None:
        self.rows, self.damage_log = rows, damage_log

    def __len__(self) -> int:
        return len(self.rows)

    def first(self) -> Example:
        """The first row that can be read."""
        return next(example for row in range(len(self)) for example in self._read(row))

    def __getitems__(self, batches: list[Batch]) -> list[Example]:
        return [example for batch in batches for row in batch for example in self._read(row)]

    def _read(self, row: int) -> list[Example]:
        try:
            return [self.rows[row]]
        except DamagedScreenError as error:
            self.damage_log.add(error)
            return []


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
        "worker_init_fn": start_worker,
    }


def start_worker(worker_id: int, init: Callable[[int], None] | None = None) -> None:
    """What a data loader worker does first: see to it that it ends with its process, also after SIGKILL.

    torch's own check compares the worker's parent. That is the fork server, which lives as long as a worker.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()
    if init is not None:
        init(worker_id)


def _end_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
