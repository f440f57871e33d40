"""Position ids for the rotary embedding of these models (M-RoPE): time, row and column.

Text counts on all three axes at once. The visual tokens of a screen share one time, the screen's start, and
their row and column are added to it. Text continues after the greatest position so far (Qwen2-VL, section
2.1). All is computed where the tokens are: nothing is read from a GPU.

Shapes: B rows, T tokens, V visual tokens of all rows, M cached tokens.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

MAX_SIDE = 1 << 20  # more rows or columns than any screen has


def mrope_position_ids(
    image_mask_BT: Tensor,
    grid_V2: Tensor,
    mask_BT: Tensor | None = None,
    past_3BM: Tensor | None = None,
    text_position_ids: Tensor | None = None,
) -> Tensor:
    """[3, B, T]; 0 where the mask is False. `grid_V2`: row and column of each visual token in its screen.

    `past_3BM`: positions of the cached tokens; the first rows of a screen may be among them.
    `text_position_ids` [B, T]: 0 where a packed sentence starts; positions then start again.
    """
    empty = image_mask_BT.new_zeros(*image_mask_BT.shape, 2, dtype=torch.long)
    grid_BT2 = empty.masked_scatter(image_mask_BT[..., None], grid_V2.long())
    # what is cached acts as one visual token before the others: its row and column, and its screen's size
    start_B, cached_B2, side_B = _cached_screen(image_mask_BT, past_3BM)
    grid_BT2 = torch.cat([cached_B2[:, None], grid_BT2], 1)
    is_visual, present = pad(image_mask_BT, (1, 0), value=True), _with_first(mask_BT, image_mask_BT)
    begins = ~is_visual | (grid_BT2 == 0).all(-1)  # a token of text, or the first one of a screen
    begins[:, 0] = True
    if image_mask_BT.device.type == "cpu":  # reading it from a GPU would wait for all work queued there
        _check_order(grid_BT2, is_visual, begins)
    # How far text after this token is from the start of this screen. A token of text is a screen of size 1.
    side = torch.where(is_visual, grid_BT2.amax(-1) + 1, 1)
    side = torch.cat([side_B[:, None], side[:, 1:]], 1)
    offset = begins.cumsum(-1) * MAX_SIDE
    side = (side + offset).cummax(-1).values - offset  # the greatest so far in this screen
    growth = side - pad(side[:, :-1], (1, 0)).masked_fill(begins, 0)
    after = start_B[:, None] + (growth * present).cumsum(-1)
    start = after - side
    if text_position_ids is not None:
        start[:, 1:] -= (start[:, 1:] * (text_position_ids == 0)).cummax(-1).values
    rows_columns = grid_BT2 * is_visual[..., None]
    positions = torch.stack([start, *(start + axis for axis in rows_columns.unbind(-1))])
    return (positions * present)[:, :, 1:]


def _with_first(mask_BT: Tensor | None, image_mask_BT: Tensor) -> Tensor:
    mask_BT = torch.ones_like(image_mask_BT) if mask_BT is None else mask_BT
    return pad(mask_BT, (1, 0), value=True)


def _cached_screen(image_mask_BT: Tensor, past_3BM: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Of the last cached token: its screen's start [B], its row and column [B, 2], its screen's size [B]."""
    if past_3BM is None or not past_3BM.shape[-1]:
        none_B = image_mask_BT.new_zeros(len(image_mask_BT), dtype=torch.long)
        return none_B, none_B[:, None].expand(-1, 2), none_B
    time_B, row_B, column_B = past_3BM[:, :, -1]
    grid_B2 = torch.stack([row_B - time_B, column_B - time_B], -1)
    return time_B, grid_B2, past_3BM.amax((0, 2)) + 1 - time_B


def _check_order(grid_BT2: Tensor, is_visual_BT: Tensor, begins_BT: Tensor) -> None:
    """ValueError unless each visual token is its screen's first, or right of or below the previous one."""
    (y, x), (before_y, before_x) = grid_BT2[:, 1:].unbind(-1), grid_BT2[:, :-1].unbind(-1)
    is_right = (y == before_y) & (x == before_x + 1)
    is_below = (y == before_y + 1) & (x == 0)
    follows = is_visual_BT[:, :-1] & (is_right | is_below)
    if not bool((begins_BT[:, 1:] | follows).all()):
        raise ValueError("the number of a screen's placeholders is not that of its visual tokens")
