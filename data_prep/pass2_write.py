"""Pass 2: planned episodes and spilled rows in; Parquet shards out, each renamed when it is complete."""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_prep.index import RecordIndex
from data_prep.pass1_read import ROWS_PER_BATCH
from data_prep.plan import PlannedEpisode
from data_prep.split import SPLITS, Split
from data_prep.work_dir import WorkDir
from uivlm.episodes.rows import EPISODE_COLUMNS, ROW_GROUP_SIZE, SCHEMA, STEP_COLUMNS

ROWS_PER_READ = 8 * ROW_GROUP_SIZE  # 10 MB of screens: opening the spill files costs as much as a few rows
STEPS_PER_FILE = 4096  # about 350 MB of screens; an episode is never cut


class RowRef(NamedTuple):
    """The location of a spilled row, and its position `t` in its episode."""

    part_index: int
    row_index: int
    t: int


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """One Parquet shard to write: all that a worker needs."""

    name: str
    work_dir: WorkDir
    split: Split
    rows: tuple[RowRef, ...]
    num_episodes: int


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The shards in order and, per shard, the screens files that no later shard needs.

    Removing those after each shard avoids a second full copy of the screens on disk.
    """

    shards: Iterator[ShardPlan]
    spent_screens: list[list[Path]]  # per shard


def plan_files(episodes: list[PlannedEpisode], index: RecordIndex, work_dir: WorkDir) -> WritePlan:
    """Episodes as shards of at most STEPS_PER_FILE steps, split by split, in the order of the data."""
    batches = {split: _batches([e for e in episodes if e.split == split]) for split in SPLITS}
    shards = (
        ShardPlan(
            f"{split}-{i:05d}-of-{len(split_batches):05d}.parquet",
            work_dir,
            split,
            _row_refs(batch, index),
            len(batch),
        )
        for split, split_batches in batches.items()
        for i, batch in enumerate(split_batches)
    )
    return WritePlan(shards, [
        [work_dir.screens_path(part, split) for part in parts]
        for split, split_batches in batches.items() for parts in _parts_last_needed(split_batches, index)
    ])  # fmt: skip


def _parts_last_needed(batches: list[list[PlannedEpisode]], index: RecordIndex) -> list[list[int]]:
    """Per batch: the parts that no later batch has a record of."""
    last: dict[int, int] = {}
    for i, batch in enumerate(batches):
        records = np.concatenate([episode.records for episode in batch])
        last |= dict.fromkeys(np.unique(index.part_index[records]).tolist(), i)
    parts: list[list[int]] = [[] for _ in batches]
    for part, i in last.items():
        parts[i].append(part)
    return parts


def _batches(episodes: list[PlannedEpisode]) -> list[list[PlannedEpisode]]:
    batches: list[list[PlannedEpisode]] = []
    room = 0
    for episode in episodes:
        if not batches or len(episode) > room:
            batches.append([])
            room = STEPS_PER_FILE
        batches[-1].append(episode)
        room -= len(episode)
    return batches


def _row_refs(batch: list[PlannedEpisode], index: RecordIndex) -> tuple[RowRef, ...]:
    return tuple(
        RowRef(int(index.part_index[record]), int(index.row_index[record]), t)
        for episode in batch
        for t, record in enumerate(episode.records)
    )


def write_file(shard: ShardPlan) -> dict[str, Any]:
    """Write one shard unless an earlier run did. Returns its entry for `meta.json`."""
    path = shard.work_dir.data_dir / shard.name
    if not path.exists():
        temp_path = shard.work_dir.temp_path()
        _write_parquet(shard, temp_path)
        temp_path.replace(path)
    size = path.stat().st_size
    return {"file": path.name, "episodes": shard.num_episodes, "steps": len(shard.rows), "bytes": size}


def _write_parquet(shard: ShardPlan, path: Path) -> None:
    # row groups are small, so a codec's fixed cost counts: snappy takes a fifth less time than zstd
    compression = {
        field: "none" if field.startswith("image") else "snappy" for field in _leaf_columns(SCHEMA)
    }
    with pq.ParquetWriter(path, SCHEMA, compression=compression, use_dictionary=["subset", "goal"]) as writer:
        for start in range(0, len(shard.rows), ROWS_PER_READ):
            rows = shard.rows[start : start + ROWS_PER_READ]
            values = [[shard.split] * len(rows), [row.t for row in rows]]
            columns = [
                pa.array(column, field.type) for column, field in zip(values, EPISODE_COLUMNS, strict=True)
            ]
            steps = _gather_rows(shard.work_dir, shard.split, rows)
            writer.write_table(pa.table([*columns, *steps.columns], SCHEMA), row_group_size=ROW_GROUP_SIZE)


def _gather_rows(work_dir: WorkDir, split: Split, rows: Sequence[RowRef]) -> pa.Table:
    """The rows, in order. Spill files are mapped per call, because pages of a map count as memory."""
    positions = [(row.part_index, *divmod(row.row_index, ROWS_PER_BATCH)) for row in rows]
    parts = {row.part_index for row in rows}
    files = {part: pa.ipc.open_file(pa.memory_map(str(work_dir.spill_path(part)))) for part in parts}
    screens = {part: pa.memory_map(str(work_dir.screens_path(part, split))) for part in parts}
    batches = {
        (part, group): files[part].get_batch(group)
        for part, group in {(part, group) for part, group, _ in positions}
    }
    return pa.Table.from_batches([
        _with_screens(batches[part, group].slice(start, length), screens[part])
        for (part, group, start), length in _consecutive_runs(positions)
    ])  # fmt: skip


def _with_screens(rows: pa.RecordBatch, screens: pa.MemoryMappedFile) -> pa.RecordBatch:
    """Adjacent rows with their screens, which are adjacent as well, so that no byte of them is copied."""
    sizes = rows["image_size"].to_numpy()
    ends = np.concatenate([np.zeros(1, np.int32), np.cumsum(sizes, dtype=np.int32)])
    screens.seek(rows["image_offset"][0].as_py())
    buffers = [None, pa.py_buffer(ends), screens.read_buffer(int(ends[-1]))]
    images = pa.Array.from_buffers(pa.binary(), len(rows), buffers)
    image = STEP_COLUMNS.field("image")
    struct = pa.StructArray.from_arrays([images, pa.nulls(len(rows), pa.string())], fields=list(image.type))
    columns = [struct if name == image.name else rows[name] for name in STEP_COLUMNS.names]
    return pa.RecordBatch.from_arrays(columns, schema=STEP_COLUMNS)


def _consecutive_runs(positions: Sequence[tuple[int, int, int]]) -> list[tuple[tuple[int, int, int], int]]:
    """The start and length of each run of adjacent rows. Usually an episode is one run."""
    runs: list[tuple[tuple[int, int, int], int]] = []
    for part, group, row in positions:
        if runs and (part, group, row) == (*runs[-1][0][:2], runs[-1][0][2] + runs[-1][1]):
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append(((part, group, row), 1))
    return runs


def _leaf_columns(schema: pa.Schema) -> list[str]:
    """Parquet's dotted names of the columns."""
    names: list[str] = []
    for field in schema:
        if pa.types.is_struct(field.type):
            names += [f"{field.name}.{part.name}" for part in field.type]
        elif pa.types.is_list(field.type):
            names.append(f"{field.name}.list.element")
        else:
            names.append(field.name)
    return names


def data_fingerprint(episodes: list[PlannedEpisode], index: RecordIndex) -> str:
    """SHA-256 of all rows in the order written. It depends on the data and not on its division into files."""
    total = hashlib.sha256()
    for split in SPLITS:
        for episode in (e for e in episodes if e.split == split):
            for t, record in enumerate(episode.records):
                total.update(split.encode() + struct.pack("<q", t) + index.digest[record].tobytes())
    return total.hexdigest()
