"""Which patches of a screen show something.

Most of a phone's screen is of one color, and a visual token costs as much as a token of text in every later
step. (ShowUI's "UI-guided visual token selection" has the same aim.)

Shapes: N screens, P patches.
"""

from typing import TypeVar

import numpy as np
import torch
from einops import rearrange
from numpy.typing import NDArray
from torch import Tensor

# Minimum range of a color channel, as a fraction of its full range. A patch with less is blank.
MIN_CONTRAST = 0.1

A = TypeVar("A", NDArray[np.float32], Tensor)


def flatten_blank(
    colors: NDArray[np.float32], patch_size: tuple[int, int]
) -> tuple[NDArray[np.float32], int]:
    """[3, h, w] in 0..1 -> the same, blank patches in their mean color, and the number of other patches."""
    cells = _to_patches(colors, patch_size)
    # rows of a patch first: this compares whole lines of pixels at once
    shows = (cells.max(2).max(3) - cells.min(2).min(3)).max(0) >= MIN_CONTRAST
    mean = cells.mean(2).mean(3)
    high, wide = patch_size
    flat = colors.copy()  # pixels beyond the last whole patch stay
    for row, column in np.argwhere(~shows).tolist():
        patch = np.s_[:, row * high : (row + 1) * high, column * wide : (column + 1) * wide]
        flat[patch] = mean[:, row, column, None, None]
    shows[0, 0] = True
    return flat, int(shows.sum())


def non_blank(pixels: Tensor, patch_size: tuple[int, int]) -> Tensor:
    """[N, 3, h, w] -> bool [N, P]: patches in which `flatten_blank` left more than one color.

    The first patch always counts: no screen is without a token.
    """
    cells = [_to_patches(screen, patch_size) for screen in pixels]
    shows = torch.stack([(cell.amax(2).amax(3) != cell.amin(2).amin(3)).any(0).flatten() for cell in cells])
    shows[:, 0] = True
    return shows


def _to_patches(image: A, patch_size: tuple[int, int]) -> A:
    """[3, h, w] -> [3, rows, patch height, columns, patch width]: the whole patches."""
    height, width = patch_size
    rows, columns = image.shape[1] // height, image.shape[2] // width
    whole = image[:, : rows * height, : columns * width]
    return rearrange(whole, "c (rows h) (columns w) -> c rows h columns w", h=height, w=width)
