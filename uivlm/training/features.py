"""Each screen through the frozen vision encoder once, instead of once an epoch and window.

In: episodes and the module. Out: a dataset of rows whose features lie in one float32 file, mapped into memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from uivlm.episode import Episode
from uivlm.models.interleave import look_at
from uivlm.models.model import Reader
from uivlm.sentences.sentence import Grammar, Picture
from uivlm.training.collator import WORKERS, Row, encoded

SCREENS = 64  # screens a forward of the vision encoder
AHEAD = 8  # episodes that each process reads in advance


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """A window without its screens; its first screen and where they end, counted in the episode or in all of them."""

    row: Row
    start: int
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """One episode before its features are known."""

    pixels: list[NDArray[np.float32]]  # [3, h, w] of each step
    rows: list["_Row"]


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
            blind = encoded(window, start == 0, self.grammar, self.reader, episode.id, look=False)
            rows.append(_Row(blind, start, stop))
        return _Seen([self.reader.pixels(Picture(step.screen)) for step in episode.steps], rows)


class Kept(Dataset[Row]):
    """Rows whose screens were seen before: ids and labels in memory, features in a file.

    `ends`: where the visual tokens of each screen end in the file; `width`: numbers of a visual token.
    """

    def __init__(self, file: Path, ends: list[int], width: int, rows: list[_Row]) -> None:
        self.features = np.memmap(file, np.float32, "r", shape=(ends[-1], width))
        self.ends, self.rows = [0, *ends], rows

    @property
    def screens(self) -> list[int]:
        return [one.stop - one.start for one in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Row:
        one = self.rows[index]
        places = list(pairwise(self.ends[one.start : one.stop + 1]))
        features = tuple(np.array(self.features[first:end]) for first, end in places)
        return replace(one.row, tokens=tuple(map(len, features)), features=features)


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
    total, first = sum(num_steps), 0
    loader = DataLoader(
        _Episodes(episodes, grammar, reader), batch_size=None, num_workers=WORKERS, prefetch_factor=AHEAD
    )
    waiting: list[NDArray[np.float32]] = []
    rows: list[_Row] = []
    ends: list[int] = []
    width = 0
    with file.open("wb") as out, tqdm(total=total, desc="seeing", unit="screen") as bar:
        for seen in loader:
            rows += [replace(one, start=first + one.start, stop=first + one.stop) for one in seen.rows]
            first += len(seen.pixels)
            waiting += seen.pixels
            while len(waiting) >= SCREENS or (waiting and first == total):
                for looked in look_at(module, waiting[:SCREENS]):
                    out.write(looked.float().cpu().numpy().tobytes())
                    ends.append((ends[-1] if ends else 0) + len(looked))
                    width = looked.shape[1]
                bar.update(len(waiting[:SCREENS]))
                del waiting[:SCREENS]
    if first != total:
        raise ValueError(
            f"the episodes hold {first} screens where their index says {total}: prepare the data again"
        )
    assert ends, "there is no screen at all"
    return Kept(file, ends, width, rows)
