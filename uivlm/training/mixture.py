"""The data of a run: one folder of prepared data, or several by weight.

In: a recipe. Out: their episodes as one sequence, and which sentences of them an epoch takes.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, overload

import numpy as np

from uivlm import recipe as recipes
from uivlm.episode import Episode
from uivlm.sentences.sentence import Grammar
from uivlm.sentences.store import Episodes, Prepared


@dataclass(frozen=True, slots=True)
class Source:
    """Episodes of one folder and how often an epoch takes each of their sentences."""

    told: recipes.Also
    prepared: Prepared
    episodes: Episodes

    @property
    def num_steps(self) -> list[int]:
        return [place.num_rows for place in self.episodes.places]

    def sentences(self, grammar: Grammar) -> int:
        return sum(len(list(grammar.spans(n))) for n in self.num_steps)

    def described(self, grammar: Grammar) -> dict[str, Any]:
        """Which data, and how much of it."""
        return {
            "fingerprint": self.prepared.meta["fingerprint"],
            "split": self.told.split,
            "weight": self.told.weight,
            "episodes": len(self.episodes),
            "steps": sum(self.num_steps),
            "sentences": self.sentences(grammar),
        }


def open_sources(recipe: recipes.Recipe) -> list[Source]:
    """The recipe's folder first, then those beside it; refused where words have other bins, or there are no episodes."""
    data = recipe.data
    main = recipes.Also(data.folder, 1.0, data.split, data.limit)
    return [_opened(one, recipe.grammar.bins) for one in (main, *data.also)]


def _opened(one: recipes.Also, bins: int) -> Source:
    prepared = Prepared.open(one.folder)
    if prepared.meta["bins"] != bins:
        raise ValueError(
            f"the data in {one.folder} was prepared with {prepared.meta['bins']} bins, the recipe has grammar.bins "
            f"{bins}: make them equal"
        )
    episodes = prepared.episodes(one.split, limit=one.limit)
    if not len(episodes):
        raise ValueError(f"the split {one.split!r} of {one.folder} is empty: there is nothing to learn")
    return Source(one, prepared, episodes)


class Joined(Sequence[Episode]):
    """The episodes of all sources, one after the other, read when they are asked for."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.parts = [source.episodes for source in sources]
        self.ends = list(accumulate(len(part) for part in self.parts))
        self.num_steps = [number for source in sources for number in source.num_steps]
        # which episodes these are
        self.described = [
            (one.prepared.meta["fingerprint"], one.told.split, len(one.episodes)) for one in sources
        ]

    def __len__(self) -> int:
        return self.ends[-1]

    @overload
    def __getitem__(self, index: int) -> Episode: ...
    @overload
    def __getitem__(self, index: slice) -> list[Episode]: ...
    def __getitem__(self, index: int | slice) -> Episode | list[Episode]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        part, index = self._place(index)
        return part[index]

    def unseen(self, index: int) -> Episode:
        """The episode without its screens."""
        part, index = self._place(index)
        return part.unseen(index)

    def _place(self, index: int) -> tuple[Episodes, int]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = bisect_right(self.ends, index)
        return self.parts[number], index - (self.ends[number - 1] if number else 0)


@dataclass(frozen=True)
class Shares:
    """How many rows each source has, in their order, and its weight: of 0.5 an epoch takes half of them, each epoch others;
    of 2 each twice."""

    rows: tuple[int, ...]
    weights: tuple[float, ...]

    @cached_property
    def taken(self) -> list[int]:
        """Rows of each source in an epoch."""
        return [round(weight * number) for number, weight in zip(self.rows, self.weights, strict=True)]

    def epoch(self, seed: int, epoch: int) -> list[int]:
        """Row numbers of an epoch: a pure function of (seed, epoch)."""
        found: list[int] = []
        first = 0
        for i, (number, taken) in enumerate(zip(self.rows, self.taken, strict=True)):
            whole, rest = divmod(taken, number)
            drawn = np.random.default_rng((seed, epoch, i)).permutation(number)[:rest]
            found += [*range(first, first + number)] * whole + [first + int(row) for row in sorted(drawn)]
            first += number
        return found


def shares(sources: Sequence[Source], grammar: Grammar) -> Shares:
    """Rows are windows of episodes."""
    return Shares(
        tuple(source.sentences(grammar) for source in sources),
        tuple(source.told.weight for source in sources),
    )
