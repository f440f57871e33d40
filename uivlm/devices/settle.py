"""When a display is still: frames in, the one to look at out."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STATUS_BAR = 0.04  # top share of the screen that may change at any time (clock, notifications)
STILL = 1.0  # grey levels of 255: mean difference under which two frames are equal


@dataclass(frozen=True, slots=True)
class Settle:
    """How long to wait until the display is still."""

    first_s: float = 0.3  # from the last gesture to the first frame: what it starts needs time to begin
    every_s: float = 0.2  # from one frame to the next, at least
    limit_s: float = 6.0  # after this the last frame counts; 0 takes one frame and compares none


AT_ONCE = Settle(0.0, 0.0, 0.0)  # a simulated phone is still when its command returns


@dataclass(frozen=True, slots=True)
class Wait:
    """How one wait went."""

    settled: bool  # two frames were equal, or none were to be compared
    waited_s: float
    frames: int


def still_frame(
    frame: Callable[[], NDArray[np.uint8]], settle: Settle, touched: float | None
) -> tuple[NDArray[np.uint8], Wait]:
    """The first frame that equals the one before it, or the last at the time limit. `touched`: monotonic seconds of the
    last gesture, None where there was none."""
    began = time.monotonic()
    if touched is not None:
        _sleep_until(touched + settle.first_s)
    taken = time.monotonic()
    now, frames, settled = frame(), 1, settle.limit_s == 0
    while not settled and time.monotonic() - began < settle.limit_s:
        _sleep_until(taken + settle.every_s)
        taken = time.monotonic()
        now, before = frame(), now
        frames += 1
        settled = is_still(before, now)
    return now, Wait(settled, time.monotonic() - began, frames)


def is_still(before: NDArray[np.uint8], now: NDArray[np.uint8]) -> bool:
    """Do two frames show the same below the status bar? A blinking caret is the same, a turned screen is not."""
    if before.shape != now.shape:
        return False
    top = int(before.shape[0] * STATUS_BAR)
    difference = before[top::4, ::4].astype(np.int16) - now[top::4, ::4]
    return bool(np.abs(difference).mean() < STILL)


def _sleep_until(when: float) -> None:
    time.sleep(max(0.0, when - time.monotonic()))
