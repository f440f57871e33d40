"""The person beside a run: asked before a gesture that needs it, able to stop it or to take over."""

from dataclasses import dataclass
from typing import Literal, Protocol

from rich.console import Console
from rich.prompt import Prompt
from rich.text import Text

from uivlm.actions.gesture import Gesture
from uivlm.agents.agent import Decision
from uivlm.episode import Screen, Step

Answer = Literal["yes", "no", "stop"]


@dataclass(frozen=True, slots=True)
class Proposal:
    """What is about to happen. Without a gesture, nothing: the run cannot go on and a person is to help."""

    screen: Screen
    decision: Decision | None
    gesture: Gesture | None
    reasons: tuple[str, ...]  # why a person is asked; none: nobody has to be


class Person(Protocol):
    def answer(self, proposal: Proposal) -> Answer | tuple[Step, ...]:
        """Do it, do not, end the run; or the steps that the person did instead."""

    def stopped(self) -> bool:
        """Has the person asked for the end of the run?"""


class Nobody:
    """No person is there: what needs one is not done."""

    def answer(self, proposal: Proposal) -> Answer | tuple[Step, ...]:
        return "no" if proposal.reasons else "yes"

    def stopped(self) -> bool:
        return False


class AtTerminal:
    """A person who reads the terminal. Anything but a clear yes is a no."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def answer(self, proposal: Proposal) -> Answer | tuple[Step, ...]:
        if not proposal.reasons:
            return "yes"
        said = "help" if proposal.decision is None else proposal.decision.words
        self.console.print(Text(f"next: {said}\n  " + "\n  ".join(proposal.reasons)))
        try:
            given = Prompt.ask(
                "do it? (yes, no, mine: I did it on the phone, stop)",
                console=self.console,
                choices=["yes", "no", "mine", "stop"],
                default="no",
            )
        except EOFError:
            return "no"
        return () if given == "mine" else "yes" if given == "yes" else "stop" if given == "stop" else "no"

    def stopped(self) -> bool:
        return False
