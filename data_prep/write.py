"""Pass 2: planned episodes in; a folder of Parquet shards, `meta.json` and `report.json` out, all at once.

Everything is made in `OUT.tmp-...` beside OUT and renamed at the end, so OUT is there whole or not at all.
"""

import hashlib
import json
import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from data_prep.episodes import Planned
from data_prep.spill import spill_path
from data_prep.split import SPLITS
from uivlm.sentences.store import FORMAT, META, PLACED, ROW_GROUP, SCHEMA

REPORT = "report.json"
STEPS_A_FILE = 4096  # about 350 MB of screens; an episode is never cut


class Row(NamedTuple):
    """Where a row waits, and its place in its episode."""

    shard: int
    row: int
    t: int


@dataclass(frozen=True, slots=True)
class File:
    """One Parquet shard to write. A worker needs nothing else."""

    path: Path
    spill: Path  # folder of the spill files
    split: str
    rows: tuple[Row, ...]
    num_episodes: int


@contextmanager
def new_folder(out: Path, force: bool) -> Iterator[Path]:
    """A folder to fill that becomes OUT when the block ends well, and vanishes when it does not."""
    _may_write(out, force)
    out.parent.mkdir(parents=True, exist_ok=True)
    building = out.with_name(f"{out.name}.tmp-{os.getpid()}")
    building.mkdir()
    try:
        yield building
        old = out.with_name(f"{out.name}.old-{os.getpid()}")
        if out.exists():
            out.rename(old)
        building.rename(out)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _may_write(out: Path, force: bool) -> None:
    """ValueError unless OUT is new or empty, or is prepared data and `force` is set."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    try:
        ours = json.loads((out / META).read_text("utf-8")).get("format") == FORMAT
    except (OSError, ValueError, AttributeError):
        ours = False
    if not ours:
        raise ValueError(f"{out} exists and is no prepared data: name another folder, or remove it yourself")
    if not force:
        raise ValueError(
            f"{out} holds prepared data already: replace it with --force, or name another folder"
        )


def plan_files(episodes: list[Planned], folder: Path, spill: Path) -> list[File]:
    """Episodes as files of at most STEPS_A_FILE steps, split by split, in the order of the data."""
    files: list[File] = []
    for split in SPLITS:
        batches: list[list[Planned]] = []
        room = 0
        for episode in (e for e in episodes if e.split == split):
            if not batches or len(episode.steps) > room:
                batches.append([])
                room = STEPS_A_FILE
            batches[-1].append(episode)
            room -= len(episode.steps)
        for i, batch in enumerate(batches):
            rows = tuple(Row(e.shard, e.row, t) for episode in batch for t, e in enumerate(episode.steps))
            path = folder / f"{split}-{i:05d}-of-{len(batches):05d}.parquet"
            files.append(File(path, spill, split, rows, len(batch)))
    return files


def write_file(file: File) -> dict[str, Any]:
    """Gather one shard's rows and write it; what meta.json says of it."""
    reader = lru_cache(maxsize=64)(_reader)  # open files go with this call

    def spilled(row: Row) -> pa.RecordBatch:
        batch = reader(spill_path(file.spill, row.shard)).get_batch(row.row // ROW_GROUP)
        return batch.slice(row.row % ROW_GROUP, 1)

    hidden = file.path.with_name(f".{file.path.name}.tmp")
    compression = {field: "none" if field.startswith("image") else "zstd" for field in _leaves(SCHEMA)}
    with pq.ParquetWriter(
        hidden, SCHEMA, compression=compression, use_dictionary=["subset", "goal"]
    ) as writer:
        for start in range(0, len(file.rows), ROW_GROUP):
            rows = file.rows[start : start + ROW_GROUP]
            found = pa.Table.from_batches([spilled(row) for row in rows])
            placed = [[file.split] * len(rows), [row.t for row in rows]]
            columns = [pa.array(values, field.type) for values, field in zip(placed, PLACED, strict=True)]
            writer.write_table(pa.table([*columns, *found.columns], SCHEMA), row_group_size=ROW_GROUP)
    hidden.replace(file.path)
    size = file.path.stat().st_size
    return {"file": file.path.name, "episodes": file.num_episodes, "steps": len(file.rows), "bytes": size}


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


def _reader(path: Path) -> pa.RecordBatchFileReader:
    """A spill file mapped into memory: only the pages of the rows asked for are read."""
    return pa.ipc.open_file(pa.memory_map(str(path)))


def fingerprint(episodes: list[Planned]) -> str:
    """SHA-256 over every row in the order written: the same data has the same fingerprint, whatever the files."""
    total = hashlib.sha256()
    for split in SPLITS:
        for episode in (e for e in episodes if e.split == split):
            for t, entry in enumerate(episode.steps):
                total.update(split.encode() + struct.pack("<q", t) + entry.digest)
    return total.hexdigest()


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
