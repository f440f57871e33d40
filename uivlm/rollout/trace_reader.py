"""Reads a trace folder: the path in, a validated run out.

A damaged folder is refused as a whole, in one sentence that names the damage. A killed run is not damaged:
its status is still "running", and its unfinished last row is ignored.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from uivlm.actions.schema import parse_json
from uivlm.episodes.images import open_image
from uivlm.rollout.trace_schema import (
    RUN,
    RUN_FILE,
    STEP,
    STEPS_FILE,
    RunInfo,
    TraceStep,
    check_version,
)


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A whole, validated trace."""

    folder: Path
    info: RunInfo
    steps: tuple[TraceStep, ...]

    def image_path(self, step: TraceStep) -> Path:
        return self.folder / step.screen

    def pixels(self, step: TraceStep) -> NDArray[np.uint8]:
        """The step's screen, uint8 [H, W, 3] RGB. Raises ValueError if the file was damaged since."""
        with _open_image(self.image_path(step)) as image:
            return np.array(image.convert("RGB"))


def read_trace(folder: Path) -> RecordedRun:
    """The trace in a folder. Raises ValueError with one sentence that names the damage and its location."""
    path = folder / RUN_FILE
    if not _is_plain_file(path):
        raise ValueError(f"{folder} is not a trace: it has no {RUN_FILE}")
    info = _read_info(path)
    return RecordedRun(folder, info, _read_steps(folder / STEPS_FILE, truncated=info.status == "running"))


def _read_info(path: Path) -> RunInfo:
    content = path.read_bytes()
    try:
        return parse_json(RUN, content, "run")
    except ValueError as error:
        check_version(_parse(content), path)
        raise ValueError(f"{path} is damaged: {error}") from None


def _parse(content: bytes) -> object:
    """The JSON tree; None if there is none."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _read_steps(path: Path, truncated: bool) -> tuple[TraceStep, ...]:
    """`truncated`: the last row may be incomplete."""
    if not _is_plain_file(path):
        raise ValueError(f"{path.parent} is not a complete trace: it has no {STEPS_FILE}")
    *lines, rest = path.read_bytes().split(b"\n")
    if rest and not truncated:
        raise ValueError(f"row {len(lines)} of {path} is damaged: its end is missing")
    return tuple(_read_step(path, t, line) for t, line in enumerate(lines))


def _read_step(path: Path, t: int, line: bytes) -> TraceStep:
    location = f"row {t} of {path} is damaged"
    try:
        step = parse_json(STEP, line, "step")
    except ValueError as error:
        raise ValueError(f"{location}: {error}") from None
    if step.t != t:
        raise ValueError(f"{location}: step.t: got {step.t}; expected {t}")
    image_path = path.parent / step.screen
    if image_path.is_symlink():
        raise ValueError(f"{location}: step.screen: {image_path} is a link")
    if not image_path.is_file():
        raise ValueError(f"{location}: its image {image_path} is missing")
    with _open_image(image_path) as image:
        width, height = image.size
        image.verify()
    if (width, height) != (step.width, step.height):
        raise ValueError(
            f"{location}: its image {image_path} has {width} x {height} pixels; "
            f"expected {step.width} x {step.height}"
        )
    return step


def _is_plain_file(path: Path) -> bool:
    """Raises ValueError for a link, which may lead out of the folder. False for a pipe or a device."""
    if path.is_symlink():
        raise ValueError(f"{path} is a link; expected a file: copy the trace again")
    return path.is_file()


@contextmanager
def _open_image(path: Path) -> Iterator[Image.Image]:
    try:
        with open_image(path, ("PNG",)) as image:
            yield image
    except Exception as error:  # Pillow raises a dozen types on damaged files
        raise ValueError(f"the image {path} is damaged ({type(error).__name__}: {error})") from None
