"""The index of all records: the columns of the spill files that decide what is written, as arrays.

In: the work folder and the indices of its parts. Out: a `RecordIndex` of 92 bytes per record, plus each
id, goal and reason once: about half a gigabyte for the 5.7 million records of AITW.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data_prep.pass1_read import SPILL_SCHEMA
from data_prep.work_dir import WorkDir

COLUMNS = (
    "subset", "episode_id", "step_id", "episode_length", "goal", "height", "width", "touch_y", "touch_x",
    "lift_y", "lift_x", "source_split", "recording", "action_name", "dropped_boxes", "digest",
    "reject_reason",
)  # fmt: skip


class DictionaryColumn(NamedTuple):
    """A column of few distinct values: a code per record, -1 for null, and the value of each code."""

    codes: NDArray[np.int32]
    values: Sequence[str]

    def value_at(self, record: int) -> str | None:
        code = int(self.codes[record])
        return None if code < 0 else self.values[code]


@dataclass(frozen=True, slots=True, eq=False)
class RecordIndex:
    """All records, in the order of the parts and of the rows in a part."""

    part_index: NDArray[np.int32]  # of the spill file that holds the row
    row_index: NDArray[np.int32]
    episode: DictionaryColumn  # subset, zero byte, id: the same id in two subsets is two episodes
    step_id: NDArray[np.int64]
    stated_length: NDArray[np.int64]  # as recorded
    goal: DictionaryColumn
    source_split: DictionaryColumn  # the source's own split
    recording: DictionaryColumn  # the object of the source that is the episode
    action_type: DictionaryColumn  # tap, swipe, type, press back, ...
    reject_reason: DictionaryColumn  # why the step is unusable
    screen_size: NDArray[np.int32]  # [N, 2] height, width in pixels
    points: NDArray[np.float32]  # [N, 4] touch y, x, lift y, x
    dropped_boxes: NDArray[np.int32]  # number of boxes that were left out
    digest: NDArray[np.void]  # 16 bytes each

    def __len__(self) -> int:
        return len(self.part_index)

    def episodes(self) -> Iterator[tuple[str, str, NDArray[np.int64]]]:
        """Each episode in order of its first record: subset, id, the indices of its records in order."""
        order = np.argsort(self.episode.codes, kind="stable")
        ends = np.cumsum(np.bincount(self.episode.codes, minlength=len(self.episode.values)))
        start = 0
        for name, end in zip(self.episode.values, ends.tolist(), strict=True):
            subset, _, episode_id = name.partition("\0")
            yield subset, episode_id, order[start:end]
            start = end


def read_index(work_dir: WorkDir, part_indices: Iterable[int]) -> RecordIndex:
    """The index of these parts. A corrupt part has no spill file, so no records."""
    parts = [part_index for part_index in part_indices if work_dir.spill_path(part_index).exists()]
    tables = [_read_columns(work_dir, part_index, COLUMNS) for part_index in parts]
    rows = [len(table) for table in tables]
    table = pa.concat_tables([_schema(COLUMNS).empty_table(), *tables])
    del tables
    key = pc.binary_join_element_wise(table["subset"], table["episode_id"], "\0")
    sizes = [_numeric_column(table, name, 0) for name in ("height", "width")]
    points = [_numeric_column(table, name, -1.0) for name in ("touch_y", "touch_x", "lift_y", "lift_x")]
    digests = pa.chunked_array(table["digest"]).combine_chunks()
    return RecordIndex(
        part_index=np.repeat(np.asarray(parts, np.int32), rows),
        row_index=np.concatenate([np.arange(n, dtype=np.int32) for n in [0, *rows]]),
        episode=_dictionary_column(key),
        step_id=_numeric_column(table, "step_id", 0),
        stated_length=_numeric_column(table, "episode_length", 0),
        goal=_dictionary_column(table["goal"]),
        source_split=_dictionary_column(table["source_split"]),
        recording=_dictionary_column(table["recording"]),
        action_type=_dictionary_column(table["action_name"]),
        reject_reason=_dictionary_column(table["reject_reason"]),
        screen_size=np.stack(sizes, 1),
        points=np.stack(points, 1),
        dropped_boxes=_numeric_column(table, "dropped_boxes", 0),
        digest=np.frombuffer(digests.buffers()[1], "V16", len(table), 16 * digests.offset),
    )


def reject_messages(work_dir: WorkDir, part_indices: Iterable[int], max_messages: int) -> list[str]:
    """The first messages about the unusable steps of these parts, at most `max_messages`."""
    messages: list[str] = []
    for part_index in part_indices:
        if len(messages) == max_messages:
            break
        if work_dir.spill_path(part_index).exists():
            column = _read_columns(work_dir, part_index, ("reject_message",))["reject_message"]
            messages += pc.drop_null(column).slice(0, max_messages - len(messages)).to_pylist()
    return messages


def _read_columns(work_dir: WorkDir, part_index: int, columns: Sequence[str]) -> pa.Table:
    """Some columns of a spill file."""
    with pa.memory_map(str(work_dir.spill_path(part_index))) as file:
        rows = pa.ipc.open_file(file)
        batches = [rows.get_batch(i).select(columns) for i in range(rows.num_record_batches)]
        return pa.Table.from_batches(batches, _schema(columns)).combine_chunks()


def _schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([SPILL_SCHEMA.field(name) for name in columns])


def _numeric_column(table: pa.Table, name: str, missing: float) -> NDArray[Any]:
    filled = pc.fill_null(table[name], pa.scalar(missing, table[name].type))
    return np.asarray(filled.to_numpy())


def _dictionary_column(column: pa.ChunkedArray) -> DictionaryColumn:
    encoded = pc.dictionary_encode(column).combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):  # without chunks
        return DictionaryColumn(np.zeros(0, np.int32), ())
    codes = np.asarray(pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False), np.int32)
    return DictionaryColumn(codes, encoded.dictionary.to_pylist())
