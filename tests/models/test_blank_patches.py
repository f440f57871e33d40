"""Blank patches of a screen, against plain loops in float64."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from uivlm.models.bridge.blank_patches import find_blank, flatten_blank, with_token
from uivlm.models.multimodal import normalize_pixels

MEAN, STD = (0.48, 0.45, 0.4), (0.26, 0.25, 0.27)
PATCH_SIZE = (8, 5)
SIZES = [(32, 20), (37, 23)]  # whole patches, and a rest beyond them


def screen_of_steps(height: int, width: int, seed: int) -> NDArray[np.uint8]:
    """[3, h, w]: patches of which one channel has a range of 0, 25, 26 or 60 levels. A tenth is 25.5."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(100, 101, (3, height, width), np.uint8)
    for i, y in enumerate(range(0, height, PATCH_SIZE[0])):
        for k, x in enumerate(range(0, width, PATCH_SIZE[1])):
            steps = (0, 25, 26, 60)[(i + k + seed) % 4] + 1
            cell = pixels[rng.integers(3), y : y + PATCH_SIZE[0], x : x + PATCH_SIZE[1]]
            cell += rng.integers(0, steps, cell.shape, np.uint8)
            cell.flat[:2] = 100, 99 + steps
    return pixels


@pytest.mark.parametrize("size", SIZES)
def test_blank_patches_get_their_mean_color(size: tuple[int, int]) -> None:
    screens = np.stack([screen_of_steps(*size, seed) for seed in range(3)])
    mean, std = (np.array(values)[:, None, None] for values in (MEAN, STD))
    colors = screens / 255
    rows, columns = size[0] // PATCH_SIZE[0], size[1] // PATCH_SIZE[1]
    expected, tokens = colors.copy(), np.ones((3, rows, columns), bool)
    for n, row, column in np.ndindex(3, rows, columns):
        y, x = row * PATCH_SIZE[0], column * PATCH_SIZE[1]
        cell = colors[n, :, y : y + PATCH_SIZE[0], x : x + PATCH_SIZE[1]]
        if np.ptp(cell, (1, 2)).max() < 0.1:
            expected[n, :, y : y + PATCH_SIZE[0], x : x + PATCH_SIZE[1]] = cell.mean((1, 2), keepdims=True)
            tokens[n, row, column] = row == column == 0
    assert 3 < (~tokens).sum() < tokens.size - 3
    pixels = torch.from_numpy(screens)
    blank = find_blank(pixels, PATCH_SIZE)
    assert np.array_equal(with_token(blank).numpy(), tokens.reshape(3, -1))
    found = flatten_blank(normalize_pixels(pixels, MEAN, STD), blank, PATCH_SIZE)
    assert np.abs(found.numpy() - (expected - mean) / std).max() < 2e-6


def test_a_screen_of_one_color_has_one_token() -> None:
    blank = find_blank(torch.full((1, 3, 16, 10), 7, dtype=torch.uint8), PATCH_SIZE)
    assert blank.all()
    assert with_token(blank).tolist() == [[True, False, False, False]]
