"""The image files of a source: names in, RGB pixels out. An image outside the source is never read."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

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

    In `basename_folders` the last part of the name is searched. A link that leads out of its folder counts as
    outside the source only if no other folder has the image.
    """
    path = PurePosixPath(check_text(name, "image name", location).replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts:
        raise unusable_step(OUTSIDE_SOURCE, location, f"the image {quote(name)} is outside the source")
    candidates = [(folder, name) for folder in folders]
    candidates += [(folder, path.name) for folder in basename_folders]
    leads_out = False
    for folder, relative in candidates:
        match _file_in(folder, relative):
            case file, True:
                return read_pixels(file, location)
            case _, False:
                leads_out = True
    if leads_out:
        detail = f"the image {quote(name)} is a link to a file outside the source"
        raise unusable_step(OUTSIDE_SOURCE, location, detail)
    searched = ", ".join(_folder_names([folder for folder, _ in candidates]))
    raise unusable_step(MISSING_IMAGE, location, f"there is no image {quote(name)} in {searched}")


def _folder_names(folders: Sequence[Path]) -> list[str]:
    """Folders for an error message, from the one that holds all of them on: the first of many."""
    top = Path(os.path.commonpath([folder.absolute() for folder in folders]))
    paths = [Path(top.name) / folder.absolute().relative_to(top) for folder in folders]
    names = dict.fromkeys(path.as_posix() for path in paths)
    shown = [ascii(name)[1:-1] for name in list(names)[:MAX_FOLDERS_NAMED]]
    return [*shown, *[f"{len(names) - len(shown)} more"] * (len(names) > len(shown))]


def _file_in(folder: Path, name: str) -> tuple[Path, bool] | None:
    """The real path of an existing file of the folder, and whether it is inside the folder."""
    try:
        path = (folder / name).resolve()
        return (path, path.is_relative_to(folder.resolve())) if path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # a name too long or with a NUL, a cycle of links
        return None


def read_pixels(source: Path | bytes, location: str) -> NDArray[np.uint8]:
    """An image file, or its bytes, as RGB pixels, uint8 [H, W, 3], upright and on white."""
    try:
        with open_image(source) as image:
            if image.mode not in IMAGE_MODES:
                raise ValueError(f"mode {image.mode} is not of a screenshot")
            return np.array(_on_white(ImageOps.exif_transpose(image)), np.uint8)
    except Exception as error:  # Pillow raises a dozen types for damaged files
        problem = str(error).replace(str(source), source.name) if isinstance(source, Path) else str(error)
        detail = f"the image cannot be decoded ({type(error).__name__}: {problem})"
        raise unusable_step(BAD_IMAGE, location, detail) from None


def _on_white(image: Image.Image) -> Image.Image:
    """The image as RGB, as a viewer shows it: what is transparent is white."""
    if not image.has_transparency_data:
        return image.convert("RGB")
    layer = image.convert("RGBA")
    if layer.getchannel("A").getextrema() == (255, 255):  # as phones store screens: opaque
        return layer.convert("RGB")
    white = Image.new("RGBA", layer.size, "white")
    white.alpha_composite(layer)
    return white.convert("RGB")
