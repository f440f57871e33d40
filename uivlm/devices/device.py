"""What every phone is: a screen to look at and gestures it performs."""

from typing import Protocol

from uivlm.actions.gesture import Gesture
from uivlm.episode import Screen


class DeviceError(RuntimeError):
    """The phone did not do what was asked: gone, refused, or answering nonsense. The text says what to do."""


class Device(Protocol):
    def screen(self) -> Screen:
        """The screen, once the display is still. Raises DeviceError."""

    def perform(self, gesture: Gesture) -> None:
        """Perform one gesture (pixels of the last screen). Raises DeviceError."""
