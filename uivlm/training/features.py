"""Each screen through the frozen vision encoder once, instead of once an epoch and window.

In: episodes and the module. Out: a dataset of rows whose features lie in one float32 file, mapped into memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from uivlm.episode import Episode
from uivlm.models.model import Reader
from uivlm.sentences.encode import encode
from uivlm.sentences.sentence import Grammar
from uivlm.training.collator import WORKERS, Row, check_length

SCREENS = 64  # screens a forward of the vision encoder
AHEAD = 8  # episodes that each process reads in advance


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """One episode before its features are known."""

    pixels: NDArray[np.float32]  # [steps, 3, h, w]
    rows: list[tuple[NDArray[np.int64], NDArray[np.int64], int, int]]  # ids, labels, first step, end


class _Episodes(Dataset[_Seen]):
    def __init__(self, episodes: Sequence[Episode], grammar: Grammar, reader: Reader) -> None:
        self.episodes, self.grammar, self.reader = episodes, grammar, reader

    def __len__(self) -> int:
        return len(self.episodes)

    def __getitem__(self, index: int) -> _Seen:
        episode = self.episodes[index]
        rows = []
        windows = self.grammar.windows(episode)
        for window, (start, _, stop) in zip(windows, self.grammar.spans(len(episode.steps)), strict=True):
            example = encode(self.grammar.sentence(window), self.reader, look=False)
            check_length(example.input_ids, self.reader, f"episode {episode.id!r}")
            rows.append((example.input_ids, example.labels, start, stop))
        return _Seen(np.stack([self.reader.pixels(step.screen) for step in episode.steps]), rows)


class Kept(Dataset[Row]):
    """Rows whose screens were seen before: ids and labels in memory, features in a file."""

    def __init__(self, file: Path, shape: tuple[int, ...]) -> None:
        self.features = np.memmap(file, np.float32, "r", shape=shape)
        self.rows: list[tuple[NDArray[np.int64], NDArray[np.int64], int, int]] = []

    @property
    def screens(self) -> list[int]:
        return [stop - start for _, _, start, stop in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Row:
        input_ids, labels, start, stop = self.rows[index]
        return Row(input_ids, labels, stop - start, features=np.array(self.features[start:stop]))


@torch.inference_mode()
def keep(
    module: nn.Module,
    episodes: Sequence[Episode],
    num_steps: Sequence[int],
    grammar: Grammar,
    reader: Reader,
    file: Path,
) -> Kept:
    """See every screen once and write its features to `file`."""
    device = next(module.parameters()).device
    total, done = sum(num_steps), 0
    loader = DataLoader(
        _Episodes(episodes, grammar, reader), batch_size=None, num_workers=WORKERS, prefetch_factor=AHEAD
    )
    kept: NDArray[np.float32] | None = None
    waiting: list[NDArray[np.float32]] = []
    rows = []
    first = 0
    with tqdm(total=total, desc="seeing", unit="screen") as bar:
        for seen in loader:
            rows += [(ids, labels, first + start, first + stop) for ids, labels, start, stop in seen.rows]
            first += len(seen.pixels)
            waiting.extend(seen.pixels)  # `+=` would be numpy's
            while len(waiting) >= SCREENS or (waiting and first == total):
                looked = module.look(torch.from_numpy(np.stack(waiting[:SCREENS])).to(device))  # type: ignore[operator]
                if kept is None:
                    kept = np.memmap(file, np.float32, "w+", shape=(total, *looked.shape[1:]))
                kept[done : done + len(looked)] = looked.float().cpu().numpy()
                done += len(looked)
                bar.update(len(looked))
                del waiting[:SCREENS]
    if first != total:
        raise ValueError(
            f"the episodes hold {first} screens where their index says {total}: prepare the data again"
        )
    assert kept is not None, "there is no screen at all"
    shape = kept.shape
    del kept  # written out
    made = Kept(file, shape)
    made.rows = rows
    return made
