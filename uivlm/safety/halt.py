"""How a run is ended or interrupted from outside of the agent."""

from typing import Literal

from uivlm.episode import Step

HaltEnding = Literal["stopped", "denied", "stuck", "time", "handed over"]


class Halt(Exception):  # noqa: N818 - it ends a run, and is no error
    """The run ends here, before any further gesture. The text says why."""

    def __init__(self, ending: HaltEnding, message: str) -> None:
        super().__init__(message)
        self.ending: HaltEnding = ending


class TakenOver(Exception):  # noqa: N818 - no error either
    """Instead of the gesture that was proposed, a person did these steps; none that we saw, or the phone moved on: look anew."""

    def __init__(self, steps: tuple[Step, ...] = ()) -> None:
        super().__init__(f"a person did {len(steps)} steps")
        self.steps = steps
