"""Records a demonstration: a person's steps in, a trace out that data preparation reads."""

from uivlm.actions.action import Finish, Status
from uivlm.actions.decision import Decision
from uivlm.actions.gesture import Gesture
from uivlm.console.state import StateStore
from uivlm.devices.device import DeviceError
from uivlm.episodes.episode import Step
from uivlm.rollout.loop import EndStatus, RunObserver


class Recording:
    def __init__(self, store: StateStore, trace: RunObserver) -> None:
        self.store, self.trace = store, trace
        self._num_steps = 0

    def add_step(self, step: Step, gesture: Gesture | None, duration_ms: float) -> None:
        """Record a step that was performed on the current screen."""
        t, decision = self._num_steps, Decision(step.action, "")
        self.trace.on_screen(t, step.screen, 0.0)
        self.trace.on_decision(t, decision, 0.0)
        self.trace.on_action(t, gesture, duration_ms)
        self._num_steps += 1
        self.store.add_step(decision, gesture, step.screen, "human")

    def finish(self, status: Status) -> None:
        """The goal is reached, or is impossible."""
        screen = self.store.state.screen
        assert screen is not None, "a recording without a screen has ended"
        self.add_step(Step(screen, Finish(status)), None, 0.0)
        self._end(status, f"{status} after {self._count_steps()}")

    def stop(self) -> None:
        """End without a result: data preparation rejects it."""
        self._end("stopped", f"stopped by a person after {self._count_steps()}")

    def fail(self, error: DeviceError | OSError) -> None:
        """End a recording with an unknown part."""
        self._end("device_error" if isinstance(error, DeviceError) else "crashed", str(error))

    def _end(self, status: EndStatus, message: str) -> None:
        try:
            self.trace.on_end(status, message)
        finally:
            self.store.update(phase="idle", status=status, message=message, stopping=False)

    def _count_steps(self) -> str:
        return "1 step" if self._num_steps == 1 else f"{self._num_steps} steps"
