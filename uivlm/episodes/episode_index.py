"""Where each episode of prepared data is: its shard, its rows, its split.

In: the entries of `meta.json` and the shards. Out: a table with one row per episode. It is kept in
DATA/episode_index/NAME.arrow, where NAME is a digest of the data's fingerprint and the sizes of the shards.
All processes map that file into memory.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from uivlm.episodes.mapped_table import DamagedTableError, MappedTable, make_table, open_table, write_table

FOLDER = "episode_index"
VERSION = 1  # raised when the table has other columns
_NAMES = ("shard", "subset", "split")  # few values, many episodes: stored as codes
_ROWS_AT_ONCE = 4096  # episodes that an iteration decodes together


@dataclass(frozen=True, slots=True)
class EpisodeRef:
    """The location of an episode: `num_rows` rows of a shard, from `row` on."""

    shard: str  # file name
    row: int
    num_rows: int
    id: str
    subset: str
    split: str


_FIELDS = tuple(field.name for field in fields(EpisodeRef))


@dataclass(frozen=True, slots=True, eq=False)
class EpisodeIndex(Sequence[EpisodeRef]):
    """Some rows of a table of episodes. A whole split is a range: two numbers for another process."""

    table: MappedTable = field(repr=False)
    rows: range | NDArray[np.int64]

    @staticmethod
    def of(refs: Iterable[EpisodeRef], metadata: str = "") -> "EpisodeIndex":
        values = list(zip(*map(astuple, refs), strict=True)) or [()] * len(_FIELDS)
        columns: dict[str, Any] = dict(zip(_FIELDS, values, strict=True))
        for name in ("row", "num_rows"):
            columns[name] = np.array(columns[name], np.int32)
        columns["id"] = pa.array(columns["id"], pa.string())
        for name in _NAMES:
            columns[name] = pa.array(columns[name], pa.string()).dictionary_encode()
        table = make_table(columns, metadata)
        return EpisodeIndex(table, range(len(table)))

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> EpisodeRef: ...
    @overload
    def __getitem__(self, index: slice) -> "EpisodeIndex": ...
    def __getitem__(self, index: int | slice) -> "EpisodeRef | EpisodeIndex":
        if isinstance(index, slice):
            return EpisodeIndex(self.table, self.rows[index])
        row = int(self.rows[index])
        return EpisodeRef(*(self.table.columns[name][row].as_py() for name in _FIELDS))

    def __iter__(self) -> Iterator[EpisodeRef]:
        for start in range(0, len(self), _ROWS_AT_ONCE):
            part = self.table.columns.take(pa.array(np.asarray(self.rows[start : start + _ROWS_AT_ONCE])))
            for row in part.select(_FIELDS).to_pylist():
                yield EpisodeRef(**row)

    @property
    def num_rows(self) -> NDArray[np.int32]:
        """The number of rows, which are steps, of each episode."""
        return self._take("num_rows")

    def where(self, **wanted: str) -> "EpisodeIndex":
        """The episodes with these values of `split`, `subset` or `shard`."""
        chosen = np.ones(len(self), bool)
        for name, value in wanted.items():
            known = self.table.columns[name].dictionary.to_pylist()
            chosen &= self._take(name) == (known.index(value) if value in known else -1)
        return self.take(np.flatnonzero(chosen))

    def take(self, indices: Sequence[int] | NDArray[np.int64]) -> "EpisodeIndex":
        """The episodes at these places."""
        rows = np.asarray(self.rows, np.int64)[np.asarray(indices, np.int64)]
        if len(rows) and np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows))):
            return EpisodeIndex(self.table, range(int(rows[0]), int(rows[0]) + len(rows)))
        return EpisodeIndex(self.table, rows)

    @property
    def fingerprint(self) -> str:
        """A digest of which episodes of which data these are."""
        rows = np.asarray(self.rows, np.int64).tobytes()
        return hashlib.sha256(self.table.metadata.encode() + rows).hexdigest()

    def _take(self, name: str) -> NDArray[Any]:
        numbers, rows = self.table.numbers(name), self.rows
        return numbers[rows.start : rows.stop : rows.step] if isinstance(rows, range) else numbers[rows]


def open_index(folder: Path, metadata: dict[str, Any], refs: Iterable[EpisodeRef]) -> EpisodeIndex:
    """The kept index, or a new one of `refs`, which are read only then. ValueError if it is damaged.

    `metadata`: all that the index depends on. Without permission to write it stays in memory.
    """
    text = json.dumps({"version": VERSION, **metadata})
    file = folder / FOLDER / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.arrow"
    if file.is_file():
        try:
            table = open_table(file)
        except DamagedTableError as error:
            raise ValueError(f"the index {file} is damaged ({error}); remove that file") from None
        return EpisodeIndex(table, range(len(table)))
    index = EpisodeIndex.of(refs, text)
    if not os.access(folder, os.W_OK):
        return index
    return EpisodeIndex(write_table(index.table, file), index.rows)
