"""Actions as pixels and milliseconds. Only here and in devices are coordinates (x, y) pixels."""

import math
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from uivlm.actions.action import Action, Finish, Key, Point, Press, Swipe, Tap, Type

TAP_MS = 60  # below Android's long-press timeout of 400 ms
SWIPE_MS = 500  # slow enough not to fling, fast enough not to be a drag


@dataclass(frozen=True, slots=True)
class Touch:
    points: Annotated[tuple[tuple[int, int], ...], Field(min_length=1)]  # (x, y) px; one: tap, two: swipe
    duration_ms: int
    type: Literal["touch"] = field(default="touch", kw_only=True, repr=False)


@dataclass(frozen=True, slots=True)
class TypeText:
    text: str  # typed into the focused field
    type: Literal["text"] = field(default="text", kw_only=True, repr=False)


@dataclass(frozen=True, slots=True)
class PressKey:
    key: Key
    type: Literal["key"] = field(default="key", kw_only=True, repr=False)


Gesture = Touch | TypeText | PressKey


def to_gesture(action: Action, height: int, width: int) -> Gesture | None:
    """The gesture of an action on a screen of `height` x `width` pixels; None for Finish."""
    match action:
        case Tap(at):
            return Touch((to_pixel(at, height, width),), TAP_MS)
        case Swipe(start, end):
            return Touch((to_pixel(start, height, width), to_pixel(end, height, width)), SWIPE_MS)
        case Type(text):
            return TypeText(text)
        case Press(key):
            return PressKey(key)
        case Finish():
            return None
        case _:
            raise ValueError(f"there is no gesture for {action!r}")


def to_pixel(point: Point, height: int, width: int) -> tuple[int, int]:
    """(x, y) of the pixel under the point, clamped to the screen."""
    if height < 1 or width < 1:
        raise ValueError(f"screen size: got {width} x {height} pixels; expected at least 1 x 1")
    if not (math.isfinite(point.y) and math.isfinite(point.x)):
        raise ValueError(f"point: got y {point.y}, x {point.x}; expected finite numbers")
    return min(max(int(point.x * width), 0), width - 1), min(max(int(point.y * height), 0), height - 1)
