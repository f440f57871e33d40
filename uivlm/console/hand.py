"""The person's own hand on a phone: gestures in, screens out, with the policy's secrets kept as the guard keeps them."""

from dataclasses import dataclass

from uivlm.actions.action import Action, Type
from uivlm.actions.gesture import Gesture, Keys
from uivlm.devices.device import Device, DeviceError, Telling
from uivlm.episode import Screen
from uivlm.safety.secret import Secrets, covered


@dataclass(frozen=True, slots=True)
class Hand:
    device: Device
    secrets: Secrets

    def look(self) -> Screen:
        """The screen, what is secret on it covered. Raises DeviceError."""
        screen = self.device.screen()
        if not (self.secrets.values or self.secrets.patterns):
            return screen
        elements = self.device.elements() if isinstance(self.device, Telling) else None
        if elements is None:
            raise DeviceError("what stands on the screen cannot be told, so secrets on it cannot be covered")
        return covered(screen, elements, self.secrets)

    def do(self, gesture: Gesture) -> None:
        """Raises DeviceError, SecretError."""
        if isinstance(gesture, Keys):
            gesture = Keys(self.secrets.filled(gesture.text))
        self.device.perform(gesture)

    def hidden(self, action: Action) -> Action:
        """The action as model and trace may see it."""
        return Type(self.secrets.hidden(action.text)) if isinstance(action, Type) else action
