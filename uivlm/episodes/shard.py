"""One Parquet shard of prepared data: the path in; where its episodes are, and rows of them, out.

Rows are found by the row groups that the file itself states, so a shard that another tool wrote again is read
as well. Every read is compared with the index: rows of another episode are an error.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from uivlm.episodes.episode_index import FOLDER as INDEX_FOLDER
from uivlm.episodes.episode_index import EpisodeRef
from uivlm.episodes.rows import DECODED_COLUMNS, NOTE_COLUMNS, SCHEMA

_INDEX_COLUMNS = ["split", "subset", "episode_id", "t"]  # enough to find every episode
_REQUIRED_COLUMNS = sorted({*_INDEX_COLUMNS, "goal", *DECODED_COLUMNS} - set(NOTE_COLUMNS))


def find_episodes(path: Path, num_steps: int) -> list[EpisodeRef]:
    """Where the episodes of a shard of `num_steps` steps are. Raises ValueError if it is damaged."""
    with _open_file(path) as file:
        table = _read(path, lambda: file.read(_INDEX_COLUMNS))
    if any(column.null_count for column in table.columns):
        raise ValueError(f"{path} is damaged (a column has nulls): prepare the data again")
    t = table["t"].to_numpy()
    if len(t) != num_steps:
        raise ValueError(
            f"{path}: got {len(t)} steps; expected {num_steps}, as in meta.json. Prepare the data again"
        )
    starts = np.flatnonzero(t == 0).tolist()
    if len(t) and (t[0] != 0 or np.any((t[1:] != 0) & (t[1:] != t[:-1] + 1))):
        raise ValueError(f"{path} is damaged (its steps are not in order): prepare the data again")
    ends = [*starts[1:], len(t)][: len(starts)]
    ids, subsets, splits = (table[name].to_pylist() for name in ("episode_id", "subset", "split"))
    return [
        EpisodeRef(path.name, start, end - start, ids[start], subsets[start], splits[start])
        for start, end in zip(starts, ends, strict=True)
    ]


def read_rows(
    folder: Path, ref: EpisodeRef, start: int, end: int, columns: list[str]
) -> list[dict[str, Any]]:
    """The steps `start` to `end` (exclusive) of an episode, as rows of these columns.

    Raises ValueError if the shard is damaged, or if another episode is there.
    """
    if start >= end:
        return []
    path = folder / ref.shard
    shard = _open_cached(path, os.getpid(), path.stat().st_mtime_ns)
    rows = ref.row + start, ref.row + end - 1  # the first and the last
    first, last = (np.searchsorted(shard.group_starts, rows, "right") - 1).tolist()
    groups = range(first, min(last + 1, shard.file.num_row_groups))
    names = [*columns, "episode_id", "t"]
    table = _read(path, lambda: shard.file.read_row_groups(groups, columns=names, use_threads=False))
    table = table.slice(rows[0] - int(shard.group_starts[first]), end - start)
    _check_episode(path, ref, table, start, end)
    present = [name for name in columns if name in table.column_names]  # older shards have no notes
    for name in present:  # a null image is a damaged screen; notes may be null
        if name != "image" and name not in NOTE_COLUMNS and table[name].null_count:
            raise ValueError(f"{path} is damaged (a null in {name}): prepare the data again")
    selected: list[dict[str, Any]] = table.select(present).to_pylist()
    return selected


def has_text(path: Path, column: str) -> bool:
    """Does any step of a shard have text in this column?"""
    with _open_file(path) as file:
        if column not in file.schema_arrow.names:
            return False
        values = _read(path, lambda: file.read([column])[column])
        return bool(values.null_count < len(values))


@dataclass(frozen=True, slots=True, eq=False)
class _Shard:
    file: pq.ParquetFile
    group_starts: NDArray[np.int64]  # [groups + 1]: the first row of each group, then the number of rows


def _check_episode(path: Path, ref: EpisodeRef, table: pa.Table, start: int, end: int) -> None:
    """Raise ValueError unless the rows are these steps of the episode, as the index states."""
    ids, t = table["episode_id"].to_pylist(), table["t"].to_pylist()  # quicker than Arrow on so few rows
    if set(ids) != {ref.id} or t != list(range(start, end)):
        raise ValueError(
            f"{path} is not the shard that was indexed: episode {ref.id!r} is no longer there. Remove "
            f"{path.parent / INDEX_FOLDER}, or prepare the data again"
        )


@lru_cache(maxsize=16)
def _open_cached(path: Path, pid: int, mtime_ns: int) -> _Shard:
    """An open shard of this process: a forked child opens its own, and a replaced file is opened again."""
    file = _open_file(path)
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    return _Shard(file, np.cumsum([0, *sizes]))


def _open_file(path: Path) -> pq.ParquetFile:
    """Open without Arrow's read-ahead threads: with many small row groups they make reading slower."""
    file: pq.ParquetFile = _read(path, lambda: pq.ParquetFile(path, pre_buffer=False))
    for name in _REQUIRED_COLUMNS:
        at = file.schema_arrow.get_field_index(name)
        found, expected = "none" if at < 0 else file.schema_arrow.types[at], SCHEMA.field(name).type
        if found != expected:
            raise ValueError(f"{path}: {name}: got {found}; expected {expected}. Prepare the data again")
    return file


def _read(path: Path, read: Callable[[], Any]) -> Any:
    """What `read` returns. ValueError if Arrow finds the file damaged."""
    try:
        return read()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is damaged ({error}): prepare the data again") from None
