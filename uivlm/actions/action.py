"""The actions a phone understands, in AITW's terms.

Coordinates are fractions of the screen, y before x, origin at the top left (as AITW's `results/yx_touch`).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

Key = Literal["back", "home", "enter"]
Status = Literal["complete", "impossible"]

TAP_DISTANCE = np.float32(0.04)  # AITW action_matching: touch and lift this close together are a tap


@dataclass(frozen=True, slots=True)
class Point:
    """A place on the screen: fractions of its height (y) and width (x), each in [0, 1]."""

    y: float
    x: float


@dataclass(frozen=True, slots=True)
class Tap:
    at: Point


@dataclass(frozen=True, slots=True)
class Swipe:
    start: Point  # where the finger touches
    end: Point  # where it lifts


@dataclass(frozen=True, slots=True)
class Type:
    text: str  # sent to the focused field; no focusing tap, no enter


@dataclass(frozen=True, slots=True)
class Press:
    key: Key


@dataclass(frozen=True, slots=True)
class Finish:
    status: Status


Action = Tap | Swipe | Type | Press | Finish


def is_tap(touch: Point, lift: Point) -> bool:
    """AITW's tap test: float32 distance in the unit square (no aspect ratio) of at most 0.04."""
    delta = np.array([touch.y, touch.x], np.float32) - np.array([lift.y, lift.x], np.float32)
    return bool(np.linalg.norm(delta) <= TAP_DISTANCE)


def dual_point(touch: Point, lift: Point) -> Tap | Swipe:
    """AITW's DUAL_POINT as the gesture it is: a tap at the touch point, or a swipe."""
    return Tap(touch) if is_tap(touch, lift) else Swipe(touch, lift)
