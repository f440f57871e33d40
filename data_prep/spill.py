"""Pass 1: one part of a source in; its steps as finished rows in a temporary Arrow file out, their screens in others.

A gzip stream cannot be entered in the middle, and the steps of an episode may lie anywhere. So every part is read
once, screens are encoded at once, and the rows wait on disk in a file that can be read at any row and column. The
screens wait one after the other in a file for each split, and are later read without a copy. In memory are one record,
256 rows without their screens and 1 MiB of screens for each split, whatever the size of the part.
"""

import hashlib
import marshal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray
from PIL import Image

from data_prep.memory import hold_freed
from data_prep.reader import reader
from data_prep.record import Part, Record, Unusable
from data_prep.settings import Kept, Settings
from data_prep.split import SPLITS, Left, Split
from data_prep.tfrecord import DamagedShard
from data_prep.work import Work, read_settings, write_json
from uivlm.actions.language import Language
from uivlm.sentences.store import RECORDED, encode_image

WAITING = 256  # rows that lie together
BUFFER = 1 << 20  # bytes of screens written at a time: to write each alone takes a third longer
SPILLED = pa.schema([
    *(field for field in RECORDED if field.name != "image"),
    ("image_at", pa.int64()),  # where the screen begins among those of the part and split, bytes; null where there is none
    ("image_size", pa.int32()),  # bytes
    ("said", pa.string()),  # the source's own split
    ("kind", pa.string()),  # of action: tap, swipe, type, press back, ...
    ("digest", pa.binary(16)),  # of the whole row
    ("why", pa.string()),  # no row of an episode can be made of this step, because; null where it can
    ("sentence", pa.string()),  # the same for a person
])  # fmt: skip


@dataclass(frozen=True, slots=True)
class Job:
    """One part to read. A worker needs nothing else, on this machine or another that shares the folder."""

    number: int
    part: Part
    work: Work


def spill_part(job: Job) -> None:
    """Read a part to its end. A damaged one leaves its error and no row."""
    hold_freed()
    names = job.work.spill(job.number), *(job.work.screens(job.number, split) for split in SPLITS)
    hidden = [job.work.hidden() for _ in names]
    told: dict[str, Any] = {"name": job.part.name, "stamp": job.part.stamp}
    try:
        count, digest = _spill(job, *hidden)
        for file, name in zip(hidden, names, strict=True):
            file.replace(name)
        told |= {"records": count, "sha256": digest}
    except DamagedShard as damage:
        for file in hidden:
            file.unlink(missing_ok=True)
        told |= {"records": damage.record, "error": str(damage)}
    write_json(job.work, job.work.told(job.number), told)


def _spill(job: Job, path: Path, *screens: Path) -> tuple[int, str]:
    """Write the rows, and their screens by split; how many they are, and a digest of them all."""
    settings = read_settings(job.work)
    total, count, ends = hashlib.sha256(), 0, dict.fromkeys(SPLITS, 0)
    waiting: list[dict[str, Any]] = []
    with (
        ExitStack() as opened,
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_file(file, SPILLED) as writer,
    ):
        images = {
            split: opened.enter_context(screen.open("wb", BUFFER))
            for split, screen in zip(SPLITS, screens, strict=True)
        }
        for split, row in _rows(job.part, settings):
            total.update(row["digest"])
            count += 1
            if split in SPLITS and (image := row.pop("image", None)):
                row |= {"image_at": ends[split], "image_size": len(image)}
                ends[split] += images[split].write(image)
            waiting.append(row)
            if len(waiting) == WAITING:
                writer.write_batch(pa.RecordBatch.from_pylist(waiting, SPILLED))
                waiting.clear()
        if waiting:
            writer.write_batch(pa.RecordBatch.from_pylist(waiting, SPILLED))
    return count, total.hexdigest()


def _rows(part: Part, settings: Settings) -> Iterator[tuple[Split | Left, dict[str, Any]]]:
    """Each with its episode's split; without a screen where that is none, or nothing can be made of the step."""
    kept, language = settings.kept, Language(settings.kept.bins)
    for found in reader(settings.format).read(part):
        key = {"subset": found.subset, "episode_id": found.episode_id, "step_id": found.step_id}
        split = settings.choice.of(found.subset, found.episode_id, found.split)
        try:
            row = key if split not in SPLITS else key | _row(found.load(), language, kept)
        except Unusable as bad:
            row = key | {"why": bad.why, "sentence": str(bad)}
        yield split, {**row, "said": found.split, "digest": _digest(row)}


def _row(record: Record, language: Language, kept: Kept) -> dict[str, Any]:
    action = record.action
    try:
        words = language.say(action)
    except ValueError as error:
        raise Unusable(
            "an action without words", f"step {record.step_id} of {record.episode_id}: {error}"
        ) from None
    pixels = _at_most(record.pixels, kept.height)
    kind = type(action).__name__.lower()
    return {
        "episode_length": record.episode_length,
        "goal": record.goal,
        "image": encode_image(pixels, kept.codec, kept.quality),
        "height": pixels.shape[0],
        "width": pixels.shape[1],
        "words": words,
        "action_type": record.action_type,
        "touch_y": record.touch[0],
        "touch_x": record.touch[1],
        "lift_y": record.lift[0],
        "lift_x": record.lift[1],
        "text": record.text,
        "element_boxes": record.annotations.boxes,
        "element_texts": record.annotations.texts,
        "element_kinds": record.annotations.kinds,
        "device_type": record.device_type,
        "activity": record.activity,
        "android_api_level": record.android_api_level,
        "kind": words if kind in ("press", "finish") else kind,  # those are of few values
    }


def _at_most(pixels: NDArray[np.uint8], most: int | None) -> NDArray[np.uint8]:
    """A screen of at most `most` pixels in height, in its proportions."""
    height, width, _ = pixels.shape
    if most is None or height <= most:
        return pixels
    size = (max(1, round(width * most / height)), most)
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS), np.uint8)


def _digest(row: dict[str, Any]) -> bytes:
    """Of the whole row. Rows are told apart, not sealed: a fast hash of 128 bits will do."""
    digest = xxhash.xxh3_128(row.get("image", b""))
    # version 2 tells nothing of how an object lies in memory: equal rows, equal bytes; ten times as fast as JSON
    digest.update(marshal.dumps([item for item in sorted(row.items()) if item[0] != "image"], 2))
    return digest.digest()
