"""Wait until a display is still: a capture function in, the still screen out."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uivlm.devices.device import STATUS_BAR_FRACTION, sleep_until
from uivlm.episodes.episode import Screen

MAX_MEAN_DIFFERENCE = 1.0  # gray levels of 255: two frames that differ less on average are equal


@dataclass(frozen=True, slots=True)
class SettleTiming:
    """How long to wait until the display is still."""

    first_frame_delay_s: float = (
        0.3  # from the last gesture to the first frame: animations need time to start
    )
    frame_interval_s: float = 0.2  # minimum time between two frames
    timeout_s: float = 6.0  # after this time the last frame is returned; 0 takes one frame and compares none


NO_WAIT = SettleTiming(0.0, 0.0, 0.0)  # a simulated phone is still as soon as its command returns


@dataclass(frozen=True, slots=True)
class SettleResult:
    """How the wait ended."""

    settled: bool  # two frames were equal, or no comparison was requested
    wait_s: float
    num_frames: int


def capture_still_frame(
    capture: Callable[[], Screen], timing: SettleTiming, last_touch_time: float | None
) -> tuple[Screen, SettleResult]:
    """Return the first frame that equals the one before it, or the last frame at the timeout.

    `last_touch_time`: end of the last gesture in monotonic seconds; None if there was none.
    """
    start_time = time.monotonic()
    if last_touch_time is not None:
        sleep_until(last_touch_time + timing.first_frame_delay_s)
    frame_time = time.monotonic()
    frame, num_frames, settled = capture(), 1, timing.timeout_s == 0
    while not settled and time.monotonic() - start_time < timing.timeout_s:
        sleep_until(frame_time + timing.frame_interval_s)
        frame_time = time.monotonic()
        frame, previous = capture(), frame
        num_frames += 1
        settled = is_still(previous.pixels, frame.pixels)
    return frame, SettleResult(settled, time.monotonic() - start_time, num_frames)


def is_still(previous: NDArray[np.uint8], current: NDArray[np.uint8]) -> bool:
    """Are two frames equal below the status bar? A blinking caret is ignored; a rotated screen differs."""
    if previous.shape != current.shape:
        return False
    top = int(previous.shape[0] * STATUS_BAR_FRACTION)
    difference = previous[top::4, ::4].astype(np.int16) - current[top::4, ::4]
    return bool(np.abs(difference).mean() < MAX_MEAN_DIFFERENCE)
