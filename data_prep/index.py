"""The index of all records: the columns of the spill files that decide what is written, as arrays.

In: the work folder and the numbers of its parts, in order. Out: an Index. 84 bytes a record, and each id, goal and
reason once: about half a gigabyte for the 5.7 million records of AITW.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data_prep.spill import SPILLED
from data_prep.work import Work

COLUMNS = (
    "subset", "episode_id", "step_id", "episode_length", "goal", "height", "width", "touch_y", "touch_x", "lift_y",
    "lift_x", "said", "kind", "digest", "why",
)  # fmt: skip


class Named(NamedTuple):
    """A column of few values: a code for each record, -1 for none, and the value of each code."""

    codes: NDArray[np.int32]
    values: Sequence[str]

    def at(self, record: int) -> str | None:
        code = int(self.codes[record])
        return None if code < 0 else self.values[code]


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """Records by their number: the order of the parts, and in a part the order of its rows."""

    part: NDArray[np.int32]  # whose spill file holds the row
    row: NDArray[np.int32]
    episode: Named  # subset, a zero byte, id: one id in two subsets is two episodes
    step_id: NDArray[np.int64]
    length: NDArray[np.int64]  # nominal, as recorded
    goal: Named
    said: Named  # the source's own split
    kind: Named  # of action
    why: Named  # why no row of an episode can be made of it
    size: NDArray[np.int32]  # [N, 2] height, width in pixels
    points: NDArray[np.float32]  # [N, 4] touch y, x, lift y, x
    digest: NDArray[np.void]  # 16 bytes each

    def __len__(self) -> int:
        return len(self.part)

    def episodes(self) -> Iterator[tuple[str, str, NDArray[np.int64]]]:
        """Each episode in order of its first record: subset, id, the numbers of its records in order."""
        order = np.argsort(self.episode.codes, kind="stable")
        ends = np.cumsum(np.bincount(self.episode.codes, minlength=len(self.episode.values)))
        start = 0
        for name, end in zip(self.episode.values, ends.tolist(), strict=True):
            subset, _, episode_id = name.partition("\0")
            yield subset, episode_id, order[start:end]
            start = end


def read_index(work: Work, numbers: Iterable[int]) -> Index:
    """The index of these parts; a part without a spill file (a damaged one) has no records."""
    kept = [number for number in numbers if work.spill(number).exists()]
    tables = [_read(work, number, COLUMNS) for number in kept]
    rows = [len(table) for table in tables]
    table = pa.concat_tables([_schema(COLUMNS).empty_table(), *tables])
    del tables
    key = pc.binary_join_element_wise(table["subset"], table["episode_id"], "\0")
    sizes = [_numbers(table, name, 0) for name in ("height", "width")]
    points = [_numbers(table, name, -1.0) for name in ("touch_y", "touch_x", "lift_y", "lift_x")]
    digests = pa.chunked_array(table["digest"]).combine_chunks()
    return Index(
        part=np.repeat(np.asarray(kept, np.int32), rows),
        row=np.concatenate([np.arange(n, dtype=np.int32) for n in [0, *rows]]),
        episode=_named(key),
        step_id=_numbers(table, "step_id", 0),
        length=_numbers(table, "episode_length", 0),
        goal=_named(table["goal"]),
        said=_named(table["said"]),
        kind=_named(table["kind"]),
        why=_named(table["why"]),
        size=np.stack(sizes, 1),
        points=np.stack(points, 1),
        digest=np.frombuffer(digests.buffers()[1], "V16", len(table), 16 * digests.offset),
    )


def sentences(work: Work, number: int, most: int) -> list[str]:
    """What a person is told of a part's unusable steps, at most so many."""
    if not work.spill(number).exists():
        return []
    told = pc.drop_null(_read(work, number, ("sentence",))["sentence"])
    return [str(sentence) for sentence in told.slice(0, most).to_pylist()]


def _read(work: Work, number: int, columns: Sequence[str]) -> pa.Table:
    """Some columns of a spill file."""
    with pa.memory_map(str(work.spill(number))) as file:
        rows = pa.ipc.open_file(file)
        batches = [rows.get_batch(i).select(columns) for i in range(rows.num_record_batches)]
        return pa.Table.from_batches(batches, _schema(columns)).combine_chunks()


def _schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([SPILLED.field(name) for name in columns])


def _numbers(table: pa.Table, name: str, missing: float) -> NDArray[Any]:
    filled = pc.fill_null(table[name], pa.scalar(missing, table[name].type))
    return np.asarray(filled.to_numpy())


def _named(column: pa.ChunkedArray) -> Named:
    encoded = pc.dictionary_encode(column).combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):  # of no chunks
        return Named(np.zeros(0, np.int32), ())
    codes = np.asarray(pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False), np.int32)
    return Named(codes, encoded.dictionary.to_pylist())
