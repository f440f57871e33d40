"""The image files of a source: names in, RGB pixels out. An image outside the source is never read."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_prep.formats.validation import (
    BAD_IMAGE,
    MISSING_IMAGE,
    OUTSIDE_SOURCE,
    check_text,
    quote,
    unusable_step,
)
from uivlm.episodes.images import open_image

# 8 bits or less: 16 bits turn white
IMAGE_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")
MAX_FOLDERS_NAMED = 6  # in an error


def image_folders(folder: Path) -> list[Path]:
    """The folders that may hold images: the folder itself and its subfolders."""
    return [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]


def find_image(
    name: Any, folders: Iterable[Path], location: str, basename_folders: Iterable[Path] = ()
) -> NDArray[np.uint8]:
    """The pixels of the image file `name`, a relative path with "/", in the first folder that has it.

    In `basename_folders` the last part of the name is searched.
    """
    path = PurePosixPath(check_text(name, "image name", location).replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts:
        raise unusable_step(OUTSIDE_SOURCE, location, f"the image {quote(name)} is outside the source")
    candidates = [(folder, name) for folder in folders]
    candidates += [(folder, path.name) for folder in basename_folders]
    for folder, relative in candidates:
        file = _file_in(folder, relative, location)
        if file is not None:
            return read_pixels(file, location)
    searched = ", ".join(_folder_names([folder for folder, _ in candidates]))
    raise unusable_step(MISSING_IMAGE, location, f"there is no image {quote(name)} in {searched}")


def _folder_names(folders: Sequence[Path]) -> list[str]:
    """Folders for an error message, from the one that holds all of them on: the first of many."""
    top = Path(os.path.commonpath([folder.absolute() for folder in folders]))
    paths = [Path(top.name) / folder.absolute().relative_to(top) for folder in folders]
    names = dict.fromkeys(path.as_posix() for path in paths)
    shown = [ascii(name)[1:-1] for name in list(names)[:MAX_FOLDERS_NAMED]]
    return [*shown, *[f"{len(names) - len(shown)} more"] * (len(names) > len(shown))]


def _file_in(folder: Path, name: str, location: str) -> Path | None:
    try:
        path = (folder / name).resolve()
        if not path.is_file():
            return None
        inside = path.is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # a name too long or with a NUL, a cycle of links
        return None
    if not inside:
        raise unusable_step(
            OUTSIDE_SOURCE, location, f"the image {quote(name)} is a link to a file outside the source"
        )
    return path


def read_pixels(source: Path | bytes, location: str) -> NDArray[np.uint8]:
    """An image file, or its bytes, as RGB pixels, uint8 [H, W, 3]."""
    try:
        with open_image(source) as image:
            if image.mode not in IMAGE_MODES:
                raise ValueError(f"mode {image.mode} is not of a screenshot")
            return np.array(image.convert("RGB"), np.uint8)
    except Exception as error:  # Pillow raises a dozen types for damaged files
        detail = f"the image cannot be decoded ({type(error).__name__}: {error})"
        raise unusable_step(BAD_IMAGE, location, detail) from None
