"""A screen as Qwen-VL's vision tower takes it.

In: RGB bytes [H, W, 3]. Out: float32 [3, S, S], S the tower's image size. The aspect ratio is not kept: positions as
fractions of height and width survive.
"""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)[:, None, None]  # CLIP's, red green blue
STD = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)[:, None, None]


def pixels_of(rgb: NDArray[np.uint8], image_size: int) -> NDArray[np.float32]:
    unit = np.asarray(resized(rgb, image_size), np.float32).transpose(2, 0, 1) / np.float32(255)
    return np.ascontiguousarray((unit - MEAN) / STD)


def resized(rgb: NDArray[np.uint8], size: int) -> Image.Image:
    """Bicubic to size x size, as Pillow 13 does it.

    Pillow resizes one axis, rounds to bytes, then resizes the other. Before version 13 the width always came first; now
    the height does where it shrinks much more. On a tall phone that moves a pixel by several levels of 255, so the
    order is decided here and every version gives the same pixels.
    """
    height, width = rgb.shape[:2]
    height_first = height - size > 2 * max(width - size, 0)
    between = (width, size) if height_first else (size, height)
    bicubic = Image.Resampling.BICUBIC
    return Image.fromarray(rgb).resize(between, bicubic).resize((size, size), bicubic)
