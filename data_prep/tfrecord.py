"""GZIP TFRecord files: a path in, the bytes of each record out, and the other way round.

A file is one gzip stream of frames: length (uint64 LE), masked crc32c of those 8 bytes, data, masked crc32c of
the data. Both checksums are always checked. At most one record and one inflated piece are held in memory.
"""

import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal

import google_crc32c
from zlib_ng import zlib_ng

from data_prep.files import open_binary

READ = 1 << 15  # bytes read from the file at a time
PIECE = 1 << 18  # bytes inflated at a time; more of either leaves the processor's cache
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
        stream = _Stream(file)
        try:
            while (record := _record(stream)) is not None:
                yield record
                number += 1
        except _BrokenError as broken:
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


def _record(stream: "_Stream") -> bytes | None:
    head = stream.take(12)
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
    data, checksum = stream.take(length), stream.take(4)
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


class _Stream:
    """The inflated bytes of a file, taken a given number at a time."""

    def __init__(self, file: BinaryIO) -> None:
        self._pieces = _inflate(file)
        self._left = memoryview(b"")  # inflated, not yet taken

    def take(self, size: int) -> bytes:
        """`size` bytes; fewer only at the end of the stream."""
        taken: list[memoryview] = []
        need = size
        while need:
            if not self._left:
                piece = next(self._pieces, None)
                if piece is None:
                    break
                self._left = memoryview(piece)
            part = self._left[:need]
            self._left = self._left[need:]
            taken.append(part)
            need -= len(part)
        return b"".join(taken)


def _inflate(file: BinaryIO) -> Iterator[bytes]:
    """The content of a gzip file in pieces of at most PIECE bytes. Concatenated gzip members are one content."""
    raw = file.read(READ)
    if not raw.startswith(GZIP_MAGIC):
        what = f"it begins with {raw[:4].hex(' ')}" if raw else "it is empty"
        raise _BrokenError("not gzip", f"this is no gzip file, {what}")
    while raw:
        if len(raw) < 2:
            raw += file.read(READ)
        if not raw.startswith(GZIP_MAGIC):
            raise _BrokenError(
                "trailing garbage", "bytes that are not gzip follow the end of the gzip stream"
            )
        inflate = zlib_ng.decompressobj(GZIP)
        while not inflate.eof:
            if not raw:
                raise _BrokenError("truncated gzip", "the gzip stream is cut off before its end")
            try:
                piece = inflate.decompress(raw, PIECE)
            except InflateError as error:
                raise _gzip_error(error) from None
            if piece:
                yield piece
            raw = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
            raw = raw or file.read(READ)


def _gzip_error(error: Exception) -> _BrokenError:
    text = str(error)
    if "data check" in text or "length check" in text:  # crc32 and size in the gzip trailer
        return _BrokenError("gzip checksum", "the checksum of the gzip stream does not match")
    return _BrokenError("gzip damage", f"the gzip stream cannot be inflated, {text}")
