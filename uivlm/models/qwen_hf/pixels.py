"""A screen as the successors of Qwen-VL take it: as many visual tokens as its size and a budget give.

In: RGB bytes [H, W, 3]. Out: float32 [3, h, w], h and w multiples of `factor` (pixels a side of one visual token), the
aspect ratio nearly kept. Equal to transformers' `Qwen2VLImageProcessorPil` before it cuts patches.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

LONGEST = 200  # times the shorter side: transformers refuses longer screens


@dataclass(frozen=True, slots=True)
class Sight:
    """Budgets in visual tokens a screen, by its age (`sentences.sentence.Picture`).

    One token is 28 x 28 pixels, with Qwen3-VL 32 x 32.
    """

    most: int = 512  # of a screen of age 0
    older: tuple[
        int, ...
    ] = ()  # of ages 1, 2, ...; the last one counts for all ages beyond; empty: as `most`
    least: int = 4  # smaller screens are enlarged

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise ValueError(f"least is {self.least} visual tokens: it must lie in 1 to most, {self.most}")
        for tokens in self.older:
            if not self.least <= tokens <= self.most:
                raise ValueError(
                    f"an older screen has at most {tokens} visual tokens: it must be {self.least} (least) to "
                    f"{self.most} (most)"
                )

    def budget(self, age: int) -> int:
        """Most visual tokens of a screen of that age."""
        if age == 0 or not self.older:
            return self.most
        return self.older[min(age, len(self.older)) - 1]


@dataclass(frozen=True, slots=True)
class Scale:
    """How bytes become numbers: value / 255, less the mean, by the standard deviation of its channel (R, G, B)."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __call__(self, rgb: NDArray[np.uint8]) -> NDArray[np.float32]:
        """[h, w, 3] -> [3, h, w]; rounded as transformers rounds."""
        unit = (np.arange(256) * (1 / 255)).astype(np.float32)
        mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
        return np.stack([((unit - mean[c]) / std[c])[rgb[..., c]] for c in range(3)])


def size(height: int, width: int, factor: int, least: int, most: int) -> tuple[int, int]:
    """Height and width in pixels: multiples of `factor` whose product is `least` to `most` visual tokens."""
    if max(height, width) > LONGEST * min(height, width):
        raise ValueError(
            f"a screen is {height} x {width} pixels: no side may be over {LONGEST} times the other"
        )
    h, w = round(height / factor), round(width / factor)  # in visual tokens
    if h * w > most:
        shrink = math.sqrt(height * width / (most * factor**2))
        h, w = (max(1, math.floor(side / shrink / factor)) for side in (height, width))
    elif h * w < least:
        grow = math.sqrt(least * factor**2 / (height * width))
        h, w = (math.ceil(side * grow / factor) for side in (height, width))
    return h * factor, w * factor


def resized(rgb: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    if rgb.shape[:2] == (height, width):
        return rgb
    return np.asarray(Image.fromarray(rgb).resize((width, height), Image.Resampling.BICUBIC))
