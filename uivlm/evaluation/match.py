"""AITW's action matching: does a predicted action count as the recorded one?

In: two actions, as ours or as AITW's fields, and the boxes of the screen. Out: yes or no. The rules and numbers are
those of `android_in_the_wild/action_matching.py` in google-research (Copyright Google LLC, Apache License 2.0),
written anew in NumPy; its JAX code computes in float32, so points, distances and thresholds here are float32, and
boxes are enlarged in float64 and then cast. Two differences: no boxes means that only the distance counts (the
original raises), and boxes in pixels are refused (nearly every pair of taps would match).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uivlm.actions.action import TAP_DISTANCE, Action, Point, is_tap
from uivlm.actions.aitw import DUAL_POINT, MATCH_DISTANCE, distance, main_axis, to_aitw
from uivlm.episode import Screen

GROWTH = 1.4  # a box grows by 140 % of its size, to 240 %


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
    """AITW's verdict on AITW's fields, points (y, x): typed text never counts, of a swipe only its main axis."""
    if type_a != DUAL_POINT or type_b != DUAL_POINT:
        return type_a == type_b
    touches = Point(*touch_a), Point(*touch_b)
    lifts = Point(*lift_a), Point(*lift_b)
    with np.errstate(over="ignore", invalid="ignore"):  # NaN and huge points have a verdict, too
        taps = [is_tap(touch, lift) for touch, lift in zip(touches, lifts, strict=True)]
        if taps[0] != taps[1]:
            return False
        if taps[0]:
            grown = enlarged(boxes)  # first, so that boxes in pixels never pass unnoticed
            return bool(distance(*touches) <= MATCH_DISTANCE) or _share_a_box(*touches, grown)
        return main_axis(touches[0], lifts[0]) == main_axis(touches[1], lifts[1])


def fields_match_all(
    touch_a: ArrayLike,
    lift_a: ArrayLike,
    type_a: ArrayLike,
    touch_b: ArrayLike,
    lift_b: ArrayLike,
    type_b: ArrayLike,
    boxes: Sequence[ArrayLike],
) -> NDArray[np.bool_]:
    """`fields_match` of N pairs at once: points [N, 2], types [N], the boxes of each pair's screen. bool [N]."""
    with np.errstate(over="ignore", invalid="ignore"):
        touch_a, lift_a, touch_b, lift_b = (
            np.asarray(points, np.float32).reshape(-1, 2) for points in (touch_a, lift_a, touch_b, lift_b)
        )
        a, b = np.asarray(type_a), np.asarray(type_b)
        tap_a, tap_b = _far(touch_a, lift_a) <= TAP_DISTANCE, _far(touch_b, lift_b) <= TAP_DISTANCE
        near = (_far(touch_a, touch_b) <= MATCH_DISTANCE) | _all_share_a_box(touch_a, touch_b, boxes)
        axes = [
            np.argmax(np.abs(lift - touch), axis=1) for touch, lift in ((touch_a, lift_a), (touch_b, lift_b))
        ]
    gestures = np.where(tap_a, near, axes[0] == axes[1]) & (tap_a == tap_b)
    found: NDArray[np.bool_] = np.where((a == DUAL_POINT) & (b == DUAL_POINT), gestures, a == b)
    return found


def enlarged(boxes: ArrayLike) -> NDArray[np.float32]:
    """Boxes [n, 4] (y, x, height, width) as the matcher sees them: float32 [n, 4] (top, left, bottom, right).

    Top and left are clipped to 0 without shortening the box, bottom and right are not clipped: as the original does.
    """
    given = np.asarray(boxes, np.float64)
    given = given.reshape(-1, 4) if given.size == 0 else given
    if given.ndim != 2 or given.shape[1] != 4:
        raise ValueError(f"boxes of shape {given.shape}: expected (n, 4) of y, x, height, width")
    sizes = given[:, 2:]
    if ((sizes < 0) | (sizes > 1)).any():
        worst = sizes[((sizes < 0) | (sizes > 1)).any(axis=1)][0]
        raise ValueError(
            f"a box of height {worst[0]:g} and width {worst[1]:g}: boxes are fractions of the screen, not pixels"
        )
    corner = np.maximum(0, given[:, :2] - sizes * GROWTH / 2).astype(np.float32)
    grown = np.minimum(1, sizes * (1 + GROWTH)).astype(np.float32)
    return np.concatenate([corner, corner + grown], axis=1)


def boxes_of(screen: Screen) -> NDArray[np.float64]:
    """The annotated boxes of a screen, float64 [n, 4]: y, x, height, width."""
    boxes = [(e.y, e.x, e.height, e.width) for e in screen.elements]
    return np.array(boxes, np.float64).reshape(-1, 4)


def _far(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """Distances [N]; the sum of the two squares as `distance` rounds it."""
    delta = a - b
    found: NDArray[np.float32] = np.sqrt(np.einsum("nd,nd->n", delta, delta))
    return found


def _all_share_a_box(
    a: NDArray[np.float32], b: NDArray[np.float32], boxes: Sequence[ArrayLike]
) -> NDArray[np.bool_]:
    """bool [N]: does one of the pair's boxes hold both points? All boxes of all pairs are tested at once."""
    given = [np.asarray(one, np.float64).reshape(-1, 4) for one in boxes]
    of = np.repeat(np.arange(len(given)), [len(one) for one in given])  # the pair of each box
    grown = enlarged(np.concatenate([np.zeros((0, 4)), *given]))
    both = np.ones(len(of), np.bool_)
    for points in (a, b):
        both &= ((points[of] >= grown[:, :2]) & (points[of] <= grown[:, 2:])).all(1)
    found: NDArray[np.bool_] = np.bincount(of[both], minlength=len(given)) > 0
    return found


def _share_a_box(a: Point, b: Point, boxes: NDArray[np.float32]) -> bool:
    points = np.array([[a.y, a.x], [b.y, b.x]], np.float32)[:, None]  # [2, 1, yx] against [n, yx]
    inside = ((points >= boxes[:, :2]) & (points <= boxes[:, 2:])).all(axis=2)
    return bool(inside.all(axis=0).any())
