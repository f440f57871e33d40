"""The person who supervises a run: confirms gestures, stops the run, or takes over."""

from dataclasses import dataclass
from typing import Literal, Protocol

from rich.console import Console
from rich.prompt import Prompt
from rich.text import Text

from uivlm.actions.decision import Decision
from uivlm.actions.gesture import Gesture
from uivlm.episodes.episode import Screen, Step
from uivlm.safety.always import Exemption
from uivlm.terminal import printable

SupervisorAnswer = Literal["yes", "no", "stop", "always"]


@dataclass(frozen=True, slots=True)
class ConfirmationRequest:
    """The next gesture, with secrets masked. Without a gesture, the run cannot continue and needs help."""

    screen: Screen
    decision: Decision | None
    gesture: Gesture | None
    reasons: tuple[str, ...]  # why a person must confirm; empty: no confirmation is needed
    exemptions: tuple[Exemption, ...] = ()  # what "always" would keep in the policy file; empty: not offered

    def describe_exemptions(self) -> str:
        return " and ".join(map(str, self.exemptions))


class Supervisor(Protocol):
    @property
    def previews_gestures(self) -> bool:
        """Every gesture waits, even one that needs no confirmation."""

    def answer(self, request: ConfirmationRequest) -> SupervisorAnswer | tuple[Step, ...]:
        """Perform the gesture, deny it, stop the run; or the steps that the person performed instead.

        "always" performs it and is not asked for again; only if the request has exemptions.
        """

    def stop_requested(self) -> bool:
        """The person wants the run to end."""


class NoSupervisor:
    """Denies every gesture that needs confirmation."""

    previews_gestures = False

    def answer(self, request: ConfirmationRequest) -> SupervisorAnswer | tuple[Step, ...]:
        return "no" if request.reasons else "yes"

    def stop_requested(self) -> bool:
        return False


class TerminalSupervisor:
    """A person at the terminal. Only a clear yes confirms."""

    previews_gestures = False

    def __init__(self, console: Console) -> None:
        self.console = console

    def answer(self, request: ConfirmationRequest) -> SupervisorAnswer | tuple[Step, ...]:
        if not request.reasons:
            return "yes"
        title = "needs help" if request.decision is None else request.decision.text
        lines = map(printable, (f"next: {title}", *request.reasons))  # typed text may hold line ends
        self.console.print(Text("\n  ".join(lines)))
        choices: dict[str, SupervisorAnswer | tuple[Step, ...]]
        choices = {"yes": "yes", "no": "no", "mine": (), "stop": "stop"}
        if request.exemptions:
            choices["always"] = "always"
            exemptions = printable(request.describe_exemptions())
            self.console.print(Text(f"  always: do not ask for {exemptions} again"))
        try:
            choice = Prompt.ask(
                "perform it? (yes, no, mine: I did it on the phone, stop)",
                console=self.console,
                choices=list(choices),
                default="no",
            )
        except EOFError:
            return "no"
        return choices[choice]

    def stop_requested(self) -> bool:
        return False
