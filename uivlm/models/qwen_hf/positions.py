"""Where tokens stand for the rotary embedding of these models (M-RoPE): time, row and column.

Text counts on all three axes at once. The visual tokens of a screen share one time, where the screen begins, and lie
at their row and column from there; text goes on after the greatest of them (Qwen2-VL, section 2.1).

Shapes: B rows, T tokens, V visual tokens of all rows, M tokens before.
"""

import itertools

import torch
from torch import Tensor


def positions(places_BT: Tensor, spots_V2: Tensor, mask_BT: Tensor, before_3BM: Tensor | None) -> Tensor:
    """[3, B, T]; 0 where the mask is False. `spots_V2`: row and column of each visual token within its screen.

    `before_3BM`: positions of tokens that were read before; the first row of a screen may be among those.
    """
    given = spots_V2.tolist()
    found = torch.zeros(3, *places_BT.shape, dtype=torch.long)
    first = 0
    for b, (places, mask) in enumerate(zip(places_BT.cpu(), mask_BT.cpu(), strict=True)):
        kinds = places[mask].tolist()
        count = sum(kinds)
        last = None if before_3BM is None else before_3BM[:, b]
        row = _row(kinds, given[first : first + count], last)
        found[:, b, mask] = torch.tensor(row, dtype=torch.long).reshape(-1, 3).T
        first += count
    return found.to(places_BT.device)


def _row(kinds: list[bool], spots: list[list[int]], before: Tensor | None) -> list[tuple[int, int, int]]:
    """`kinds`: is it a visual token?"""
    after = 0  # where text goes on
    last = (-1, -1, -1)  # where the token before stands, if it may be of a screen
    if before is not None and before.shape[1]:
        after = int(before.max()) + 1
        last = (int(before[0, -1]), int(before[1, -1]), int(before[2, -1]))
    row: list[tuple[int, int, int]] = []
    left = iter(spots)
    for visual, run in itertools.groupby(kinds):
        if not visual:
            told = [(at, at, at) for at in range(after, after + len(list(run)))]
            row += told
            after, last = after + len(told), (-1, -1, -1)
            continue
        for _ in run:
            last = _next(last, next(left), after)
            row.append(last)
            after = max(after, last[1] + 1, last[2] + 1)
    return row


def _next(last: tuple[int, int, int], spot: list[int], after: int) -> tuple[int, int, int]:
    """The place of a visual token: the first of a screen, or right of or below the one before."""
    y, x = spot
    if (y, x) == (0, 0):
        return after, after, after
    start = last[0]
    at = (last[1] - start, last[2] - start)
    if start < 0 or not (at == (y, x - 1) or (x == 0 and at[0] == y - 1)):
        raise ValueError("the places of a screen in the text are not as many as its visual tokens")
    return start, start + y, start + x
