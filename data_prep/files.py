"""Files of a source, near or far: a path or URL in; names, sizes and open files out.

A local path is read by the system, anything with `://` by fsspec (gs:// needs the `cloud` extra). Nothing is copied:
a far file is read as a stream.
"""

import io
import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})")  # name, number, how many; no extension


class Listed(NamedTuple):
    """A file below a source."""

    name: str  # relative to the source, with "/"; the file's own name where the source is a file
    where: str  # what `open_binary` takes
    size: int  # bytes


def is_url(where: str) -> bool:
    return "://" in where


def open_binary(where: str) -> io.BufferedReader:
    """Open to read. OSError where it is not there or cannot be reached."""
    if not is_url(where):
        return Path(where).open("rb")
    files, path = _far(where)
    with _reached(where):
        return io.BufferedReader(_FarFile(where, files.open(path, "rb")))


def list_files(source: str) -> list[Listed]:
    """The file that `source` names, or every file in the folder and its folders, by name. ValueError if neither."""
    return sorted(_listed_far(source) if is_url(source) else _listed_near(Path(source)))


def list_shards(source: str) -> list[Listed]:
    """The file that `source` names, whatever its name; or of a folder the files named like shards, `x-00000-of-00321`."""
    listed = list_files(source)
    if len(listed) == 1 and listed[0].where.rstrip("/").endswith(source.rstrip("/")):
        return listed
    return [file for file in listed if SHARD.fullmatch(file.name.rsplit("/", 1)[-1])]


def _listed_near(source: Path) -> list[Listed]:
    if source.is_file():
        return [Listed(source.name, str(source), source.stat().st_size)]
    if not source.is_dir():
        raise ValueError(f"there is no folder or file {source} to prepare")
    return [
        Listed(path.relative_to(source).as_posix(), str(path), path.stat().st_size)
        for path in source.rglob("*")
        if path.is_file()
    ]


def _listed_far(source: str) -> list[Listed]:
    files, root = _far(source)
    found: dict[str, dict[str, Any]] = {}
    with suppress(FileNotFoundError), _reached(source):
        found = files.find(root, detail=True)
    if not found:
        raise ValueError(f"there is no folder or file {source} to prepare, or it cannot be read from here")
    return [
        Listed(
            path.removeprefix(root).strip("/") or Path(root).name,
            files.unstrip_protocol(path),
            int(told["size"]),
        )
        for path, told in found.items()
    ]


def _far(where: str) -> tuple[Any, str]:
    import fsspec  # not before it is needed

    try:
        files, path = fsspec.core.url_to_fs(where)
    except (ImportError, ValueError) as error:
        raise ValueError(f"{where} cannot be opened: {error}") from None
    return files, str(path)


class _FarFile(io.RawIOBase):
    """A file that fsspec opened, as one of Python's own: each error of reading is an OSError."""

    def __init__(self, where: str, file: Any) -> None:
        super().__init__()
        self.where, self.file = where, file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _reached(self.where):
            return int(self.file.readinto(buffer))

    def close(self) -> None:
        self.file.close()
        super().close()


@contextmanager
def _reached(where: str) -> Generator[None]:
    """What goes wrong on the way to a store is an OSError; its clients have errors of their own beside that."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{where} cannot be read: {error}") from error
