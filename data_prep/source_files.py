"""Local and remote files of a source: a path or URL in; names, sizes and open files out.

Anything with `://` is read by fsspec as a stream, without a copy (gs:// needs the `gcs` extra).
"""

import io
import os
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})")  # name, number, count; no extension


class SourceFile(NamedTuple):
    """A file below a source."""

    name: str  # relative to the source, with "/", as text; the file's own name if the source is a file
    path: str  # for `open_binary`
    size: int  # bytes


def is_url(path: str) -> bool:
    return "://" in path


def to_text(name: str) -> str:
    """A file's name as valid Unicode: bytes that are not UTF-8 are escaped."""
    return name.encode("utf-8", "backslashreplace").decode()


def walk_files(folder: Path) -> Iterator[Path]:
    """Every file at any depth of a local folder, through links to folders; each real folder once."""
    visited: set[str] = set()
    for path, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(path)
        if real in visited:
            folders.clear()
            continue
        visited.add(real)
        folders.sort()
        yield from (file for file in (Path(path, name) for name in sorted(names)) if file.is_file())


def open_binary(path_or_url: str) -> io.BufferedReader:
    """Open a file for reading. Raises OSError if it is missing or cannot be reached."""
    if not is_url(path_or_url):
        return Path(path_or_url).open("rb")
    files, path = _open_filesystem(path_or_url)
    with _errors_as_oserror(path_or_url):
        return io.BufferedReader(_RemoteFile(path_or_url, files.open(path, "rb")))


def list_files(source: str) -> list[SourceFile]:
    """One file, or every file at any depth of a folder, sorted by name. Raises ValueError."""
    return sorted(_list_remote(source) if is_url(source) else _list_local(Path(source)))


def list_shards(source: str) -> list[SourceFile]:
    """One file of any name, or the files of a folder that are named like shards, `x-00000-of-00321`."""
    files = list_files(source)
    if len(files) == 1 and files[0].path.rstrip("/").endswith(source.rstrip("/")):
        return files
    return [file for file in files if SHARD.fullmatch(file.name.rsplit("/", 1)[-1])]


def _list_local(source: Path) -> list[SourceFile]:
    if source.is_file():
        return [SourceFile(to_text(source.name), str(source), source.stat().st_size)]
    if not source.is_dir():
        raise ValueError(f"there is no folder or file {source} to prepare")
    return [
        SourceFile(to_text(path.relative_to(source).as_posix()), str(path), path.stat().st_size)
        for path in walk_files(source)
    ]


def _list_remote(source: str) -> list[SourceFile]:
    files, root = _open_filesystem(source)
    infos: dict[str, dict[str, Any]] = {}
    with suppress(FileNotFoundError), _errors_as_oserror(source):
        infos = files.find(root, detail=True)
    if not infos:
        raise ValueError(f"there is no folder or file {source} to prepare, or it cannot be read from here")
    return [
        SourceFile(
            path.removeprefix(root).strip("/") or Path(root).name,
            files.unstrip_protocol(path),
            int(info["size"]),
        )
        for path, info in infos.items()
    ]


def _open_filesystem(url: str) -> tuple[Any, str]:
    import fsspec  # only for URLs

    try:
        files, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise ValueError(f"{url} cannot be opened: {error}") from None
    return files, str(path)


class _RemoteFile(io.RawIOBase):
    """A file of fsspec as a Python file: every read error is an OSError."""

    def __init__(self, path: str, file: Any) -> None:
        super().__init__()
        self.path, self.file = path, file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _errors_as_oserror(self.path):
            return int(self.file.readinto(buffer))

    def close(self) -> None:
        self.file.close()
        super().close()


@contextmanager
def _errors_as_oserror(path: str) -> Generator[None]:
    """Turn any error into an OSError: the clients of remote stores have their own exceptions."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{path} cannot be read: {error}") from error
