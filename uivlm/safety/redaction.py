"""What models, traces and people may see of secrets: a device whose screens are covered, an observer that
masks.

`RedactingDevice` covers secrets on screens and resolves references in typed text. `MaskSecrets` masks events.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from uivlm.actions.decision import Decision
from uivlm.actions.gesture import Gesture, TypeText
from uivlm.devices.device import OPAQUE_WINDOW, Device, DeviceError, InspectableDevice
from uivlm.episodes.episode import Element, Screen
from uivlm.rollout.loop import EndStatus, RunObserver
from uivlm.safety.secrets import REFERENCE_PATTERN, Secrets, mask_secrets

COVER_GRAY = 96  # gray level of a covered element
MAX_UNKNOWN_FRACTION = 0.5  # of the screen; if more is covered as unknown, a person must continue


class RedactionError(DeviceError):
    """Secrets on the screen cannot be covered, because the phone cannot list what is on it."""


class RedactingDevice:
    """A Device. Without secrets, it is the device itself."""

    def __init__(self, device: Device, secrets: Secrets) -> None:
        self.device, self.secrets = device, secrets

    def screen(self) -> Screen:
        """Raises RedactionError, DeviceError."""
        return self.capture()[0]

    def capture(self) -> tuple[Screen, tuple[Element, ...] | None]:
        """The covered screen, and its elements if they were needed to cover it."""
        with self._masked_errors():
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
        """Raises SecretError before a secret is typed in an app that must not get it, DeviceError."""
        with self._masked_errors():
            if isinstance(gesture, TypeText):
                gesture = self._resolve(gesture)
            self.device.perform(gesture)

    def _resolve(self, gesture: TypeText) -> TypeText:
        """The text with values, if the app that is now in the foreground may get them."""
        text = gesture.text
        if REFERENCE_PATTERN.search(text):
            app = self.device.foreground() if isinstance(self.device, InspectableDevice) else ""
            text = self.secrets.resolve(text, app)
        # From now on the phone may show them, even if typing fails midway.
        self.secrets.typed.update(REFERENCE_PATTERN.findall(self.secrets.mask(text)))
        return TypeText(text)

    @contextmanager
    def _masked_errors(self) -> Iterator[None]:
        try:
            yield
        except DeviceError as error:
            raise DeviceError(self.secrets.mask(str(error))) from None  # a log would print its cause, too


def cover_secrets(screen: Screen, elements: Sequence[Element], secrets: Secrets) -> Screen:
    """The screen with every element covered whose text contains a secret.

    A value may be split over consecutive elements. Once a secret was typed, elements of unknown content are
    covered as well. Raises RedactionError if they are most of the screen.
    """
    replacements = secrets.replacements("\n".join(element.text for element in elements))
    unknown = [element for element in elements if secrets.typed and element.ui_type == OPAQUE_WINDOW]
    if sum(element.height * element.width for element in unknown) > MAX_UNKNOWN_FRACTION:
        raise RedactionError("most of the page cannot be read, so a typed secret cannot be covered on it")
    ends = list(accumulate(len(element.text) + 1 for element in elements))
    secret = [
        element
        for element, end in zip(elements, ends, strict=True)
        if any(replacements[end - 1 - len(element.text) : end - 1])
    ]
    if not (secret or unknown):
        return screen
    pixels = screen.pixels.copy()
    for element in (*secret, *unknown):
        _cover(pixels, element)
    visible = tuple(element for element in screen.elements if not secrets.contains_secret(element.text))
    return Screen(pixels, visible)


def _cover(pixels: NDArray[np.uint8], element: Element) -> None:
    height, width = pixels.shape[:2]
    top, left = int(element.y * height), int(element.x * width)
    bottom = int(np.ceil((element.y + element.height) * height))
    right = int(np.ceil((element.x + element.width) * width))
    pixels[max(top, 0) : bottom, max(left, 0) : right] = COVER_GRAY


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
