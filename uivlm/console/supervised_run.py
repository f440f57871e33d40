"""A run that a person supervises from the page: the run's Supervisor and one of its observers.

The run's thread waits in `answer` for the person's confirmation, or while the person has the phone. The
page's threads call the other methods.
"""

import time
from dataclasses import dataclass
from typing import Literal

from uivlm.actions.decision import Decision
from uivlm.actions.gesture import Gesture
from uivlm.console.state import PendingAction, StateStore, describe_action
from uivlm.devices.device import DeviceError
from uivlm.episodes.episode import Screen, Step
from uivlm.rollout.loop import EndStatus, RunStopped
from uivlm.safety.supervisor import ConfirmationRequest, SupervisorAnswer

ConfirmationAnswer = Literal["yes", "no", "always"]


class InvalidStateError(ValueError):
    """The page requests what is impossible in the current state; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class ConfirmationTiming:
    preview_s: float = 1.0  # seconds that a gesture is shown if it needs no confirmation
    answer_timeout_s: float = 300.0  # without an answer, the gesture is denied


class SupervisedRun:
    previews_gestures = True

    def __init__(self, store: StateStore, timing: ConfirmationTiming) -> None:
        self.store, self.timing = store, timing
        self._stop_requested = self._takeover_requested = False
        self._answer: ConfirmationAnswer | None = None
        self._num_requests = 0
        self._human_steps: list[Step] = []  # since the person took over
        self._num_unreported = 0  # of these, events that the loop has not yet reported
        self._decision: Decision | None = None

    # -- requests of the page --------------------------------------------------------------------------------

    def confirm(self, request_id: int, answer: ConfirmationAnswer) -> None:
        """Answer the pending gesture, if it still is the one of this request."""
        with self.store.changed:
            state = self.store.state
            if (
                state.pending is None
                or state.pending.request_id != request_id
                or state.phase not in ("preview", "confirming")
            ):
                raise InvalidStateError("that gesture is no longer pending: look at the next one")
            if answer == "always" and not state.pending.always:
                raise InvalidStateError("this gesture cannot be allowed for good: confirm it")
            self._answer = answer
            self.store.changed.notify_all()

    def take_over(self) -> None:
        """Give the person the phone before the next gesture."""
        with self.store.changed:
            if self.store.state.phase == "human_control":
                raise InvalidStateError("you already have the phone")
            self._takeover_requested = True
            self.store.update(takeover_requested=True)

    def hand_back(self) -> None:
        self.store.update(phase="looking")

    def stop(self) -> None:
        """End the run within a step, without another gesture."""
        self._stop_requested = True
        self.store.update()

    def add_step(self, step: Step, gesture: Gesture, duration_ms: float) -> None:
        """Add a gesture of the person, who has taken over."""
        self._human_steps.append(step)
        self.store.add_step(Decision(step.action, ""), gesture, step.screen, "human")

    def fail(self, error: DeviceError | OSError) -> None:
        """A person's gesture failed. The page shows the error; the loop will meet it itself."""

    # -- Supervisor ------------------------------------------------------------------------------------------

    def stop_requested(self) -> bool:
        return self._stop_requested

    def answer(self, request: ConfirmationRequest) -> SupervisorAnswer | tuple[Step, ...]:
        with self.store.changed:
            self._num_requests, self._answer = self._num_requests + 1, None
            self.store.update_screen(request.screen, pending=self._pending_action(request))
            answer = self._wait_for_answer(request)
            if answer in ("yes", "always"):
                self.store.update(phase="acting" if request.gesture else "looking")
            if answer != "mine":
                return answer
            self._human_steps, self._takeover_requested = [], False
            self.store.update(phase="human_control", pending=None, takeover_requested=False)
            self.store.changed.wait_for(
                lambda: self._stop_requested or self.store.state.phase != "human_control"
            )
            self._num_unreported = len(self._human_steps)
            return tuple(self._human_steps)

    def _wait_for_answer(self, request: ConfirmationRequest) -> SupervisorAnswer | Literal["mine"]:
        """The person's answer.

        Silence confirms a gesture that needs no confirmation, and denies any other.
        """
        start = time.monotonic()
        while True:
            if self._stop_requested:
                return "stop"
            if self._takeover_requested:
                return "mine"
            if self._answer is not None:
                return self._answer
            must_confirm = bool(request.reasons) or self.store.state.step_mode
            timeout_s = self.timing.answer_timeout_s if must_confirm else self.timing.preview_s
            remaining_s = start + timeout_s - time.monotonic()
            if remaining_s <= 0 and not must_confirm:
                return "yes"
            if remaining_s <= 0:
                reasons = (*request.reasons, f"nobody answered for {timeout_s:g} seconds")
                raise RunStopped("denied" if request.gesture else "needs_human", "; ".join(reasons))
            phase = "confirming" if must_confirm else "preview"
            if self.store.state.phase != phase:
                self.store.update(phase=phase)
            self.store.changed.wait(remaining_s)

    def _pending_action(self, request: ConfirmationRequest) -> PendingAction:
        gesture, decision = request.gesture, request.decision
        if gesture is None or decision is None:
            return PendingAction(self._num_requests, "", "", None, None, gesture, request.reasons)
        return PendingAction(
            request_id=self._num_requests,
            description=describe_action(decision.action),
            text=decision.text,
            confidence=decision.confidence,
            action_type_confidence=decision.action_type_confidence,
            gesture=gesture,
            reasons=request.reasons,
            always=request.describe_exemptions(),
        )

    # -- RunObserver -----------------------------------------------------------------------------------------

    def on_screen(self, t: int, screen: Screen, duration_ms: float) -> None:
        if not self._num_unreported:
            self.store.update_screen(screen, phase="thinking", pending=None)

    def on_decision(self, t: int, decision: Decision, duration_ms: float) -> None:
        self._decision = decision

    def on_action(self, t: int, gesture: Gesture | None, duration_ms: float, by_human: bool = False) -> None:
        if by_human:  # the page showed it when it was performed
            self._num_unreported -= 1
            return
        screen = self.store.state.screen
        assert screen is not None, "an action needs a screen"
        assert self._decision is not None, "an action needs a decision"
        self.store.add_step(self._decision, gesture, screen, "agent", phase="looking", pending=None)

    def on_end(self, status: EndStatus, message: str) -> None:
        """The session shows the end."""
