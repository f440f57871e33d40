"""The data of a run: one folder of prepared data, or a weighted mixture.

In: a recipe. Out: all episodes as one sequence, and which windows an epoch takes.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from uivlm import recipe as recipes
from uivlm.episodes.dataset import PreparedData, PreparedEpisodes
from uivlm.episodes.episode import Episode
from uivlm.models.sentence_lengths import TrainableWindows


@dataclass(frozen=True, slots=True)
class DataSource:
    """The episodes of one folder, and their weight in an epoch."""

    config: recipes.ExtraDataset
    prepared: PreparedData
    episodes: PreparedEpisodes

    @property
    def num_steps(self) -> NDArray[np.int32]:
        return self.episodes.num_steps

    @property
    def fingerprint(self) -> str:
        """Identifies the folder's data."""
        return str(self.prepared.meta["fingerprint"])


def summarize_sources(
    sources: Sequence[DataSource], windows: Sequence[TrainableWindows], damaged: Iterable[str]
) -> list[dict[str, Any]]:
    """Which data, and how much of it; for card.json. `damaged`: messages that start with a file's path."""
    return [
        {
            "fingerprint": source.fingerprint,
            "split": source.config.split,
            "weight": source.config.weight,
            "episodes": len(source.episodes),
            "damaged_episodes": sum(m.startswith(str(source.prepared.folder)) for m in damaged),
            "steps": int(source.num_steps.sum()),
            "windows": len(part.index),
            "windows_too_long": part.num_too_long,
        }
        for source, part in zip(sources, windows, strict=True)
    ]


def open_datasets(recipe: recipes.Recipe) -> list[DataSource]:
    """The recipe's main dataset, then its extra ones. ValueError if the bins differ or a split is empty."""
    data = recipe.data
    main = recipes.ExtraDataset(data.path, 1.0, data.split, data.max_episodes)
    sources = [_open_dataset(config, recipe.prompt.num_bins) for config in (main, *data.extra)]
    thoughts = recipe.prompt.thoughts
    for source in sources if thoughts != "none" else ():
        if not source.prepared.has_notes(thoughts):
            raise ValueError(
                f"prompt.thoughts: got {thoughts!r}, but no step in {source.config.path} has such text. "
                "Set it to 'none', or prepare data that has it (AITZ, AndroidControl)"
            )
    return sources


def _open_dataset(config: recipes.ExtraDataset, num_bins: int) -> DataSource:
    prepared = PreparedData.open(config.path)
    if prepared.meta["num_bins"] != num_bins:
        raise ValueError(
            f"prompt.num_bins: got {num_bins}; expected {prepared.meta['num_bins']}, "
            f"as in the data of {config.path}. Change the recipe, or prepare the data again"
        )
    episodes = prepared.episodes(config.split, max_episodes=config.max_episodes)
    if not len(episodes):
        raise ValueError(
            f"data.split: got {config.split!r}, which is empty in {config.path}. Name another split"
        )
    return DataSource(config, prepared, episodes)


class ConcatEpisodes(Sequence[Episode]):
    """The episodes of all sources, concatenated, read on access."""

    def __init__(self, sources: Sequence[DataSource]) -> None:
        self.datasets = [source.episodes for source in sources]
        self.cumulative_sizes = list(accumulate(len(part) for part in self.datasets))
        self.num_steps = [n for source in sources for n in source.num_steps.tolist()]
        self.fingerprints = [  # identify the episodes
            (source.fingerprint, source.config.split, len(source.episodes)) for source in sources
        ]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    @overload
    def __getitem__(self, index: int) -> Episode: ...
    @overload
    def __getitem__(self, index: slice) -> list[Episode]: ...
    def __getitem__(self, index: int | slice) -> Episode | list[Episode]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        part, index = self._locate(index)
        return part[index]

    def without_screens(self, index: int) -> Episode:
        """The episode with black screens of the recorded sizes."""
        part, index = self._locate(index)
        return part.without_screens(index)

    def _locate(self, index: int) -> tuple[PreparedEpisodes, int]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        i = bisect_right(self.cumulative_sizes, index)
        return self.datasets[i], index - (self.cumulative_sizes[i - 1] if i else 0)


@dataclass(frozen=True)
class MixtureSampler:
    """The rows and the weight of each source, in order.

    With weight 0.5 an epoch takes half of the rows, other ones in each epoch; with weight 2 it takes each row
    twice.
    """

    num_rows: tuple[int, ...]
    weights: tuple[float, ...]

    @cached_property
    def num_samples(self) -> list[int]:
        """Number of rows of each source in an epoch."""
        return [round(weight * rows) for rows, weight in zip(self.num_rows, self.weights, strict=True)]

    def sample_epoch(self, seed: int, epoch: int) -> list[int]:
        """Row indices of an epoch: a pure function of (seed, epoch)."""
        indices: list[int] = []
        first = 0
        for i, (num_rows, num_samples) in enumerate(zip(self.num_rows, self.num_samples, strict=True)):
            repeats, rest = divmod(num_samples, num_rows)
            drawn = np.random.default_rng((seed, epoch, i)).permutation(num_rows)[:rest]
            indices += [*range(first, first + num_rows)] * repeats
            indices += [first + int(row) for row in sorted(drawn)]
            first += num_rows
        return indices


def make_mixture_sampler(sources: Sequence[DataSource], num_windows: Sequence[int]) -> MixtureSampler:
    """A sampler over the windows of all sources."""
    return MixtureSampler(tuple(num_windows), tuple(source.config.weight for source in sources))
