"""Pass 1: a part of a source in; its steps as rows of a spill file, and their encoded screens, out.

A gzip stream has no random access, and the steps of an episode may be anywhere. So pass 1 reads every part
once and encodes screens immediately. The rows go to an Arrow file that can be read at any row and column.
The screens go to one file per split, back to back; pass 2 reads them without a copy. Memory holds one
record, 256 rows without their screens and 1 MiB of screens per split, whatever the size of the part.
"""

import ctypes
import hashlib
import marshal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray
from PIL import Image

from data_prep.boxes import clip_boxes
from data_prep.settings import ImageSettings, PrepSettings
from data_prep.source import SourcePart, StepRecord, UnusableStepError, get_reader
from data_prep.source_files import to_text
from data_prep.split import SPLITS, ExclusionReason, Split
from data_prep.tfrecord import CorruptShardError
from data_prep.work_dir import WorkDir, read_settings, write_json
from uivlm.actions.text import ActionText, action_type
from uivlm.episodes.rows import STEP_COLUMNS, to_row

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # mallopt's numbers in glibc's malloc.h
TRIM_BYTES = 64 << 20  # bytes at the end of the heap


@lru_cache(maxsize=1)
def retain_freed_memory() -> None:
    """Let glibc keep up to 64 MiB of freed memory for the next screen instead of returning it to the system.

    The system clears every page that it reuses, and a raw screen has hundreds. No effect without glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(TRIM_THRESHOLD, TRIM_BYTES)
        mallopt(MMAP_THRESHOLD, TRIM_BYTES // 2)


FAILED_RUN = "failed run"  # a reason that the report counts
ROWS_PER_BATCH = 256  # rows of an Arrow batch
IMAGE_BUFFER_BYTES = 1 << 20  # of screens per write: one write per screen takes a third longer
SPILL_SCHEMA = pa.schema([
    *(field for field in STEP_COLUMNS if field.name != "image"),
    ("image_offset", pa.int64()),  # bytes, in the screens file of the part and split; null without a screen
    ("image_size", pa.int32()),  # bytes
    ("source_split", pa.string()),  # the source's own split
    ("recording", pa.string()),  # the object of the source that is the episode; null if there is none
    ("action_name", pa.string()),  # tap, swipe, type, press back, ...; `action_type` is AITW's number
    ("dropped_boxes", pa.int32()),  # number of boxes that were left out; null: none
    ("digest", pa.binary(16)),  # of the whole row
    ("reject_reason", pa.string()),  # why the step is unusable; null if it is usable
    ("reject_message", pa.string()),  # one sentence with the details
])  # fmt: skip


@dataclass(frozen=True, slots=True)
class SpillJob:
    """One part to read: all that a worker needs, on this machine or another that shares the folder."""

    part_index: int
    part: SourcePart
    work_dir: WorkDir


def spill_part(job: SpillJob) -> None:
    """Read a part and write its spill files. A corrupt part leaves its error and no rows."""
    retain_freed_memory()
    targets = (
        job.work_dir.spill_path(job.part_index),
        *(job.work_dir.screens_path(job.part_index, split) for split in SPLITS),
    )
    temp_paths = [job.work_dir.temp_path() for _ in targets]
    part_info: dict[str, Any] = {"name": job.part.name, "stamp": job.part.stamp}
    try:
        count, digest = _write_spill(job, *temp_paths)
        for temp_path, target in zip(temp_paths, targets, strict=True):
            temp_path.replace(target)
        part_info |= {"records": count, "sha256": digest}
    except CorruptShardError as error:
        for temp_path in temp_paths:
            temp_path.unlink(missing_ok=True)
        part_info |= {"records": error.record_index, "error": str(error)}
    write_json(job.work_dir, job.work_dir.done_marker(job.part_index), part_info)


def _write_spill(job: SpillJob, path: Path, *screens: Path) -> tuple[int, str]:
    """Write the rows, and their screens by split. Returns the number of rows and their SHA-256."""
    settings = read_settings(job.work_dir)
    total, count, ends = hashlib.sha256(), 0, dict.fromkeys(SPLITS, 0)
    batch: list[dict[str, Any]] = []
    with (
        ExitStack() as opened,
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_file(file, SPILL_SCHEMA) as writer,
    ):
        images = {
            split: opened.enter_context(screen.open("wb", IMAGE_BUFFER_BYTES))
            for split, screen in zip(SPLITS, screens, strict=True)
        }
        for split, row in _iter_rows(job.part, settings):
            total.update(row["digest"])
            count += 1
            if split in SPLITS and (image := row.pop("image", None)):
                row |= {"image_offset": ends[split], "image_size": len(image["bytes"])}
                ends[split] += images[split].write(image["bytes"])
            batch.append(row)
            if len(batch) == ROWS_PER_BATCH:
                writer.write_batch(pa.RecordBatch.from_pylist(batch, SPILL_SCHEMA))
                batch.clear()
        if batch:
            writer.write_batch(pa.RecordBatch.from_pylist(batch, SPILL_SCHEMA))
    return count, total.hexdigest()


def _iter_rows(
    part: SourcePart, settings: PrepSettings
) -> Iterator[tuple[Split | ExclusionReason, dict[str, Any]]]:
    """Rows with the splits of their episodes. Rows of excluded episodes and unusable steps have no screen."""
    action_text = ActionText(settings.images.num_bins)
    for step in get_reader(settings.format).read(part):
        key = {"subset": step.subset, "episode_id": step.episode_id, "step_id": step.step_id}
        split = settings.selection.split_of(step.subset, step.episode_id, step.split)
        try:
            if split in SPLITS and step.failed_run and not settings.keep_failed_runs:
                raise UnusableStepError(FAILED_RUN, f"{step.failed_run}; --keep-failed-runs keeps its steps")
            row = key if split not in SPLITS else key | _record_row(step.load(), action_text, settings.images)
        except UnusableStepError as error:
            message = to_text(str(error).replace(f"{part.path}/", ""))  # without the folders of this machine
            row = key | {"reject_reason": error.reason, "reject_message": message}
        origin = {"source_split": step.split, "recording": to_text(step.recording) or None}
        yield split, {**row, **origin, "digest": _digest(row)}


def _record_row(record: StepRecord, action_text: ActionText, images: ImageSettings) -> dict[str, Any]:
    try:
        text = action_text.format(record.action)
    except ValueError as error:
        raise UnusableStepError(
            "action without text", f"step {record.step_id} of {record.episode_id}: {error}"
        ) from None
    pixels = _limit_height(record.pixels, images.max_height)
    annotations, dropped_boxes = clip_boxes(record.annotations)
    return {
        "episode_length": record.episode_length,
        "goal": record.goal,
        "device_type": record.device_type,
        "activity": record.activity,
        "android_api_level": record.android_api_level,
        "action_name": action_type(record.action),
        **to_row(
            record.aitw,
            text,
            pixels,
            annotations,
            images.image_format,
            images.jpeg_quality,
            record.notes,
        ),
        **({"dropped_boxes": dropped_boxes} if dropped_boxes else {}),
    }


def _limit_height(pixels: NDArray[np.uint8], max_height: int | None) -> NDArray[np.uint8]:
    """The screen, resized to `max_height` pixels if it is taller; the aspect ratio stays."""
    height, width, _ = pixels.shape
    if max_height is None or height <= max_height:
        return pixels
    size = (max(1, round(width * max_height / height)), max_height)
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS), np.uint8)


def _digest(row: dict[str, Any]) -> bytes:
    """A 128-bit hash of the whole row. It distinguishes rows and is not cryptographic."""
    digest = xxhash.xxh3_128(row["image"]["bytes"] if "image" in row else b"")
    # version 2 has no object references: equal rows give equal bytes; ten times as fast as JSON
    digest.update(marshal.dumps([item for item in sorted(row.items()) if item[0] != "image"], 2))
    return digest.digest()
