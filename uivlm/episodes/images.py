"""The one place that opens image files. Any of them may be a stranger's."""

import io
import warnings
from pathlib import Path

from PIL import Image

IMAGE_FORMATS = ("PNG", "JPEG", "WEBP")  # for some other formats Pillow starts a program
MAX_SCREEN_PIXELS = 16_000_000  # of one screen; 1440 x 3120 has 4.5 million


class ImageSizeError(ValueError):
    """An image without pixels, or with too many to decode."""


def open_image(source: Path | bytes, formats: tuple[str, ...] = IMAGE_FORMATS) -> Image.Image:
    """The image of a file or its bytes, not yet decoded; to be closed by the caller.

    Raises ImageSizeError for more than MAX_SCREEN_PIXELS, and Pillow's errors for damaged files.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit below is stricter
        image = Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=formats)
    try:
        check_num_pixels(image.width, image.height)
    except ImageSizeError:
        image.close()
        raise
    return image


def check_num_pixels(width: int, height: int) -> None:
    if not 0 < width * height <= MAX_SCREEN_PIXELS:
        raise ImageSizeError(f"got {width} x {height} pixels; expected 1 to {MAX_SCREEN_PIXELS}")
