"""Screens of several sizes, and rows of Qwen2-VL and later that contain them."""

import numpy as np
import torch
from torch import Tensor

from tests.helpers.tiny_models import episode
from uivlm.episodes.encode import IGNORE
from uivlm.episodes.episode import Episode, Screen, Step
from uivlm.episodes.sentence import ScreenPiece
from uivlm.models.qwen_hf.processor import QwenHFProcessor

SIZES = ((40, 20), (22, 33), (16, 16))


def screen(seed: int, height: int = 40, width: int = 20) -> ScreenPiece:
    return ScreenPiece(Screen(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)))


def row(
    reader: QwenHFProcessor, sizes: tuple[tuple[int, int], ...], goal: str = "go\n"
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Ids and labels [1, T], and the pixels [3, h, w] of each screen, whose sizes differ."""
    ids, labels, pixels = reader.encode(goal), [IGNORE] * len(reader.encode(goal)), []
    for i, (height, width) in enumerate(sizes):
        shown = screen(i, height, width)
        said = [*reader.encode(f"tap at {i} 5"), reader.eos_id]
        ids += [*reader.image_token_ids(shown), *said]
        labels += [IGNORE] * len(reader.image_token_ids(shown)) + said
        pixels.append(torch.from_numpy(reader.pixel_values(shown)))
    return torch.tensor([ids]), torch.tensor([labels]), pixels


def padded(rows: list[Tensor], left: bool = False) -> tuple[Tensor, Tensor]:
    """Ids and mask [B, T] of rows [1, T]."""
    longest = max(row_ids.shape[1] for row_ids in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros(len(rows), longest, dtype=torch.bool)
    for i, row_ids in enumerate(rows):
        at = slice(longest - row_ids.shape[1], None) if left else slice(row_ids.shape[1])
        ids[i, at], mask[i, at] = row_ids[0], True
    return ids, mask


def large_episode(num_steps: int) -> Episode:
    small = episode(0, num_steps)
    steps = tuple(Step(screen(t, 90, 50).screen, step.action) for t, step in enumerate(small.steps))
    return Episode(small.id, small.goal, small.subset, steps)
