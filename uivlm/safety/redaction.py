"""What models, traces and people may see of secrets: a device whose screens are covered, an observer that
masks.

`RedactingDevice` covers secrets on screens and resolves references in typed text. `MaskSecrets` masks events.
"""

from dataclasses import replace

from uivlm.actions.decision import Decision
from uivlm.actions.gesture import Gesture, TypeText
from uivlm.devices.device import Device, DeviceError, InspectableDevice
from uivlm.episodes.episode import Element, Screen
from uivlm.rollout.loop import EndStatus, RunObserver
from uivlm.safety.secrets import Secrets, cover_secrets, mask_secrets


class RedactionError(DeviceError):
    """The phone cannot list its elements, so secrets on the screen cannot be covered."""


class RedactingDevice:
    """A Device. Without secrets, it is the device itself."""

    def __init__(self, device: Device, secrets: Secrets) -> None:
        self.device, self.secrets = device, secrets

    def screen(self) -> Screen:
        """Raises RedactionError, DeviceError."""
        return self.capture()[0]

    def capture(self) -> tuple[Screen, tuple[Element, ...] | None]:
        """The covered screen, and its elements if they were needed to cover it."""
        screen = self.device.screen()
        if not (self.secrets.values or self.secrets.patterns):
            return screen, None
        elements = self.device.elements() if isinstance(self.device, InspectableDevice) else None
        if elements is None:
            raise RedactionError(
                "the phone cannot list the elements on its screen, so secrets cannot be covered"
            )
        return cover_secrets(screen, elements, self.secrets), elements

    def perform(self, gesture: Gesture) -> None:
        """Raises SecretError before anything is typed, DeviceError."""
        if isinstance(gesture, TypeText):
            gesture = TypeText(self.secrets.resolve(gesture.text))
        self.device.perform(gesture)


class MaskSecrets:
    """A RunObserver that masks secrets for another one."""

    def __init__(self, observer: RunObserver, secrets: Secrets) -> None:
        self.observer, self.secrets = observer, secrets

    def on_screen(self, t: int, screen: Screen, duration_ms: float) -> None:
        self.observer.on_screen(t, screen, duration_ms)

    def on_decision(self, t: int, decision: Decision, duration_ms: float) -> None:
        self.observer.on_decision(t, mask_decision(decision, self.secrets), duration_ms)

    def on_action(self, t: int, gesture: Gesture | None, duration_ms: float, by_human: bool = False) -> None:
        masked = None if gesture is None else mask_secrets(gesture, self.secrets)
        self.observer.on_action(t, masked, duration_ms, by_human)

    def on_end(self, status: EndStatus, message: str) -> None:
        self.observer.on_end(status, self.secrets.mask(message))


def mask_decision(decision: Decision, secrets: Secrets) -> Decision:
    return replace(decision, action=mask_secrets(decision.action, secrets), text=secrets.mask(decision.text))
