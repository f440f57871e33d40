"""The guard between a loop and a phone: a device and a policy in, a device that enforces the policy out.

No gesture passes that the policy does not allow, and none after a stop.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from uivlm.actions.decision import Decision
from uivlm.actions.gesture import Gesture, Touch, TypeText
from uivlm.devices.device import BAR_FRACTION, Device, InspectableDevice, is_black
from uivlm.episodes.episode import Element, Screen
from uivlm.rollout.loop import HumanTookOver, RunStopped
from uivlm.safety.policy import Policy
from uivlm.safety.redaction import RedactingDevice, RedactionError, mask_decision
from uivlm.safety.secrets import SecretError, Secrets, mask_secrets
from uivlm.safety.sensitive import sensitive_labels
from uivlm.safety.supervisor import ConfirmationRequest, Supervisor

GESTURE_GRID = 20  # cells across a screen; gestures in the same cells are the same


class Guard:
    """A Device. Raises RunStopped to end the run, HumanTookOver if a person did something else."""

    def __init__(
        self,
        device: Device,
        policy: Policy,
        secrets: Secrets,
        supervisor: Supervisor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.policy, self.secrets, self.supervisor = policy, secrets, supervisor
        self.inspectable_device = inspectable_device(device, policy)
        self.redacting_device = RedactingDevice(device, secrets)
        self._clock, self._start_time = clock, clock()
        self._screen: Screen | None = None  # the last one that was returned
        self._elements: tuple[Element, ...] | None = None  # on it, if redaction needed them
        self._gesture_counts: Counter[tuple[str, str]] = Counter()

    def screen(self) -> Screen:
        """The screen, with secrets covered. A black screen needs a person."""
        self._check_stop_conditions()
        while is_black(screen := self._capture()):
            self._ask_for_help(screen, "the screen is black: a secure page, or the phone is asleep")
            self._check_stop_conditions()
        self._screen = screen
        return screen

    def perform(self, gesture: Gesture) -> None:
        """Perform a gesture whose decision is unknown."""
        self._perform(gesture, None)

    def perform_decision(self, gesture: Gesture, decision: Decision) -> None:
        """Perform the gesture of a decision."""
        self._perform(gesture, decision)

    def check_after_gesture(self) -> None:
        """A gesture may open another app. Raises RunStopped if the policy denies it."""
        self._check_app("after")

    def _perform(self, gesture: Gesture, decision: Decision | None) -> None:
        assert self._screen is not None, "a gesture needs a screen"
        self._check_stop_conditions()
        screen, screen_key = self._screen, _screen_key(self._screen)
        state = (screen_key, _gesture_key(gesture, screen))
        if self._gesture_counts[state] >= self.policy.max_repeats:
            raise RunStopped("stuck", f"the same gesture was repeated {self._gesture_counts[state]} times")
        reasons = (
            *self.policy.confirmation_reasons(self._check_app("before")),
            *self._confidence_reasons(decision),
            *self._sensitive_reasons(screen, gesture),
        )
        self._ask_supervisor(screen, decision, gesture, reasons)
        self._check_stop_conditions()
        if reasons or self.supervisor.previews_gestures:  # a person's answer takes time
            self._check_app("before")
        if reasons and _screen_key(self._capture()) != screen_key:
            raise HumanTookOver  # the confirmed screen is gone: the agent takes a new one
        self._gesture_counts[state] += 1
        try:
            self.redacting_device.perform(gesture)
        except SecretError as error:
            raise RunStopped("denied", str(error)) from None

    def _capture(self) -> Screen:
        try:
            screen, self._elements = self.redacting_device.capture()
        except RedactionError as error:
            raise RunStopped("needs_human", str(error)) from None
        return screen

    def _check_stop_conditions(self) -> None:
        """Raises RunStopped if the run must end now."""
        if self.supervisor.stop_requested():
            raise RunStopped("stopped", "stopped by a person")
        if self.policy.stop_file and Path(self.policy.stop_file).exists():
            raise RunStopped("stopped", f"stopped by the file {self.policy.stop_file}")
        if self._clock() - self._start_time > self.policy.max_seconds:
            raise RunStopped(
                "timeout", f"not finished after {self.policy.max_seconds:g} seconds, the policy's maximum"
            )

    def _check_app(self, when: str) -> str:
        """The foreground app, before or after a gesture. Raises RunStopped if the policy denies it."""
        if not self.policy.needs_app or self.inspectable_device is None:
            return ""
        app = self.inspectable_device.foreground()
        if reason := self.policy.app_denied(app):
            raise RunStopped("denied", f"{when} the gesture, {reason}")
        return app

    def _confidence_reasons(self, decision: Decision | None) -> tuple[str, ...]:
        if decision is None:
            return ()
        confidence = decision.action_type_confidence
        confidence = decision.confidence if confidence is None else confidence
        if confidence is None or confidence >= self.policy.min_confidence:
            return ()
        return (f"the confidence is {confidence:.2f}, below {self.policy.min_confidence:.2f}",)

    def _sensitive_reasons(self, screen: Screen, gesture: Gesture) -> tuple[str, ...]:
        """One UI dump a step: the one that covered the screen, if there is one."""
        if not self.policy.confirm_labels or self.inspectable_device is None or isinstance(gesture, TypeText):
            return ()
        elements = self._elements
        if elements is None:
            elements = self.inspectable_device.elements()
        if elements is None:
            return ("the touched element is unknown",)
        labels = sensitive_labels(gesture, screen, elements, self.policy.confirm_labels)
        return tuple(f"the touched element says {self.secrets.mask(label)!r}" for label in labels)

    def _ask_supervisor(
        self, screen: Screen, decision: Decision | None, gesture: Gesture, reasons: tuple[str, ...]
    ) -> None:
        masked = None if decision is None else mask_decision(decision, self.secrets)
        request = ConfirmationRequest(screen, masked, mask_secrets(gesture, self.secrets), reasons)
        match self.supervisor.answer(request):
            case "yes":
                return
            case "no":
                raise RunStopped("denied", f"not confirmed: {'; '.join(reasons) or 'by a person'}")
            case "stop":
                raise RunStopped("stopped", "stopped by a person")
            case steps:
                raise HumanTookOver(steps)

    def _ask_for_help(self, screen: Screen, reason: str) -> None:
        """Returns if the person answers `yes`: take another screen."""
        match self.supervisor.answer(ConfirmationRequest(screen, None, None, (reason,))):
            case "yes":
                return
            case "stop":
                raise RunStopped("stopped", "stopped by a person")
            case "no":
                raise RunStopped("needs_human", f"{reason}: a person must continue")
            case steps:
                raise HumanTookOver(steps)


def inspectable_device(device: Device, policy: Policy) -> InspectableDevice | None:
    """The device, if it can say what it shows. Raises ValueError if it cannot and the policy needs it."""
    if isinstance(device, InspectableDevice):
        return device
    if policy.needs_app or policy.confirm_labels or policy.redact or policy.secrets:
        raise ValueError(
            f"{type(device).__name__} cannot name its app and elements: "
            "remove the policy's rules on apps, labels and secrets"
        )
    return None


def _screen_key(screen: Screen) -> str:
    """A coarse digest without the bars: a caret or a clock does not change it."""
    height = screen.pixels.shape[0]
    coarse = screen.pixels[int(BAR_FRACTION * height) :: 8, ::8] >> 5
    return hashlib.sha256(
        np.ascontiguousarray(coarse).tobytes() + str(screen.pixels.shape).encode()
    ).hexdigest()


def _gesture_key(gesture: Gesture, screen: Screen) -> str:
    """Gestures that differ by a finger's jitter have the same key."""
    if not isinstance(gesture, Touch):
        return repr(gesture)
    height, width = screen.pixels.shape[:2]
    return str([(x * GESTURE_GRID // width, y * GESTURE_GRID // height) for x, y in gesture.points])
