"""Pass 2: planned episodes and the rows that wait on disk in; Parquet shards out, each under its name when it is whole."""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_prep.episodes import Planned
from data_prep.index import Index
from data_prep.spill import WAITING
from data_prep.split import SPLITS, Split
from data_prep.work import Work
from uivlm.sentences.store import PLACED, RECORDED, ROW_GROUP, SCHEMA

GATHERED = 8 * ROW_GROUP  # rows at a time, 10 MB of screens: to open what waits costs as much as some rows
STEPS_A_FILE = 4096  # about 350 MB of screens; an episode is never cut


class Row(NamedTuple):
    """Where a row waits, and its place in its episode."""

    part: int
    row: int
    t: int


@dataclass(frozen=True, slots=True)
class File:
    """One Parquet shard to write. A worker needs nothing else."""

    name: str
    work: Work
    split: Split
    rows: tuple[Row, ...]
    num_episodes: int


@dataclass(frozen=True, slots=True)
class Files:
    """What is to be written, in this order, and after each file the waiting screens that none to come needs: so that they
    and the data do not lie on disk twice as a whole."""

    files: Iterator[File]
    spent: list[list[Path]]  # of each file


def plan_files(episodes: list[Planned], index: Index, work: Work) -> Files:
    """Episodes as files of at most STEPS_A_FILE steps, split by split, in the order of the data."""
    batches = {split: _batches([e for e in episodes if e.split == split]) for split in SPLITS}
    files = (
        File(f"{split}-{i:05d}-of-{len(listed):05d}.parquet", work, split, _places(batch, index), len(batch))
        for split, listed in batches.items()
        for i, batch in enumerate(listed)
    )
    return Files(files, [
        [work.screens(part, split) for part in parts]
        for split, listed in batches.items() for parts in _last_needed(listed, index)
    ])  # fmt: skip


def _last_needed(batches: list[list[Planned]], index: Index) -> list[list[int]]:
    """Of each batch, the parts of which no later one has a record."""
    last: dict[int, int] = {}
    for i, batch in enumerate(batches):
        records = np.concatenate([episode.records for episode in batch])
        last |= dict.fromkeys(np.unique(index.part[records]).tolist(), i)
    found: list[list[int]] = [[] for _ in batches]
    for part, i in last.items():
        found[i].append(part)
    return found


def _batches(episodes: list[Planned]) -> list[list[Planned]]:
    batches: list[list[Planned]] = []
    room = 0
    for episode in episodes:
        if not batches or len(episode) > room:
            batches.append([])
            room = STEPS_A_FILE
        batches[-1].append(episode)
        room -= len(episode)
    return batches


def _places(batch: list[Planned], index: Index) -> tuple[Row, ...]:
    return tuple(
        Row(int(index.part[record]), int(index.row[record]), t)
        for episode in batch
        for t, record in enumerate(episode.records)
    )


def write_file(file: File) -> dict[str, Any]:
    """Gather one shard's rows and write it, unless an earlier run did; what meta.json says of it."""
    path = file.work.data / file.name
    if not path.exists():
        hidden = file.work.hidden()
        _write(file, hidden)
        hidden.replace(path)
    size = path.stat().st_size
    return {"file": path.name, "episodes": file.num_episodes, "steps": len(file.rows), "bytes": size}


def _write(file: File, path: Path) -> None:
    # a row group has few rows, so what a codec costs once counts: snappy takes a fifth less time than zstd
    compression = {field: "none" if field.startswith("image") else "snappy" for field in _leaves(SCHEMA)}
    with pq.ParquetWriter(path, SCHEMA, compression=compression, use_dictionary=["subset", "goal"]) as writer:
        for start in range(0, len(file.rows), GATHERED):
            rows = file.rows[start : start + GATHERED]
            placed = [[file.split] * len(rows), [row.t for row in rows]]
            columns = [pa.array(values, field.type) for values, field in zip(placed, PLACED, strict=True)]
            found = _gathered(file.work, file.split, rows)
            writer.write_table(pa.table([*columns, *found.columns], SCHEMA), row_group_size=ROW_GROUP)


def _gathered(work: Work, split: Split, rows: Sequence[Row]) -> pa.Table:
    """The rows, in order. Their files are mapped into memory for them alone: what is read of a map counts as this process's
    memory while it lasts."""
    places = [(row.part, *divmod(row.row, WAITING)) for row in rows]
    parts = {row.part for row in rows}
    files = {part: pa.ipc.open_file(pa.memory_map(str(work.spill(part)))) for part in parts}
    screens = {part: pa.memory_map(str(work.screens(part, split))) for part in parts}
    batches = {
        (part, group): files[part].get_batch(group)
        for part, group in {(part, group) for part, group, _ in places}
    }
    return pa.Table.from_batches([
        _with_screens(batches[part, group].slice(at, number), screens[part])
        for (part, group, at), number in _runs(places)
    ])  # fmt: skip


def _with_screens(rows: pa.RecordBatch, screens: pa.MemoryMappedFile) -> pa.RecordBatch:
    """Rows that follow each other, with their screens, which then do, too: no byte of them is copied."""
    sizes = rows["image_size"].to_numpy()
    ends = np.concatenate([np.zeros(1, np.int32), np.cumsum(sizes, dtype=np.int32)])
    screens.seek(rows["image_at"][0].as_py())
    buffers = [None, pa.py_buffer(ends), screens.read_buffer(int(ends[-1]))]
    images = pa.Array.from_buffers(pa.binary(), len(rows), buffers)
    image = RECORDED.field("image")
    packed = pa.StructArray.from_arrays([images, pa.nulls(len(rows), pa.string())], fields=list(image.type))
    columns = [packed if name == image.name else rows[name] for name in RECORDED.names]
    return pa.RecordBatch.from_arrays(columns, schema=RECORDED)


def _runs(places: Sequence[tuple[int, int, int]]) -> list[tuple[tuple[int, int, int], int]]:
    """Where rows that follow each other begin, and how many they are: as a rule an episode's do."""
    found: list[tuple[tuple[int, int, int], int]] = []
    for part, group, at in places:
        if found and (part, group, at) == (*found[-1][0][:2], found[-1][0][2] + found[-1][1]):
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append(((part, group, at), 1))
    return found


def _leaves(schema: pa.Schema) -> list[str]:
    """The dotted names by which Parquet knows its columns."""
    names: list[str] = []
    for field in schema:
        if pa.types.is_struct(field.type):
            names += [f"{field.name}.{part.name}" for part in field.type]
        elif pa.types.is_list(field.type):
            names.append(f"{field.name}.list.element")
        else:
            names.append(field.name)
    return names


def fingerprint(episodes: list[Planned], index: Index) -> str:
    """SHA-256 over every row in the order written: the same data has the same fingerprint, whatever the files."""
    total = hashlib.sha256()
    for split in SPLITS:
        for episode in (e for e in episodes if e.split == split):
            for t, record in enumerate(episode.records):
                total.update(split.encode() + struct.pack("<q", t) + index.digest[record].tobytes())
    return total.hexdigest()
