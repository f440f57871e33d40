"""A folder that appears when it is whole, or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder to fill; it becomes `out`, which must not exist or be empty, when the block ends well."""
    out = out.resolve()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is there already and not an empty folder: remove it, or choose another")
    out.parent.mkdir(parents=True, exist_ok=True)
    hidden = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        hidden.mkdir()
        yield hidden
        hidden.replace(out)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
