"""Position ids for the rotary embedding of these models (M-RoPE): time, row and column.

Text counts on all three axes at once. The visual tokens of a screen share one time, the screen's start, and
their row and column are added to it. Text continues after the greatest position so far (Qwen2-VL, section
2.1).

Shapes: B rows, T tokens, V visual tokens of all rows, M cached tokens.
"""

import itertools

import torch
from torch import Tensor


def mrope_position_ids(
    image_mask_BT: Tensor, grid_V2: Tensor, mask_BT: Tensor, past_3BM: Tensor | None
) -> Tensor:
    """[3, B, T]; 0 where the mask is False. `grid_V2`: row and column of each visual token in its screen.

    `past_3BM`: positions of the cached tokens; the first rows of a screen may be among them.
    """
    grid = grid_V2.tolist()
    positions = torch.zeros(3, *image_mask_BT.shape, dtype=torch.long)
    first = 0
    for b, (image_mask, mask) in enumerate(zip(image_mask_BT.cpu(), mask_BT.cpu(), strict=True)):
        is_visual = image_mask[mask].tolist()
        count = sum(is_visual)
        last = None if past_3BM is None else past_3BM[:, b]
        row = _row_position_ids(is_visual, grid[first : first + count], last)
        positions[:, b, mask] = torch.tensor(row, dtype=torch.long).reshape(-1, 3).T
        first += count
    return positions.to(image_mask_BT.device)


def _row_position_ids(
    image_mask: list[bool], grid: list[list[int]], past: Tensor | None
) -> list[tuple[int, int, int]]:
    """One row of the batch. `image_mask`: is the token a visual token?"""
    after = 0  # position of the next text token
    last = (-1, -1, -1)  # position of the previous token, if that may be a visual one
    if past is not None and past.shape[1]:
        after = int(past.max()) + 1
        last = (int(past[0, -1]), int(past[1, -1]), int(past[2, -1]))
    row: list[tuple[int, int, int]] = []
    cells = iter(grid)
    for visual, run in itertools.groupby(image_mask):
        if not visual:
            text = [(at, at, at) for at in range(after, after + len(list(run)))]
            row += text
            after, last = after + len(text), (-1, -1, -1)
            continue
        for _ in run:
            last = _next_visual_position(last, next(cells), after)
            row.append(last)
            after = max(after, last[1] + 1, last[2] + 1)
    return row


def _next_visual_position(
    last: tuple[int, int, int], row_column: list[int], text_position: int
) -> tuple[int, int, int]:
    """Position of a visual token: the first of its screen, or right of or below the previous one."""
    y, x = row_column
    if (y, x) == (0, 0):
        return text_position, text_position, text_position
    start = last[0]
    at = (last[1] - start, last[2] - start)
    if start < 0 or not (at == (y, x - 1) or (x == 0 and at[0] == y - 1)):
        raise ValueError("the number of a screen's placeholders is not that of its visual tokens")
    return start, start + y, start + x
