"""All windows of some episodes, and how long their sentences are in tokens.

In: episodes, a prompt format, a processor. Out: numbers of each window. The counts are exact. A screen is
decoded only if its size alone does not decide its number of visual tokens. The counts of prepared data are
kept in DATA/token_counts/NAME.npz, where NAME is a digest of everything that they depend on.
"""

import io
import json
import os
import time
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from uivlm import atomic
from uivlm.episodes.dataset import PreparedEpisodes
from uivlm.episodes.encode import IGNORE, Processor, digest, encode
from uivlm.episodes.episode import Episode
from uivlm.episodes.rows import DamagedScreenError
from uivlm.episodes.sentence import PromptFormat, ScreenPiece, Window
from uivlm.parallel import make_executor

FOLDER = "token_counts"
VERSION = 1  # raised when sentences are built in another way
EPISODES_PER_JOB = 4096  # a few seconds of work; fewer episodes are counted in this process
BAR_DELAY = 5.0  # seconds before the progress bar appears


@dataclass(frozen=True, slots=True, eq=False)
class WindowIndex:
    """Windows in the order of the data. Each field is int32 [windows]."""

    episode: NDArray[np.int32]  # index of its episode
    window: NDArray[np.int32]  # which of the episode's windows, from 0
    num_tokens: NDArray[np.int32]  # of the whole sentence
    num_trained_tokens: NDArray[np.int32]
    num_screens: NDArray[np.int32]
    num_visual_tokens: NDArray[np.int32]
    num_pixels: NDArray[np.int32]  # of all its screens, as the vision encoder reads them

    def __len__(self) -> int:
        return len(self.num_tokens)

    def take(self, rows: NDArray[Any]) -> "WindowIndex":
        """The windows that a mask or indices select."""
        return WindowIndex(*(getattr(self, name)[rows] for name in FIELDS))


FIELDS = tuple(field.name for field in fields(WindowIndex))


def concat_indexes(indexes: Sequence[WindowIndex], num_episodes: Sequence[int]) -> WindowIndex:
    """The windows of several sources, whose `num_episodes` are concatenated in the same order."""
    columns = {name: np.concatenate([getattr(index, name) for index in indexes]) for name in FIELDS}
    first_episodes = np.cumsum([0, *num_episodes[:-1]])
    offsets = np.repeat(first_episodes, [len(index) for index in indexes])
    return WindowIndex(**columns | {"episode": (columns["episode"] + offsets).astype(np.int32)})


def index_windows(
    episodes: Sequence[Episode], prompt_format: PromptFormat, processor: Processor, num_workers: int = 1
) -> WindowIndex:
    """Count the tokens of all windows, in `num_workers` processes if there are many episodes."""
    starts = range(0, len(episodes), EPISODES_PER_JOB)
    jobs = (episodes[start : start + EPISODES_PER_JOB] for start in starts)
    tables = []
    with (
        make_executor(num_workers if len(starts) > 1 else 1) as executor,
        tqdm(total=len(episodes), desc="counting tokens", unit="episode", delay=BAR_DELAY) as bar,
    ):
        for start, table in zip(
            starts, executor.map_ordered(_WindowCounter(prompt_format, processor), jobs), strict=True
        ):
            table[:, 0] += start
            tables.append(table)
            bar.update(min(EPISODES_PER_JOB, len(episodes) - start))
    return WindowIndex(*np.ascontiguousarray(np.concatenate(tables).T))


def open_window_index(
    episodes: PreparedEpisodes,
    data_fingerprint: str,
    prompt_format: PromptFormat,
    processor: Processor,
    num_workers: int = 1,
    wait: bool = False,
) -> WindowIndex:
    """The index of prepared episodes: the one that an earlier run kept, or a new one.

    With `wait`, another process of this run counts. If nothing can be written next to the data, each process
    counts for itself. ValueError if the kept index is damaged.
    """
    depends_on = {
        "version": VERSION,
        "prompt": asdict(prompt_format),
        "processor": processor.fingerprint,
        "data": data_fingerprint,
        "episodes": digest([(ref.split, ref.subset, ref.id, ref.num_rows) for ref in episodes.refs]),
    }
    metadata = json.dumps(depends_on)
    file = episodes.folder / FOLDER / f"{digest(metadata)[:16]}.npz"
    writable = os.access(episodes.folder, os.W_OK)
    while wait and writable and not file.is_file():  # if the other one fails, the launcher stops this process
        time.sleep(0.1)
    if file.is_file():
        return _read(file, metadata)
    index = index_windows(episodes, prompt_format, processor, num_workers)
    if writable:
        file.parent.mkdir(exist_ok=True)
        content = io.BytesIO()
        columns: dict[str, Any] = {name: getattr(index, name) for name in FIELDS}
        np.savez_compressed(content, metadata=np.array(metadata), **columns)
        atomic.write_file(file, content.getvalue())
    return index


def _read(file: Path, metadata: str) -> WindowIndex:
    try:
        with np.load(file) as saved:
            index = WindowIndex(*(saved[name] for name in FIELDS))
            found = str(saved["metadata"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"the token counts {file} are damaged ({error}); remove that file") from None
    if found != metadata:
        raise ValueError(f"the token counts {file} are of other data or another model; remove that file")
    return index


@dataclass(frozen=True, slots=True)
class _WindowCounter:
    """Episodes -> int32 [windows, fields of WindowIndex]; can be sent to another process."""

    prompt_format: PromptFormat
    processor: Processor

    def __call__(self, episodes: Sequence[Episode]) -> NDArray[np.int32]:
        screens = _ScreenCounter(self.processor)
        rows = []
        for i in range(len(episodes)):
            for k, counts in enumerate(self._count(episodes, i, screens)):
                rows.append((i, k, *counts))
        return np.array(rows, np.int32).reshape(-1, len(FIELDS))

    def _count(
        self, episodes: Sequence[Episode], i: int, screens: "_ScreenCounter"
    ) -> list[tuple[int, int, int, int, int]]:
        """Of each window: tokens, trained tokens, screens, visual tokens, pixels."""
        try:
            if self.processor.counts_by_size and isinstance(episodes, PreparedEpisodes):
                episode = episodes.without_screens(i, with_elements=False)
            else:
                episode = episodes[i]
        except DamagedScreenError:  # training skips it
            assert isinstance(episodes, PreparedEpisodes)
            spans = self.prompt_format.spans(episodes.refs[i].num_rows)
            return [(0, 0, end - start, 0, 0) for start, _, end in spans]
        return [self._count_window(window, screens) for window in self.prompt_format.windows(episode)]

    def _count_window(self, window: Window, screens: "_ScreenCounter") -> tuple[int, int, int, int, int]:
        sentence = self.prompt_format.sentence(window)
        pieces = [piece for piece in sentence if isinstance(piece, ScreenPiece)]
        token_ids = [screens.token_ids(piece) for piece in pieces]
        example = encode(sentence, self.processor, with_pixels=False, image_token_ids=token_ids)
        num_trained = int((example.labels != IGNORE).sum())
        num_pixels = sum(map(screens.num_pixels, pieces))
        num_visual_tokens = sum(example.num_visual_tokens)
        return len(example.input_ids), num_trained, len(pieces), num_visual_tokens, num_pixels


class _ScreenCounter:
    """The ids of a screen, and its pixels in the model's input; each size of screen is computed once."""

    def __init__(self, processor: Processor) -> None:
        self.processor = processor
        self.ids: dict[tuple[int, ...], list[int]] = {}
        self.pixels: dict[tuple[int, ...], int] = {}

    def token_ids(self, piece: ScreenPiece) -> list[int]:
        if not self.processor.counts_by_size:
            return self.processor.image_token_ids(piece)
        size = (*piece.screen.pixels.shape, piece.age)
        if size not in self.ids:
            self.ids[size] = self.processor.image_token_ids(piece)
        return self.ids[size]

    def num_pixels(self, piece: ScreenPiece) -> int:
        size = (*piece.screen.pixels.shape, piece.age)
        if size not in self.pixels:
            _, height, width = self.processor.pixel_values(piece).shape
            self.pixels[size] = height * width
        return self.pixels[size]
