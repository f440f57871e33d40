"""The guard between a loop and a phone: a device and a policy in, a device that enforces the policy out.

No gesture passes that the policy does not allow, and none after a stop.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from uivlm.actions.decision import Decision
from uivlm.actions.gesture import Gesture, Touch
from uivlm.devices.device import Device, InspectableDevice, is_black
from uivlm.episodes.episode import Screen
from uivlm.rollout.loop import HumanTookOver, RunStopped
from uivlm.safety.policy import Policy, allow_always
from uivlm.safety.reasons import Reason, confidence_reasons, gesture_reasons
from uivlm.safety.redaction import RedactingDevice, RedactionError, mask_decision
from uivlm.safety.screen_change import has_changed, has_changed_under
from uivlm.safety.secrets import SecretError, Secrets, mask_secrets
from uivlm.safety.supervisor import ConfirmationRequest, Supervisor
from uivlm.safety.touched import Touched, depends_on_elements, touched

GESTURE_GRID = 20  # cells across a screen; gestures in the same cells are the same


@dataclass(frozen=True, slots=True)
class GestureTarget:
    """What a gesture would meet: the app in front, and what it presses (None: the phone cannot tell)."""

    app: str
    touched: Touched | None


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
        self._app = ""  # in front of it; "" if unknown
        self._performed: list[tuple[str, Screen]] = []  # gestures, and the screens they were performed on
        self._num_changes = 0  # in a row: the screen changed between decision and gesture

    def screen(self) -> Screen:
        """The screen, with secrets covered. A black screen needs a person."""
        self._check_stop_conditions()
        while is_black(screen := self._capture()):
            self._ask_for_help(screen, "the screen is black: a secure page, or the phone is asleep")
            self._check_stop_conditions()
        self._screen, self._app = screen, self._foreground()
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

    def mask(self, text: str) -> str:
        """The text without secrets."""
        return self.secrets.mask(text)

    def _perform(self, gesture: Gesture, decision: Decision | None) -> None:
        assert self._screen is not None, "a gesture needs a screen"
        self._check_stop_conditions()
        screen, key = self._screen, _gesture_key(gesture, self._screen)
        self._check_repeats(key, screen)
        look = self._look(gesture, screen)
        if look.app != self._app or (self.policy.recheck and self._has_changed(gesture, screen, look)):
            self._decide_again()
        reasons = (
            *gesture_reasons(self.policy, self.secrets, look.app, gesture, look.touched),
            *confidence_reasons(self.policy, decision),
            *self._restless_reasons(),
        )
        self._ask_supervisor(screen, decision, gesture, reasons)
        self._check_stop_conditions()
        if reasons or self.supervisor.previews_gestures:  # which takes time
            again = self._look(gesture, screen)
            if again != look or self._has_changed(gesture, screen, look):
                self._decide_again()
        self._num_changes = 0
        self._performed.append((key, screen))
        try:
            self.redacting_device.perform(gesture)
        except SecretError as error:
            raise RunStopped("denied", str(error)) from None

    def _look(self, gesture: Gesture, screen: Screen) -> GestureTarget:
        """Raises RunStopped if the policy denies the app."""
        pressed: Touched | None = Touched()
        if (
            self.policy.confirm_labels
            and self.inspectable_device is not None
            and depends_on_elements(gesture)
        ):
            elements = self.inspectable_device.elements()
            pressed = None if elements is None else touched(gesture, screen, elements)
        return GestureTarget(self._check_app("before"), pressed)

    def _has_changed(self, gesture: Gesture, screen: Screen, look: GestureTarget) -> bool:
        """Where the gesture depends on it. A screen that always moves was left to a person."""
        if self._num_changes >= self.policy.max_repeats:
            return False
        elements = look.touched.elements if look.touched else ()
        return has_changed_under(gesture, screen, self._capture(), elements)

    def _decide_again(self) -> None:
        """The gesture is not performed: the agent gets the screen as it is now."""
        self._num_changes += 1
        raise HumanTookOver

    def _restless_reasons(self) -> tuple[Reason, ...]:
        if self._num_changes < self.policy.max_repeats:
            return ()
        return (
            Reason(
                f"the screen changed {self._num_changes} times in a row between decision and gesture, "
                "so it is not compared again"
            ),
        )

    def _check_repeats(self, key: str, screen: Screen) -> None:
        count = sum(key == other and not has_changed(seen, screen) for other, seen in self._performed)
        if count >= self.policy.max_repeats:
            raise RunStopped("stuck", f"the same gesture was repeated {count} times")

    def _capture(self) -> Screen:
        try:
            return self.redacting_device.screen()
        except RedactionError as error:
            raise RunStopped("needs_human", str(error)) from None

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

    def _foreground(self) -> str:
        return self.inspectable_device.foreground() if self.inspectable_device else ""

    def _check_app(self, when: str) -> str:
        """The foreground app, before or after a gesture. Raises RunStopped if the policy denies it."""
        app = self._foreground()
        if self.inspectable_device and (reason := self.policy.app_denied(app)):
            raise RunStopped("denied", f"{when} the gesture, {reason}")
        return app

    def _ask_supervisor(
        self, screen: Screen, decision: Decision | None, gesture: Gesture, reasons: tuple[Reason, ...]
    ) -> None:
        masked = None if decision is None else mask_decision(decision, self.secrets)
        texts = tuple(self.secrets.mask(reason.text) for reason in reasons)
        exemptions = tuple(reason.exemption for reason in reasons if reason.exemption is not None)
        offered = exemptions if self.policy.file and len(exemptions) == len(reasons) else ()
        request = ConfirmationRequest(
            screen, masked, mask_secrets(gesture, self.secrets), texts, tuple(dict.fromkeys(offered))
        )
        match self.supervisor.answer(request):
            case "yes":
                return
            case "always":
                self._allow_always(request)
            case "no":
                raise RunStopped("denied", f"not confirmed: {'; '.join(texts) or 'by a person'}")
            case "stop":
                raise RunStopped("stopped", "stopped by a person")
            case steps:
                raise HumanTookOver(steps)

    def _allow_always(self, request: ConfirmationRequest) -> None:
        try:
            self.policy = allow_always(self.policy, request.exemptions)
        except (OSError, ValueError) as error:
            raise RunStopped("needs_human", f"the policy file cannot keep the exception: {error}") from None

    def _ask_for_help(self, screen: Screen, reason: str) -> None:
        """Returns if the person answers `yes`: take another screen."""
        match self.supervisor.answer(ConfirmationRequest(screen, None, None, (reason,))):
            case "yes" | "always":
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


def _gesture_key(gesture: Gesture, screen: Screen) -> str:
    """Gestures that differ by a finger's jitter have the same key."""
    if not isinstance(gesture, Touch):
        return repr(gesture)
    height, width = screen.pixels.shape[:2]
    return str([(x * GESTURE_GRID // width, y * GESTURE_GRID // height) for x, y in gesture.points])
