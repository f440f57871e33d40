"""GZIP TFRecord files: a path in, the bytes of each record out, and the reverse.

A file is a gzip stream of frames: length (uint64 LE), masked crc32c of those 8 bytes, data, masked crc32c
of the data. All checksums are always checked. Memory holds at most one record, inflated into its final
buffer.
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

from data_prep.source_files import open_binary
from uivlm.atomic import tmp_path

READ_BYTES = 1 << 15  # bytes read from the file at a time
MAX_RECORD_BYTES = 1 << 28  # a raw 4320 x 7680 screen is 95 MiB
GZIP = 31  # zlib's window bits for a gzip header and trailer
GZIP_MAGIC = b"\x1f\x8b"
InflateError: type[Exception] = zlib_ng.error  # type: ignore[assignment]  # its stub is wrong

DamageType = Literal[
    "not gzip", "truncated gzip", "gzip damage", "gzip checksum", "truncated record", "length checksum",
    "data checksum", "record too long", "trailing garbage",
]  # fmt: skip


class CorruptShardError(ValueError):
    """A shard that cannot be read to its end: file, index of the record (0-based) and type of the damage."""

    def __init__(self, path: str, record_index: int, damage_type: DamageType, detail: str) -> None:
        super().__init__(path, record_index, damage_type, detail)  # all arguments, so that it can be pickled
        self.path, self.record_index, self.damage_type, self.detail = path, record_index, damage_type, detail

    def __str__(self) -> str:
        return f"corrupt shard {self.path}: {self.detail} (at record {self.record_index}). Download it again"


class _CorruptStreamError(Exception):
    """The damage, before the index of the record is known."""

    def __init__(self, damage_type: DamageType, detail: str) -> None:
        super().__init__(damage_type, detail)
        self.damage_type, self.detail = damage_type, detail


def read_records(path: str | os.PathLike[str], name: str = "") -> Iterator[bytes]:
    """The records of a shard (path or URL), in order. Raises CorruptShardError at the first corrupt one.

    `name`: of the shard in errors; default: its path.
    """
    record_index = 0
    with open_binary(os.fspath(path)) as file:
        try:
            stream = _open_gzip(file)
            while (record := _read_record(stream)) is not None:
                yield record
                record_index += 1
        except (_CorruptStreamError, BadGzipFile, EOFError, InflateError) as error:
            damage = error if isinstance(error, _CorruptStreamError) else _gzip_error(error)
            raise CorruptShardError(
                name or str(path), record_index, damage.damage_type, damage.detail
            ) from None


def write_shard(path: str | os.PathLike[str], records: Iterable[bytes], level: int = 1) -> None:
    """Write a shard under a temporary name, then rename it. The same records give the same bytes."""
    target = Path(path)
    temporary = tmp_path(target)
    try:
        with temporary.open("wb") as file:
            compressor = zlib_ng.compressobj(level, zlib_ng.DEFLATED, GZIP)  # its gzip header has time 0
            for record in records:
                length = struct.pack("<Q", len(record))
                for part in (length, _masked_crc32c(length), record, _masked_crc32c(record)):
                    file.write(compressor.compress(part))
            file.write(compressor.flush())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _read_record(stream: BinaryIO) -> bytes | None:
    head = stream.read(12)
    if not head:
        return None
    if len(head) < 12:
        raise _CorruptStreamError(
            "truncated record", f"it ends after {len(head)} of the 12 bytes of a record's header"
        )
    if _masked_crc32c(head[:8]) != head[8:]:
        raise _CorruptStreamError("length checksum", "the checksum of the record's length does not match")
    (length,) = struct.unpack("<Q", head[:8])
    if length > MAX_RECORD_BYTES:
        raise _CorruptStreamError(
            "record too long",
            f"length of the record: got {length} bytes; expected at most {MAX_RECORD_BYTES}",
        )
    data, checksum = stream.read(length), stream.read(4)
    if len(checksum) < 4:
        size = len(data) + len(checksum)
        raise _CorruptStreamError(
            "truncated record", f"it ends after {size} of the record's {length + 4} bytes"
        )
    if _masked_crc32c(data) != checksum:
        raise _CorruptStreamError("data checksum", "the checksum of the record's data does not match")
    return data


def _masked_crc32c(data: bytes) -> bytes:
    """TFRecord's masked crc32c, little endian."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def _open_gzip(file: io.BufferedReader) -> BinaryIO:
    """The content of a gzip file: its members joined, without trailing zeros."""
    head = file.peek(len(GZIP_MAGIC))[: len(GZIP_MAGIC)]
    if head != GZIP_MAGIC:
        content = f"it begins with {head.hex(' ')}" if head else "it is empty"
        raise _CorruptStreamError("not gzip", f"it is not a gzip file, {content}")
    # GzipNGFile's own reader: its buffer would cost a copy, and the last records of a truncated file
    return io.BufferedReader(cast("io.RawIOBase", _GzipReader(file, READ_BYTES)), 1)


def _gzip_error(error: Exception) -> _CorruptStreamError:
    text = str(error)
    match error:
        case EOFError():
            return _CorruptStreamError("truncated gzip", "the gzip stream is truncated")
        case BadGzipFile() if text.startswith("Not a gzipped file"):  # after a valid first member
            return _CorruptStreamError(
                "trailing garbage", "bytes that are not gzip follow the end of the gzip stream"
            )
        case BadGzipFile() if "check" in text or "length" in text:  # crc32 and size in the gzip trailer
            return _CorruptStreamError("gzip checksum", "the checksum of the gzip stream does not match")
        case _:
            return _CorruptStreamError("gzip damage", f"the gzip stream cannot be inflated, {text}")
