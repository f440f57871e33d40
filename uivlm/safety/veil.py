"""A phone whose secrets nobody sees: a device and secrets in, a device out whose screens are covered where a secret stands,
and which fills in what was typed by reference.
"""

from uivlm.actions.gesture import Gesture, Keys
from uivlm.devices.device import Device, DeviceError, Telling
from uivlm.episode import Screen
from uivlm.safety.secret import Secrets, covered


class UncoveredError(DeviceError):
    """What stands on the screen cannot be told, so nobody may see it."""


class Veil:
    """A Device."""

    def __init__(self, device: Device, secrets: Secrets) -> None:
        self.device, self.secrets = device, secrets

    def screen(self) -> Screen:
        """Raises UncoveredError, DeviceError."""
        screen = self.device.screen()
        if not (self.secrets.values or self.secrets.patterns):
            return screen
        elements = self.device.elements() if isinstance(self.device, Telling) else None
        if elements is None:
            raise UncoveredError(
                "what stands on the screen cannot be told, so secrets on it cannot be covered"
            )
        return covered(screen, elements, self.secrets)

    def perform(self, gesture: Gesture) -> None:
        """Raises SecretError before anything is typed, DeviceError."""
        if isinstance(gesture, Keys):
            gesture = Keys(self.secrets.filled(gesture.text))
        self.device.perform(gesture)
