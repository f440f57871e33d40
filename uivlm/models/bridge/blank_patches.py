"""Which patches of a screen show something.

Most of a phone's screen is of one color, and a visual token costs as much as a token of text in every later
step. (ShowUI's "UI-guided visual token selection" has the same aim.)

Shapes: N screens, P patches.
"""

import torch
from torch import Tensor

# Minimum range of a color channel in a patch, in levels of 255: a tenth. A patch with less is blank.
MIN_CONTRAST = 26


def find_blank(pixels: Tensor, patch_size: tuple[int, int]) -> Tensor:
    """uint8 [N, 3, h, w] -> bool [N, rows, columns]: the patches without contrast."""
    cells = _to_patches(pixels, patch_size)
    # rows of a patch first: this compares whole lines of pixels at once
    contrast = cells.amax(3).amax(4) - cells.amin(3).amin(4)
    return contrast.amax(1) < MIN_CONTRAST


def with_token(blank: Tensor) -> Tensor:
    """`find_blank`'s [N, rows, columns] -> bool [N, P]: the patches that are visual tokens.

    The first patch always is one: no screen is without a token.
    """
    shows = ~blank.flatten(1)
    shows[:, 0] = True
    return shows


def flatten_blank(colors: Tensor, blank: Tensor, patch_size: tuple[int, int]) -> Tensor:
    """Floats [N, 3, h, w] -> the same, `find_blank`'s patches in their mean color."""
    flat = colors.clone()  # pixels beyond the last whole patch stay
    cells = _to_patches(flat, patch_size)  # a view
    cells.copy_(torch.where(blank[:, None, :, None, :, None], cells.mean((3, 5), keepdim=True), cells))
    return flat


def _to_patches(images: Tensor, patch_size: tuple[int, int]) -> Tensor:
    """[N, 3, h, w] -> a view [N, 3, rows, patch height, columns, patch width]: the whole patches."""
    height, width = patch_size
    rows, columns = images.shape[2] // height, images.shape[3] // width
    whole = images[..., : rows * height, : columns * width]
    patches: Tensor = whole.unflatten(3, (columns, width)).unflatten(2, (rows, height))
    return patches
