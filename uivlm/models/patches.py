"""Which patches of a screen show something. Most of a phone's screen is of one colour: a token for each empty patch costs
as much as one for a word, in every later step (ShowUI, "UI-guided visual token selection", has the same aim).

Shapes: N screens, P patches.
"""

from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

CONTRAST = 0.1  # of a colour, as a share of its range: a patch with less shows nothing; a hairline has less

A = TypeVar("A", NDArray[np.float32], Tensor)


def quieted(colours: NDArray[np.float32], patch: tuple[int, int]) -> tuple[NDArray[np.float32], int]:
    """[3, h, w] in 0..1 -> the same, each patch without contrast in its mean colour; and how many are `busy` then."""
    cells = _cells(colours, patch)
    # rows of a patch first: whole lines of pixels are compared at once
    shows = (cells.max(2).max(3) - cells.min(2).min(3)).max(0) >= CONTRAST
    mean = cells.mean(2).mean(3)
    high, wide = patch
    quiet = colours.copy()  # what is beyond the last whole patch stays
    for row, column in np.argwhere(~shows).tolist():
        place = np.s_[:, row * high : (row + 1) * high, column * wide : (column + 1) * wide]
        quiet[place] = mean[:, row, column, None, None]
    shows[0, 0] = True
    return quiet, int(shows.sum())


def busy(pixels: Tensor, patch: tuple[int, int]) -> Tensor:
    """[N, 3, h, w] -> bool [N, P]: where `quieted` left more than one colour. The first patch always counts, so that no
    screen is without a token."""
    cells = [_cells(one, patch) for one in pixels]
    shows = torch.stack([(one.amax(2).amax(3) != one.amin(2).amin(3)).any(0).flatten() for one in cells])
    shows[:, 0] = True
    return shows


def _cells(image: A, patch: tuple[int, int]) -> A:
    """[3, h, w] -> [3, rows, patch height, columns, patch width]: the whole patches."""
    (three, height, width), (high, wide) = image.shape, patch
    rows, columns = height // high, width // wide
    whole = image[:, : rows * high, : columns * wide]
    return whole.reshape(three, rows, high, columns, wide)
