"""GZIP TFRecord files: a path in, the bytes of each record out, and the other way round.

A file is one gzip stream of frames: length (uint64 LE), masked crc32c of those 8 bytes, data, masked crc32c of
the data. All checksums are always checked. At most one record is held in memory, inflated where it will stay.
"""

import io
import os
import struct
from collections.abc import Iterable, Iterator
from gzip import BadGzipFile
from pathlib import Path
from typing import BinaryIO, Literal, cast

import google_crc32c
from zlib_ng import zlib_ng
from zlib_ng.zlib_ng import _GzipReader

from data_prep.files import open_binary

READ = 1 << 15  # bytes read from the file at a time
MAX_RECORD = 1 << 28  # bytes; a raw 4320 x 7680 screen is 95 MiB
GZIP = 31  # zlib's window bits for a gzip header and trailer
GZIP_MAGIC = b"\x1f\x8b"
InflateError: type[Exception] = zlib_ng.error  # type: ignore[assignment]  # its stub is wrong

Kind = Literal[
    "not gzip", "truncated gzip", "gzip damage", "gzip checksum", "truncated record", "length checksum",
    "data checksum", "record too long", "trailing garbage",
]  # fmt: skip


class DamagedShard(ValueError):  # noqa: N818
    """A shard that cannot be read to its end: which file, which record (0-based), what is wrong with it."""

    def __init__(self, path: str, record: int, kind: Kind, detail: str) -> None:
        super().__init__(path, record, kind, detail)  # all arguments, so that it crosses process borders
        self.path, self.record, self.kind, self.detail = path, record, kind, detail

    def __str__(self) -> str:
        return f"damaged shard {self.path}: {self.detail} (at record {self.record}); fetch this file again"


class _BrokenError(Exception):
    """What is wrong, before it is known in which record."""

    def __init__(self, kind: Kind, detail: str) -> None:
        super().__init__(kind, detail)
        self.kind, self.detail = kind, detail


def read_records(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """The records of one shard (a path or URL), in order. Raises DamagedShard where the file stops making sense."""
    number = 0
    with open_binary(os.fspath(path)) as file:
        try:
            stream = _inflated(file)
            while (record := _record(stream)) is not None:
                yield record
                number += 1
        except (_BrokenError, BadGzipFile, EOFError, InflateError) as error:
            broken = error if isinstance(error, _BrokenError) else _gzip_error(error)
            raise DamagedShard(str(path), number, broken.kind, broken.detail) from None


def write_shard(path: str | os.PathLike[str], records: Iterable[bytes], level: int = 1) -> None:
    """Write a shard under a temporary name, then rename it. The same records give the same bytes."""
    target = Path(path)
    hidden = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with hidden.open("wb") as file:
            squeeze = zlib_ng.compressobj(level, zlib_ng.DEFLATED, GZIP)  # zlib's own gzip header: time 0
            for record in records:
                length = struct.pack("<Q", len(record))
                for part in (length, _checksum(length), record, _checksum(record)):
                    file.write(squeeze.compress(part))
            file.write(squeeze.flush())
        hidden.replace(target)
    finally:
        hidden.unlink(missing_ok=True)


def _record(stream: BinaryIO) -> bytes | None:
    head = stream.read(12)
    if not head:
        return None
    if len(head) < 12:
        raise _BrokenError(
            "truncated record", f"it ends after {len(head)} of the 12 bytes of a record's head"
        )
    if _checksum(head[:8]) != head[8:]:
        raise _BrokenError("length checksum", "the checksum of the record's length does not match")
    (length,) = struct.unpack("<Q", head[:8])
    if length > MAX_RECORD:
        raise _BrokenError(
            "record too long", f"a record of {length} bytes is more than the {MAX_RECORD} that make sense"
        )
    data, checksum = stream.read(length), stream.read(4)
    if len(checksum) < 4:
        there = len(data) + len(checksum)
        raise _BrokenError("truncated record", f"it ends after {there} of the record's {length + 4} bytes")
    if _checksum(data) != checksum:
        raise _BrokenError("data checksum", "the checksum of the record's data does not match")
    return data


def _checksum(data: bytes) -> bytes:
    """TFRecord's masked crc32c, little endian."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def _inflated(file: io.BufferedReader) -> BinaryIO:
    """The content of a gzip file: several members as one, zeros behind them as nothing."""
    head = file.peek(len(GZIP_MAGIC))[: len(GZIP_MAGIC)]
    if head != GZIP_MAGIC:
        what = f"it begins with {head.hex(' ')}" if head else "it is empty"
        raise _BrokenError("not gzip", f"this is no gzip file, {what}")
    # what GzipNGFile reads with; a buffer in between would cost a copy, and the last records of a file that is cut off
    return io.BufferedReader(cast("io.RawIOBase", _GzipReader(file, READ)), 1)


def _gzip_error(error: Exception) -> _BrokenError:
    text = str(error)
    match error:
        case EOFError():
            return _BrokenError("truncated gzip", "the gzip stream is cut off before its end")
        case BadGzipFile() if text.startswith("Not a gzipped file"):  # its beginning was one
            return _BrokenError(
                "trailing garbage", "bytes that are not gzip follow the end of the gzip stream"
            )
        case BadGzipFile() if "check" in text or "length" in text:  # crc32 and size in the gzip trailer
            return _BrokenError("gzip checksum", "the checksum of the gzip stream does not match")
        case _:
            return _BrokenError("gzip damage", f"the gzip stream cannot be inflated, {text}")
