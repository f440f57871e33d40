"""The protocol of every device, and what devices share: constants of displays, a test for black screens."""

import time
from typing import Protocol, runtime_checkable

from uivlm.actions.gesture import Gesture
from uivlm.episodes.episode import Element, Screen

LONG_PRESS_MS = 400  # Android's long-press timeout: a longer touch is not a tap
STATUS_BAR_FRACTION = 0.04  # top fraction of the screen that may change at any time (clock, notifications)
BAR_FRACTION = 0.06  # top and bottom fraction of the screen that may show bars over a secure window
OPAQUE_WINDOW = "OPAQUE_WINDOW"  # UI type of an area whose content `elements` cannot list
MAX_BLACK_LEVEL = 3  # gray levels of 255: a black screen has no brighter pixel


class DeviceError(RuntimeError):
    """The device failed: it is gone, refused the command, or sent garbage. The message names the remedy."""


class Device(Protocol):
    def screen(self) -> Screen:
        """Return the screen once the display is still. Raises DeviceError."""

    def perform(self, gesture: Gesture) -> None:
        """Perform one gesture, in pixels of the last screen. Raises DeviceError."""


@runtime_checkable
class InspectableDevice(Device, Protocol):
    """A device that reports more than pixels: safety rules need the app and the elements."""

    def foreground(self) -> str:
        """Return the package (or host) of the foreground app; "" if unknown. Raises DeviceError."""

    def elements(self) -> tuple[Element, ...] | None:
        """Return the elements on the screen now, outer before inner; None if unknown. Raises DeviceError.

        An element with `clickable` None and without text may draw its own buttons: a canvas. Windows whose
        content is unknown (a keyboard, another app's window) are elements of the type OPAQUE_WINDOW.
        """


def is_black(screen: Screen) -> bool:
    """Is the screen black between its bars? Android shows secure windows and a sleeping display like this."""
    height = screen.pixels.shape[0]
    top, bottom = int(BAR_FRACTION * height), max(1, int((1 - BAR_FRACTION) * height))
    return int(screen.pixels[top:bottom].max(initial=0)) <= MAX_BLACK_LEVEL


def sleep_until(deadline: float) -> None:
    """Sleep until this time of the monotonic clock, in seconds."""
    time.sleep(max(0.0, deadline - time.monotonic()))
