"""What every phone is: a screen to look at and gestures it performs. Some can also say what stands on the screen."""

from typing import Protocol, runtime_checkable

from uivlm.actions.gesture import Gesture
from uivlm.episode import Element, Screen


class DeviceError(RuntimeError):
    """The phone did not do what was asked: gone, refused, or answering nonsense. The text says what to do."""


class Device(Protocol):
    def screen(self) -> Screen:
        """The screen, once the display is still. Raises DeviceError."""

    def perform(self, gesture: Gesture) -> None:
        """Perform one gesture (pixels of the last screen). Raises DeviceError."""


@runtime_checkable
class Telling(Device, Protocol):
    """A phone that can say more of what it shows than its pixels: what safety rules need."""

    def foreground(self) -> str:
        """Package (or host) of the app in front; "" where it cannot be told. Raises DeviceError."""

    def elements(self) -> tuple[Element, ...] | None:
        """What stands on the screen now, outer before inner; None where it cannot be told. Raises DeviceError."""
