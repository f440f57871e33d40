"""Pass 1: one shard in; its steps as finished rows in a temporary Arrow file, and a small index of them, out.

A gzip stream cannot be entered in the middle, and the steps of an episode may lie anywhere. So every shard is read
once, screens are encoded at once, and the rows wait on disk in a file that can be read at any row. Bounds: in memory
one record and 16 encoded rows per worker, plus about half a kilobyte of index per step in the main process; on disk
the encoded screens a second time until the data is written.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import pyarrow as pa

from data_prep.aitw import BadRecord, Record, parse_record
from data_prep.shards import Shard
from data_prep.tfrecord import read_records
from uivlm.actions.language import Language
from uivlm.sentences.store import RECORDED, ROW_GROUP, element_columns, encode_image

READ = 1 << 20  # bytes of a file at a time


class Entry(NamedTuple):
    """What the index keeps of one record."""

    shard: int  # number of its spill file
    row: int  # number in it
    subset: str
    episode_id: str
    step_id: int
    episode_length: int
    goal: str
    digest: bytes  # of the whole row
    kind: str  # of action: tap, swipe, type, press back, ...
    size: tuple[int, int]  # height, width in pixels


@dataclass(frozen=True, slots=True)
class Job:
    """One shard to read. A worker needs nothing else."""

    number: int
    shard: Shard
    folder: Path  # of the spill files
    bins: int
    codec: str


@dataclass(frozen=True, slots=True)
class Spilled:
    """One shard read: its index, and what meta.json says of it."""

    entries: list[Entry]
    source: dict[str, str | int]


def spill_path(folder: Path, number: int) -> Path:
    return folder / f"{number:05d}.arrow"


def spill_shard(job: Job) -> Spilled:
    """Read a shard to its end. Raises DamagedShard or BadRecord."""
    entries: list[Entry] = []
    waiting: list[dict[str, Any]] = []
    language = Language(job.bins)
    path = job.shard.path
    with (
        pa.OSFile(str(spill_path(job.folder, job.number)), "wb") as file,
        pa.ipc.new_file(file, RECORDED) as writer,
    ):
        for number, data in enumerate(read_records(path)):
            record = parse_record(data, str(path), number)
            try:
                words = language.say(record.action)
            except ValueError as error:
                raise BadRecord(str(path), number, "results/yx_touch, results/yx_lift", str(error)) from None
            row = _row(record, job.shard.subset, words, job.codec)
            entries.append(_entry(record, row, job.number, number))
            waiting.append(row)
            if len(waiting) == ROW_GROUP:
                writer.write_batch(pa.RecordBatch.from_pylist(waiting, RECORDED))
                waiting.clear()
        if waiting:
            writer.write_batch(pa.RecordBatch.from_pylist(waiting, RECORDED))
    return Spilled(entries, _source(job.shard, len(entries)))


def _row(record: Record, subset: str, words: str, codec: str) -> dict[str, Any]:
    height, width, _ = record.pixels.shape
    return {
        "subset": subset,
        "episode_id": record.episode_id,
        "step_id": record.step_id,
        "episode_length": record.episode_length,
        "goal": record.goal,
        "image": {"bytes": encode_image(record.pixels, codec), "path": None},
        "height": height,
        "width": width,
        "words": words,
        "action_type": record.action_type,
        "touch_y": record.touch[0],
        "touch_x": record.touch[1],
        "lift_y": record.lift[0],
        "lift_x": record.lift[1],
        "text": record.text,
        **element_columns(record.elements),
        "device_type": record.device_type,
        "activity": record.activity,
        "android_api_level": record.android_api_level,
    }


def _entry(record: Record, row: dict[str, Any], shard: int, number: int) -> Entry:
    plain = {**row, "image": hashlib.sha256(row["image"]["bytes"]).hexdigest()}
    digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).digest()
    kind = type(record.action).__name__.lower()
    if kind in ("press", "finish"):
        kind = row["words"]  # of few values
    size = (row["height"], row["width"])
    key = (record.episode_id, record.step_id, record.episode_length, record.goal)
    return Entry(shard, number, row["subset"], *key, digest, kind, size)


def _source(shard: Shard, num_records: int) -> dict[str, str | int]:
    crc = 0
    with shard.path.open("rb") as file:
        while piece := file.read(READ):
            crc = google_crc32c.extend(crc, piece)
    return {
        "name": shard.name,
        "subset": shard.subset,
        "bytes": shard.path.stat().st_size,
        "crc32c": f"{crc:08x}",
        "records": num_records,
    }
