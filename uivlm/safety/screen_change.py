"""Has the screen changed where a gesture depends on it? Two screens and a gesture in, yes or no out.

A pixel differs if a channel differs by more than MAX_LEVELS. The status bar with its clock is left out. A
difference as narrow as a caret or a scroll bar is not one. A touch depends on the touched elements and on the
neighborhood of the finger; enter and typed text depend on the whole screen; back and home on nothing.
"""

from collections.abc import Sequence
from math import ceil

import numpy as np
from numpy.typing import NDArray

from uivlm.actions.gesture import Gesture, PressKey, Touch
from uivlm.devices.device import BAR_FRACTION
from uivlm.episodes.episode import Element, Screen

MAX_LEVELS = 4  # of 255: screenshots have no noise, and faint text differs by 10 levels
MAX_CARET_FRACTION = 0.01  # of the width
COARSE_STRIDE = 64  # rows
NEIGHBORHOOD_FRACTION = 0.1  # of the width, to each side of the finger


def has_changed(before: Screen, after: Screen) -> bool:
    """Do the screens differ anywhere?"""
    height, width = before.pixels.shape[:2]
    return _differs(before, after, [(0, 0, height, width)])


def has_changed_under(
    gesture: Gesture, before: Screen, after: Screen, touched: Sequence[Element] = ()
) -> bool:
    """Do the screens differ where the gesture depends on them? A rotated screen always does."""
    if gesture in (PressKey("back"), PressKey("home")):
        return _differs(before, after, [])
    if not isinstance(gesture, Touch):
        return has_changed(before, after)
    height, width = before.pixels.shape[:2]
    reach = round(NEIGHBORHOOD_FRACTION * width)
    ends = dict.fromkeys((gesture.points[0], gesture.points[-1]))
    boxes = [(y - reach, x - reach, y + reach + 1, x + reach + 1) for x, y in ends]
    for element in touched:
        bottom, right = (element.y + element.height) * height, (element.x + element.width) * width
        boxes.append((int(element.y * height), int(element.x * width), ceil(bottom), ceil(right)))
    return _differs(before, after, boxes)


def _differs(before: Screen, after: Screen, boxes: Sequence[tuple[int, int, int, int]]) -> bool:
    """In one of these boxes: top, left, bottom and right in pixels."""
    if before.pixels.shape != after.pixels.shape:
        return True
    height, width = before.pixels.shape[:2]
    bar = int(BAR_FRACTION * height)
    max_caret_width = max(2, round(MAX_CARET_FRACTION * width))  # pixels
    return any(
        _changed_width(
            before.pixels[max(bar, top) : bottom : stride, max(0, left) : right],
            after.pixels[max(bar, top) : bottom : stride, max(0, left) : right],
        )
        > max_caret_width
        for stride in (COARSE_STRIDE, 1)  # most screens that differ do so at a glance
        for top, left, bottom, right in boxes
        if bottom > 0 and right > 0
    )


def _changed_width(before: NDArray[np.uint8], after: NDArray[np.uint8]) -> int:
    """From the first to the last column with a difference, in pixels."""
    if np.array_equal(before, after):
        return 0
    difference = np.maximum(before, after) - np.minimum(before, after)
    changed = (difference > MAX_LEVELS).any(axis=0)
    columns = np.flatnonzero(np.any(changed, axis=1))
    return int(columns[-1] - columns[0] + 1) if len(columns) else 0
