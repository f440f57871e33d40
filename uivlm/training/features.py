"""Each screen through the frozen vision encoder once, instead of once an epoch and window, and once for all runs.

In: episodes and the module. Out: a dataset of rows whose features lie in one float32 file, mapped into memory. The file lies
with the data, in DATA/features/NAME; NAME is a digest of all that the features depend on.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from uivlm import recipe as recipes
from uivlm.models.interleave import look_at
from uivlm.models.model import Reader
from uivlm.models.vision import sees
from uivlm.sentences.sentence import Grammar, Picture
from uivlm.training.collator import Row, encoded
from uivlm.training.mixture import Joined
from uivlm.training.readers import how, readers

SCREENS = 64  # screens a forward of the vision encoder
AHEAD = 8  # episodes that each process reads in advance
VERSION = 1  # another one when screens become pixels in another way
FOLDER, NUMBERS, TOKENS, MADE_OF = "features", "features.bin", "tokens.npz", "made_of.json"
_Seen = list[
    tuple[list[int], NDArray[np.float32]]
]  # of each step: the ids that stand for its screen, its pixels


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """Of every screen, in the order of the data: the ids that stand for it in a sentence, where its visual tokens end in
    `file`, and the numbers of one of them."""

    file: Path
    ids: list[list[int]]
    ends: NDArray[np.int64]
    width: int


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """A window without its screens; its first screen and where they end, counted in all episodes."""

    row: Row
    start: int
    stop: int


class Kept(Dataset[Row]):
    """Rows whose screens were seen before: ids and labels in memory, features in a file."""

    def __init__(self, seen: Features, rows: list[_Row]) -> None:
        self.numbers = np.memmap(seen.file, np.float32, "r", shape=(int(seen.ends[-1]), seen.width))
        self.ends, self.rows = [0, *seen.ends.tolist()], rows

    @property
    def screens(self) -> list[int]:
        return [one.stop - one.start for one in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Row:
        one = self.rows[index]
        places = list(pairwise(self.ends[one.start : one.stop + 1]))
        features = tuple(np.array(self.numbers[first:end]) for first, end in places)
        return replace(one.row, tokens=tuple(map(len, features)), features=features)


def keep(
    module: nn.Module, recipe: recipes.Recipe, episodes: Joined, grammar: Grammar, reader: Reader
) -> Kept:
    """The rows of all episodes. Their screens are seen now, by the first process alone, or were seen by an earlier run.

    ValueError where what an earlier run left is damaged or was made of something else.
    """
    made_of = _made_of(module, recipe, episodes)
    name = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]
    folder = Path(recipe.data.folder) / FOLDER / name
    if int(os.environ.get("RANK", "0")) == 0 and not folder.exists():
        _make(folder, module, _Screens(episodes, reader), readers(recipe.train.readers), made_of)
    while not folder.exists():  # if the first process fails, the launcher stops this one
        time.sleep(0.1)
    seen = _opened(folder, made_of)
    return Kept(seen, _rows(episodes, seen.ids, grammar, reader))


def _made_of(module: nn.Module, recipe: recipes.Recipe, episodes: Joined) -> dict[str, Any]:
    """All that features depend on: the screens, how they become pixels, the encoder's weights."""
    weights = hashlib.sha256()
    for name, value in module.state_dict().items():
        if sees(name):
            weights.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            weights.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    part = {name: value for name, value in asdict(recipe.model).items() if name != "lora"}
    # through JSON, so that it equals what is read back
    return dict(
        json.loads(
            json.dumps(
                {
                    "version": VERSION,
                    "model": part,
                    "weights": weights.hexdigest(),
                    "data": episodes.described,
                }
            )
        )
    )


@torch.inference_mode()
def _make(folder: Path, module: nn.Module, screens: "_Screens", beside: int, made_of: dict[str, Any]) -> None:
    """Beside its place first: whoever sees the folder sees all of it."""
    part = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    part.mkdir(parents=True)
    try:
        _write(part, module, screens, beside, made_of)
        os.replace(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write(
    folder: Path, module: nn.Module, screens: "_Screens", beside: int, made_of: dict[str, Any]
) -> None:
    """`beside`: processes that read."""
    loader = DataLoader(screens, batch_size=None, **how(beside, AHEAD))
    total, width = sum(screens.episodes.num_steps), 0
    ids: list[list[int]] = []
    lengths: list[int] = []
    waiting: list[NDArray[np.float32]] = []
    with (folder / NUMBERS).open("wb") as out, tqdm(total=total, desc="seeing", unit="screen") as bar:
        for seen in loader:
            ids += [one for one, _ in seen]
            waiting += [pixels for _, pixels in seen]
            while len(waiting) >= SCREENS or (waiting and len(ids) == total):
                for looked in look_at(module, waiting[:SCREENS]):
                    out.write(looked.float().cpu().numpy().tobytes())
                    lengths.append(len(looked))
                    width = looked.shape[1]
                bar.update(len(waiting[:SCREENS]))
                del waiting[:SCREENS]
    if len(ids) != total:
        raise ValueError(
            f"the episodes hold {len(ids)} screens where their index says {total}: prepare the data again"
        )
    flat, ends = (
        np.concatenate([np.array(one, np.int64) for one in ids]),
        np.cumsum([len(one) for one in ids]),
    )
    np.savez_compressed(folder / TOKENS, ids=flat, id_ends=ends, ends=np.cumsum(lengths), width=width)
    (folder / MADE_OF).write_text(json.dumps(made_of, indent=1), "utf-8")


class _Screens(Dataset[_Seen]):
    """Of each step of an episode: the ids that stand for its screen, and its pixels [3, h, w]."""

    def __init__(self, episodes: Joined, reader: Reader) -> None:
        self.episodes, self.reader = episodes, reader

    def __len__(self) -> int:
        return len(self.episodes)

    def __getitem__(self, index: int) -> _Seen:
        seen = [Picture(step.screen) for step in self.episodes[index].steps]
        return [(self.reader.picture(one), self.reader.pixels(one)) for one in seen]


def _opened(folder: Path, made_of: dict[str, Any]) -> Features:
    again = "remove that folder, and the screens are seen again"
    try:
        told = json.loads((folder / MADE_OF).read_text("utf-8"))
        with np.load(folder / TOKENS) as tokens:
            flat, id_ends, ends = tokens["ids"], tokens["id_ends"], tokens["ends"]
            width = int(tokens["width"])
        size = (folder / NUMBERS).stat().st_size
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise ValueError(f"the kept features in {folder} are damaged ({error}): {again}") from None
    if told != made_of:
        raise ValueError(
            f"the kept features in {folder} are of other data or of another vision encoder: {again}"
        )
    if size != 4 * width * int(ends[-1]):
        raise ValueError(
            f"the kept features in {folder} are damaged ({NUMBERS} has {size} bytes, not "
            f"{4 * width * int(ends[-1])}): {again}"
        )
    return Features(folder / NUMBERS, [part.tolist() for part in np.split(flat, id_ends[:-1])], ends, width)


def _rows(episodes: Joined, ids: Sequence[list[int]], grammar: Grammar, reader: Reader) -> list[_Row]:
    rows = []
    first = 0
    for index, number in enumerate(episodes.num_steps):
        episode = episodes.unseen(index)
        for window, (start, _, stop) in zip(grammar.windows(episode), grammar.spans(number), strict=True):
            told = _Told(reader, iter(ids[first + start : first + stop]))
            blind = encoded(window, start == 0, grammar, told, episode.id, look=False)
            rows.append(_Row(blind, first + start, first + stop))
        first += number
    return rows


class _Told:
    """Reads as the reader does, but for screens, of which the ids are known in their order."""

    def __init__(self, reader: Reader, pictures: Iterator[list[int]]) -> None:
        self.start, self.end, self.placeholder = reader.start, reader.end, reader.placeholder
        self.pad, self.context = reader.pad, reader.context
        self.words, self.text, self.speaks, self.pixels = (
            reader.words,
            reader.text,
            reader.speaks,
            reader.pixels,
        )
        self.pictures = pictures

    def picture(self, seen: Picture) -> list[int]:
        return next(self.pictures)
