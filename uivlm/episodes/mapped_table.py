"""Tables of numbers and short texts in Arrow files, mapped into memory: no process copies them.

A file appears complete or not at all. Its metadata is a text that says what the table belongs to.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from uivlm import atomic

_METADATA = b"metadata"


class DamagedTableError(ValueError):
    """A file that is not a complete table."""


@dataclass(frozen=True, slots=True, eq=False)
class MappedTable:
    """Columns of a file or, without one, of memory. Another process is sent the path, not the columns."""

    columns: pa.RecordBatch = field(repr=False)
    file: Path | None = None

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def numbers(self, name: str) -> NDArray[Any]:
        """A column of numbers, or the codes of a dictionary column; a view that cannot be written to."""
        column = self.columns[name]
        codes = column.indices if isinstance(column, pa.DictionaryArray) else column
        return np.asarray(codes.to_numpy(zero_copy_only=True))

    @property
    def metadata(self) -> str:
        return str((self.columns.schema.metadata or {}).get(_METADATA, b"").decode())

    def __reduce__(self) -> tuple[Any, ...]:
        return (MappedTable, (self.columns,)) if self.file is None else (open_table, (self.file,))


def make_table(columns: dict[str, Any], metadata: str) -> MappedTable:
    """A table in memory, of Arrow or numpy arrays of equal length."""
    batch = pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in columns.items()})
    return MappedTable(batch.replace_schema_metadata({_METADATA: metadata.encode()}))


def write_table(table: MappedTable, file: Path) -> MappedTable:
    """Write a table; its folder is made. Returns the file's mapped table."""
    file.parent.mkdir(exist_ok=True)
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_file(buffer, table.columns.schema) as writer:
        writer.write_batch(table.columns)
    atomic.write_file(file, buffer.getvalue().to_pybytes())
    return open_table(file)


def open_table(file: Path) -> MappedTable:
    """Map a file. Raises DamagedTableError, or OSError if there is none."""
    try:
        return MappedTable(pa.ipc.open_file(pa.memory_map(str(file))).get_batch(0), file)
    except (pa.ArrowException, ValueError) as error:
        raise DamagedTableError(str(error)) from error
