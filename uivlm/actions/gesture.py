"""Actions as pixels and milliseconds. The only place, with the devices, where coordinates are (x, y) pixels."""

import math
from dataclasses import dataclass

from uivlm.actions.action import Action, Finish, Key, Point, Press, Swipe, Tap, Type

TAP_MS = 60  # a finger's touch; below Android's long-press time-out of 400 ms
SWIPE_MS = 500  # slow enough not to fling, fast enough not to be a drag


@dataclass(frozen=True, slots=True)
class Touch:
    path: tuple[tuple[int, int], ...]  # (x, y) pixels: one point is a tap, two are a swipe
    ms: int


@dataclass(frozen=True, slots=True)
class Keys:
    text: str  # typed into the focused field


@dataclass(frozen=True, slots=True)
class Button:
    name: Key


Gesture = Touch | Keys | Button


def gesture(action: Action, height: int, width: int) -> Gesture | None:
    """The gesture for an action on a screen of `height` x `width` pixels; None for Finish: nothing is touched."""
    match action:
        case Tap(at):
            return Touch((pixel(at, height, width),), TAP_MS)
        case Swipe(start, end):
            return Touch((pixel(start, height, width), pixel(end, height, width)), SWIPE_MS)
        case Type(text):
            return Keys(text)
        case Press(key):
            return Button(key)
        case Finish():
            return None
        case _:
            raise ValueError(f"there is no gesture for {action!r}")


def pixel(point: Point, height: int, width: int) -> tuple[int, int]:
    """(x, y) of the pixel under the point, clamped to the screen."""
    if height < 1 or width < 1:
        raise ValueError(f"a screen of {width} x {height} pixels has no pixel to touch")
    if not (math.isfinite(point.y) and math.isfinite(point.x)):
        raise ValueError(f"the point y {point.y}, x {point.x} is nowhere on a screen: both must be finite")
    return min(max(int(point.x * width), 0), width - 1), min(max(int(point.y * height), 0), height - 1)
