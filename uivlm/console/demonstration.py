"""A person shows how it is done: gestures and a finish in, a trace out that data preparation reads."""

from uivlm.actions.action import Finish, Status
from uivlm.actions.gesture import Gesture
from uivlm.agents.agent import Decision
from uivlm.console.view import Board
from uivlm.devices.device import DeviceError
from uivlm.episode import Step
from uivlm.loop import Witness


class Demonstration:
    def __init__(self, board: Board, trace: Witness) -> None:
        self.board, self.trace = board, trace
        self._num_steps = 0

    def did(self, step: Step, gesture: Gesture | None, ms: float) -> None:
        """A step that was done on the screen on show."""
        t, decision = self._num_steps, Decision(step.action, "by hand")
        self.trace.saw(t, step.screen, 0.0)
        self.trace.decided(t, decision, 0.0)
        self.trace.performed(t, gesture, ms)
        self._num_steps += 1
        self.board.show_step(decision, gesture, step.screen, "person")

    def finish(self, status: Status) -> None:
        """The goal is reached, or cannot be."""
        screen = self.board.view.screen
        assert screen is not None, "one that begins without a screen has ended"
        self.did(Step(screen, Finish(status)), None, 0.0)
        self._end(status, f"{status} after {self._counted()}")

    def stop(self) -> None:
        """It is none then: data preparation refuses it."""
        self._end("stopped", f"stopped by a person after {self._counted()}")

    def lost(self, error: DeviceError | OSError) -> None:
        """A demonstration of which a part is not known is none."""
        self._end("device error" if isinstance(error, DeviceError) else "crashed", str(error))

    def _end(self, status: str, message: str) -> None:
        try:
            self.trace.ended(status, message)
        finally:
            self.board.show(phase="idle", status=status, message=message, stopping=False)

    def _counted(self) -> str:
        return "1 step" if self._num_steps == 1 else f"{self._num_steps} steps"
