"""The actions a phone understands, in AITW's terms.

Coordinates are fractions of the screen, y before x, origin at the top left (as AITW's `results/yx_touch`).
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

Key = Literal["back", "home", "enter"]
Status = Literal["complete", "impossible"]

TAP_DISTANCE = np.float32(0.04)  # AITW action_matching: touch and lift this close together are a tap


@dataclass(frozen=True, slots=True)
class Point:
    """A position on the screen: fractions of its height (y) and width (x), each in [0, 1]."""

    y: float
    x: float


@dataclass(frozen=True, slots=True)
class Tap:
    at: Point
    type: Literal["tap"] = field(default="tap", kw_only=True, repr=False)


@dataclass(frozen=True, slots=True)
class Swipe:
    start: Point  # where the finger touches
    end: Point  # where it lifts
    type: Literal["swipe"] = field(default="swipe", kw_only=True, repr=False)


@dataclass(frozen=True, slots=True)
class Type:
    text: str  # sent to the focused field; no focusing tap, no enter
    type: Literal["type"] = field(default="type", kw_only=True, repr=False)


@dataclass(frozen=True, slots=True)
class Press:
    key: Key
    type: Literal["press"] = field(default="press", kw_only=True, repr=False)


@dataclass(frozen=True, slots=True)
class Finish:
    status: Status
    type: Literal["finish"] = field(default="finish", kw_only=True, repr=False)


Action = Tap | Swipe | Type | Press | Finish


@dataclass(frozen=True, slots=True)
class InvalidAction:
    """Text that does not parse as an action: wrong in evaluation, never executed on a device."""

    text: str
    reason: str
    type: Literal["invalid"] = field(default="invalid", kw_only=True, repr=False)


def is_tap(touch: Point, lift: Point) -> bool:
    """AITW's tap test: float32 distance in the unit square (no aspect ratio) of at most 0.04."""
    delta = np.array([touch.y, touch.x], np.float32) - np.array([lift.y, lift.x], np.float32)
    return bool(np.linalg.norm(delta) <= TAP_DISTANCE)


def dual_point(touch: Point, lift: Point) -> Tap | Swipe:
    """AITW's DUAL_POINT as an action: a tap at the touch point, or a swipe."""
    return Tap(touch) if is_tap(touch, lift) else Swipe(touch, lift)
