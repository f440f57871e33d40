"""Files and folders that appear complete or not at all: a temporary name, then a rename."""

import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def tmp_path(path: Path) -> Path:
    """The hidden name, next to `path`, that this process writes to first.

    Machines that share a disk may use the same process id.
    """
    return path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}.tmp")


def write_file(path: Path, content: str | bytes, mode: int = 0o666) -> Path:
    """Replace the file at `path`. A reader sees the old or the new content, never a part. Returns `path`.

    `mode`: its permissions, less those of the umask.
    """
    temporary = tmp_path(path)
    try:
        temporary.touch(mode)
        temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def check_new_dir(out: Path) -> None:
    """Raise ValueError unless `out` does not exist or is an empty folder."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} already exists and is not an empty folder: remove it, or choose another")


@contextmanager
def new_dir(out: Path) -> Iterator[Path]:
    """A temporary folder that becomes `out`, new or empty before, when the block ends without an error."""
    out = out.resolve()
    check_new_dir(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = tmp_path(out)
    try:
        temporary.mkdir()
        yield temporary
        temporary.replace(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
