"""AITW's action matching: does a predicted action count as the recorded one?

In: two actions, as ours or as AITW's fields, and the boxes of the screen. Out: bool. The rules and numbers
are those of `android_in_the_wild/action_matching.py` in google-research (Copyright Google LLC, Apache License
2.0), reimplemented in NumPy. The JAX code computes in float32, so points, distances and thresholds are
float32 here; boxes are enlarged in float64 and then cast. There are two differences. Without boxes only the
distance counts, where the original raises. Boxes whose sizes are not fractions of the screen, such as those
in pixels, contain no point: in the original nearly every pair of taps would match.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uivlm.actions.action import TAP_DISTANCE, Action, Point, is_tap
from uivlm.actions.aitw import DUAL_POINT, MATCH_DISTANCE, distance, main_axis, to_aitw

BOX_GROWTH = 1.4  # a box grows by 140 % of its size, to 240 %
BOX_TOLERANCE = 0.01  # a size that is off by less is clipped to 0 or 1


def matches(a: Action, b: Action, boxes: ArrayLike = ()) -> bool:
    """AITW's verdict on two of our actions. `boxes` [n, 4]: y, x, height, width as fractions."""
    type_a, touch_a, lift_a, _ = to_aitw(a)
    type_b, touch_b, lift_b, _ = to_aitw(b)
    return fields_match(touch_a, lift_a, type_a, touch_b, lift_b, type_b, boxes)


def fields_match(
    touch_a: Sequence[float],
    lift_a: Sequence[float],
    type_a: int,
    touch_b: Sequence[float],
    lift_b: Sequence[float],
    type_b: int,
    boxes: ArrayLike = (),
) -> bool:
    """AITW's verdict on AITW's fields, points (y, x).

    Typed text is ignored; of a swipe only its main axis counts.
    """
    if type_a != DUAL_POINT or type_b != DUAL_POINT:
        return type_a == type_b
    touches = Point(*touch_a), Point(*touch_b)
    lifts = Point(*lift_a), Point(*lift_b)
    with np.errstate(over="ignore", invalid="ignore"):  # NaN and huge points get a verdict, too
        taps = [is_tap(touch, lift) for touch, lift in zip(touches, lifts, strict=True)]
        if taps[0] != taps[1]:
            return False
        if taps[0]:
            return bool(distance(*touches) <= MATCH_DISTANCE) or _share_box(*touches, enlarge_boxes(boxes))
        return main_axis(touches[0], lifts[0]) == main_axis(touches[1], lifts[1])


def fields_match_batch(
    touch_a: ArrayLike,
    lift_a: ArrayLike,
    type_a: ArrayLike,
    touch_b: ArrayLike,
    lift_b: ArrayLike,
    type_b: ArrayLike,
    boxes: Sequence[ArrayLike],
) -> NDArray[np.bool_]:
    """`fields_match` of N pairs at once, bool [N]: points [N, 2], types [N], boxes of each pair's screen."""
    with np.errstate(over="ignore", invalid="ignore"):
        touch_a, lift_a, touch_b, lift_b = (
            np.asarray(points, np.float32).reshape(-1, 2) for points in (touch_a, lift_a, touch_b, lift_b)
        )
        a, b = np.asarray(type_a), np.asarray(type_b)
        tap_a = _distances(touch_a, lift_a) <= TAP_DISTANCE
        tap_b = _distances(touch_b, lift_b) <= TAP_DISTANCE
        near = (_distances(touch_a, touch_b) <= MATCH_DISTANCE) | _pairs_share_box(touch_a, touch_b, boxes)
        axes = [
            np.argmax(np.abs(lift - touch), axis=1) for touch, lift in ((touch_a, lift_a), (touch_b, lift_b))
        ]
    gestures = np.where(tap_a, near, axes[0] == axes[1]) & (tap_a == tap_b)
    result: NDArray[np.bool_] = np.where((a == DUAL_POINT) & (b == DUAL_POINT), gestures, a == b)
    return result


def enlarge_boxes(boxes: ArrayLike) -> NDArray[np.float32]:
    """Boxes [n, 4] (y, x, height, width) as the matcher sees them: float32 [n, 4] (top, left, bottom, right).

    Like the original, top and left are clipped to 0 without shortening the box, and bottom and right are not
    clipped. Unusable boxes are NaN, which contains no point.
    """
    table = _box_table(boxes)
    sizes = np.clip(table[:, 2:], 0, 1)
    sizes[~usable_boxes(table)] = np.nan
    corner = np.maximum(0, table[:, :2] - sizes * BOX_GROWTH / 2).astype(np.float32)
    grown = np.minimum(1, sizes * (1 + BOX_GROWTH)).astype(np.float32)
    return np.concatenate([corner, corner + grown], axis=1)


def usable_boxes(boxes: ArrayLike) -> NDArray[np.bool_]:
    """[n]: which of the boxes [n, 4] have a height and a width from 0 to 1, or off by less than 1 %."""
    sizes = _box_table(boxes)[:, 2:]
    usable = (sizes > -BOX_TOLERANCE) & (sizes < 1 + BOX_TOLERANCE)
    return np.asarray(usable.all(axis=1), np.bool_)


def _box_table(boxes: ArrayLike) -> NDArray[np.float64]:
    table = np.asarray(boxes, np.float64)
    table = table.reshape(-1, 4) if table.size == 0 else table
    if table.ndim != 2 or table.shape[1] != 4:
        raise ValueError(f"boxes: got shape {table.shape}; expected (n, 4) of y, x, height, width")
    return table


def _distances(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """Distances [N]; the sum of the two squares as `distance` rounds it."""
    delta = a - b
    distances: NDArray[np.float32] = np.sqrt(np.einsum("nd,nd->n", delta, delta))
    return distances


def _pairs_share_box(
    a: NDArray[np.float32], b: NDArray[np.float32], boxes: Sequence[ArrayLike]
) -> NDArray[np.bool_]:
    """bool [N]: does one of the pair's boxes contain both points?

    All boxes of all pairs are tested at once.
    """
    tables = [np.asarray(table, np.float64).reshape(-1, 4) for table in boxes]
    pair = np.repeat(np.arange(len(tables)), [len(table) for table in tables])  # of each box
    grown = enlarge_boxes(np.concatenate([np.zeros((0, 4)), *tables]))
    contains_both = np.ones(len(pair), np.bool_)
    for points in (a, b):
        contains_both &= ((points[pair] >= grown[:, :2]) & (points[pair] <= grown[:, 2:])).all(1)
    result: NDArray[np.bool_] = np.bincount(pair[contains_both], minlength=len(tables)) > 0
    return result


def _share_box(a: Point, b: Point, boxes: NDArray[np.float32]) -> bool:
    points = np.array([[a.y, a.x], [b.y, b.x]], np.float32)[:, None]  # [2, 1, yx] against [n, yx]
    inside = ((points >= boxes[:, :2]) & (points <= boxes[:, 2:])).all(axis=2)
    return bool(inside.all(axis=0).any())
