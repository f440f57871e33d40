"""Windows of episodes -> rows -> batches: read and encoded lazily, padded on the right, in a seeded order.

In: episodes (map-style), a grammar, a reader. Out: batches of tensors as `models.model.Model.forward` takes them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from uivlm.actions.action import Action
from uivlm.actions.language import KINDS, kind
from uivlm.episode import Episode
from uivlm.models.model import Reader, check_length
from uivlm.sentences.encode import IGNORE, encode
from uivlm.sentences.sentence import Grammar, Window
from uivlm.training.mixture import Shares

ASIDE = ("kinds", "begins")  # of a batch: for the log, not for the model
POOL = 32  # optimizer steps among which rows of like length are grouped


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One encoded window: `input_ids`, `labels` int64 [T], of each trained token the number in KINDS of its action, the
    number of visual tokens S of each of its screens, and these as pixels or as kept features."""

    input_ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    kinds: NDArray[np.int64]
    tokens: tuple[int, ...]
    begins: bool = True  # is it the first window of its episode?
    pixels: tuple[NDArray[np.float32], ...] | None = None  # [3, h, w] each
    features: tuple[NDArray[np.float32], ...] | None = None  # [S, width of the vision encoder] each


def encoded(
    window: Window, begins: bool, grammar: Grammar, reader: Reader, where: str, look: bool = True
) -> Row:
    """A window for training; ValueError, with the episode of `where`, where it is longer than the model reads."""
    example = encode(grammar.sentence(window), reader, look)
    check_length(example.input_ids, reader, f"episode {where!r}")
    actions = [step.action for step in window.steps[window.first_trained :]]
    return Row(
        example.input_ids,
        example.labels,
        kinds_of(example.labels, actions),
        example.tokens,
        begins,
        pixels=example.pixels if look else None,
    )


def kinds_of(labels: NDArray[np.int64], actions: Sequence[Action]) -> NDArray[np.int64]:
    """Of each trained token the number in KINDS of its action. A screen stands between two actions."""
    trained = labels != IGNORE
    begins = trained[1:] & ~trained[:-1]
    if begins.sum() != len(actions):
        raise ValueError(f"a sentence has {begins.sum()} trained stretches for {len(actions)} actions")
    numbers = np.array([KINDS.index(kind(action)) for action in actions], np.int64)
    return np.asarray(numbers[np.cumsum(begins)[trained[1:]] - 1])


class Windows(Dataset[Row]):
    """Every window of every episode. `num_steps` tells each episode's length without reading it."""

    def __init__(
        self, episodes: Sequence[Episode], num_steps: Sequence[int], grammar: Grammar, reader: Reader
    ) -> None:
        self.episodes, self.grammar, self.reader = episodes, grammar, reader
        spans = [list(grammar.spans(n)) for n in num_steps]
        self.places = [(e, k) for e, windows in enumerate(spans) for k in range(len(windows))]
        self.screens = [
            stop - start for windows in spans for start, _, stop in windows
        ]  # a row's length, nearly

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> Row:
        return self.window(index)[1]

    def window(self, index: int) -> tuple[Window, Row]:
        """The window of a row, too."""
        e, k = self.places[index]
        episode = self.episodes[e]
        window = list(self.grammar.windows(episode))[k]
        return window, encoded(window, k == 0, self.grammar, self.reader, episode.id)


@dataclass(frozen=True, slots=True)
class Collator:
    """Rows -> a batch: what `models.model.Model.forward` takes, and for the log the `kinds` of trained tokens and which rows
    begin an episode. The mask comes from lengths: padding may be a token that also occurs in sentences.

    Screens of one size are one tensor [N, ...], those of different sizes a list.
    """

    pad: int
    placeholder: int
    pack: bool = False

    def __call__(self, rows: list[Row]) -> dict[str, Tensor | list[Tensor]]:
        for one in rows:
            self._check(one)
        batch: dict[str, Tensor | list[Tensor]] = {
            **(self._packed(rows) if self.pack else self._padded(rows)),
            "kinds": torch.from_numpy(np.concatenate([one.kinds for one in rows])),
            "begins": torch.tensor([one.begins for one in rows]),
        }
        for name in ("pixels", "features"):
            parts = [part for one in rows for part in getattr(one, name) or ()]
            if len({part.shape for part in parts}) == 1:
                batch[name] = torch.from_numpy(np.stack(parts))
            elif parts:
                batch[name] = [torch.from_numpy(part) for part in parts]
        return batch

    def _padded(self, rows: list[Row]) -> dict[str, Tensor]:
        """[B, T] each."""
        longest = max(len(one.input_ids) for one in rows)
        input_ids = torch.full((len(rows), longest), self.pad)
        labels = torch.full((len(rows), longest), IGNORE)
        mask = torch.zeros((len(rows), longest), dtype=torch.bool)
        for i, one in enumerate(rows):
            n = len(one.input_ids)
            input_ids[i, :n] = torch.from_numpy(one.input_ids)
            labels[i, :n] = torch.from_numpy(one.labels)
            mask[i, :n] = True
        return {"input_ids": input_ids, "labels": labels, "attention_mask": mask}

    def _packed(self, rows: list[Row]) -> dict[str, Tensor]:
        """[1, T], without padding. No sentence's first token is trained, so none is predicted by the sentence before."""
        input_ids = torch.from_numpy(np.concatenate([one.input_ids for one in rows]))[None]
        labels = torch.from_numpy(np.concatenate([one.labels for one in rows]))[None]
        lengths = torch.tensor([len(one.input_ids) for one in rows])
        return {
            "input_ids": input_ids,
            "labels": labels,
            "attention_mask": torch.ones_like(input_ids, dtype=torch.bool),
            "lengths": lengths,
        }

    def _check(self, row: Row) -> None:
        given = row.features if row.pixels is None else row.pixels
        num_screens = 0 if given is None else len(given)
        places = int((row.input_ids == self.placeholder).sum())
        if places != sum(row.tokens) or num_screens != len(row.tokens):
            raise ValueError(
                f"a sentence has {places} places for the visual tokens of {len(row.tokens)} screens, {num_screens} "
                f"screens are given and {sum(row.tokens)} tokens are theirs"
            )


class Order(Sampler[int]):
    """The order of one epoch: a pure function of (seed, epoch). Rows of like length share an optimizer step."""

    def __init__(self, lengths: Sequence[int], shares: Shares, step: int, seed: int) -> None:
        self.lengths, self.shares, self.step, self.seed, self.epoch = lengths, shares, step, seed, 0

    def set_epoch(self, epoch: int) -> None:  # called by the Trainer
        self.epoch = epoch

    def __len__(self) -> int:
        return sum(self.shares.taken)

    def __iter__(self) -> Iterator[int]:
        rows = self.shares.epoch(self.seed, self.epoch)
        return iter(order(rows, self.lengths, self.step, self.seed, self.epoch))


def order(rows: Sequence[int], lengths: Sequence[int], step: int, seed: int, epoch: int) -> list[int]:
    """Row numbers in order of use. `step` rows make one optimizer step, so batch x accumulation does not matter."""
    random = np.random.default_rng((seed, epoch))
    shuffled = [rows[i] for i in random.permutation(len(rows))]
    whole = len(shuffled) - len(shuffled) % step
    steps: list[list[int]] = []
    for first in range(0, whole, step * POOL):
        pool = sorted(shuffled[first : min(first + step * POOL, whole)], key=lambda i: lengths[i])
        steps += [pool[i : i + step] for i in range(0, len(pool), step)]
    mixed = [steps[i] for i in random.permutation(len(steps))]
    return [i for part in [*mixed, shuffled[whole:]] for i in part]  # a short last step stays last
