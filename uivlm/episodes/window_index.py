"""All windows of some episodes, and how long their sentences are in tokens.

In: episodes, a prompt format, a processor. Out: numbers of each window. The counts are exact. A screen is
decoded only if its size alone does not decide its number of visual tokens. The counts of prepared data are
kept in DATA/token_counts/NAME.arrow, where NAME is a digest of everything that they depend on, and mapped
into memory by every process.
"""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from uivlm.episodes.dataset import PreparedEpisodes
from uivlm.episodes.encode import IGNORE, Processor, digest, encode
from uivlm.episodes.episode import Episode
from uivlm.episodes.mapped_table import DamagedTableError, MappedTable, make_table, open_table, write_table
from uivlm.episodes.rows import DamagedScreenError
from uivlm.episodes.sentence import PromptFormat, ScreenPiece, Window
from uivlm.parallel import make_executor

FOLDER = "token_counts"
VERSION = 2  # raised when sentences are built in another way
EPISODES_PER_JOB = 4096  # a few seconds of work; fewer episodes are counted in this process
BAR_DELAY = 5.0  # seconds before the progress bar appears


@dataclass(frozen=True, slots=True, eq=False)
class WindowIndex:
    """Windows in the order of the data. Each field is int32 [windows].

    Another process is sent the file that the windows are from, if there is one.
    """

    episode: NDArray[np.int32]  # index of its episode
    window: NDArray[np.int32]  # which of the episode's windows, from 0
    num_tokens: NDArray[np.int32]  # of the whole sentence
    num_trained_tokens: NDArray[np.int32]
    num_screens: NDArray[np.int32]
    num_visual_tokens: NDArray[np.int32]
    num_pixels: NDArray[np.int32]  # of all its screens, as the vision encoder reads them
    file: Path | None = None
    max_tokens: int | None = None  # of the windows that were taken from the file; None: all

    def __len__(self) -> int:
        return len(self.num_tokens)

    def take(self, rows: NDArray[Any]) -> "WindowIndex":
        """The windows that a mask or indices select."""
        return WindowIndex(*(getattr(self, name)[rows] for name in FIELDS))

    def up_to(self, max_tokens: int) -> "WindowIndex":
        """The windows with at most so many tokens. If these are not all, they are copied."""
        fits = self.num_tokens <= max_tokens
        if fits.all():
            return self
        limit = max_tokens if self.max_tokens is None else min(max_tokens, self.max_tokens)
        return replace(self.take(fits), file=self.file, max_tokens=limit)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.file is None:
            return WindowIndex, tuple(getattr(self, name) for name in FIELDS)
        return _open_again, (self.file, self.max_tokens)


FIELDS = tuple(field.name for field in fields(WindowIndex))[:-2]


def _from_table(table: MappedTable) -> WindowIndex:
    columns: dict[str, Any] = {name: table.numbers(name) for name in FIELDS}
    return WindowIndex(**columns, file=table.file)


def _open_again(file: Path, max_tokens: int | None) -> WindowIndex:
    index = _from_table(open_table(file))
    return index if max_tokens is None else index.up_to(max_tokens)


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
        "episodes": episodes.refs.fingerprint,
    }
    metadata = json.dumps(depends_on)
    file = episodes.folder / FOLDER / f"{digest(metadata)[:16]}.arrow"
    writable = os.access(episodes.folder, os.W_OK)
    while wait and writable and not file.is_file():  # if the other one fails, the launcher stops this process
        time.sleep(0.1)
    if file.is_file():
        return _read(file, metadata)
    index = index_windows(episodes, prompt_format, processor, num_workers)
    if not writable:
        return index
    columns = {name: getattr(index, name) for name in FIELDS}
    return _from_table(write_table(make_table(columns, metadata), file))


def _read(file: Path, metadata: str) -> WindowIndex:
    try:
        table = open_table(file)
        index = _from_table(table)
    except (DamagedTableError, KeyError) as error:
        raise ValueError(f"the token counts {file} are damaged ({error}); remove that file") from None
    if table.metadata != metadata:
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
        except DamagedScreenError:
            assert isinstance(episodes, PreparedEpisodes)
            spans = self.prompt_format.spans(int(episodes.num_steps[i]))
            return [self._count_span(episodes, i, k, span, screens) for k, span in enumerate(spans)]
        return [self._count_window(window, screens) for window in self.prompt_format.windows(episode)]

    def _count_span(
        self,
        episodes: PreparedEpisodes,
        i: int,
        k: int,
        span: tuple[int, int, int],
        screens: "_ScreenCounter",
    ) -> tuple[int, int, int, int, int]:
        """The counts of window `k`; no tokens if one of its own screens is damaged, as training skips it."""
        start, _, end = span
        try:
            episode = episodes.with_screens(i, start, end, with_elements=False)
        except DamagedScreenError:
            return 0, 0, end - start, 0, 0
        return self._count_window(list(self.prompt_format.windows(episode))[k], screens)

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
