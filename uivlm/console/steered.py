"""A run that a person steers from the page: it is the run's Person and its Witness.

The run's thread stands still in `answer` while the person is asked, or has the phone; the page's threads call the rest.
"""

import time
from dataclasses import dataclass
from typing import Literal

from uivlm.actions.gesture import Gesture
from uivlm.agents.agent import Decision
from uivlm.console.view import Board, Next, what
from uivlm.devices.device import DeviceError
from uivlm.episode import Screen, Step
from uivlm.loop import Witness
from uivlm.safety.halt import Halt, HaltEnding
from uivlm.safety.person import Answer, Proposal
from uivlm.safety.secret import Secrets, without


class NotNowError(ValueError):
    """The page asks for what cannot be done as things stand; the text says why."""


@dataclass(frozen=True, slots=True)
class Pace:
    shown_s: float = 1.0  # that a gesture is shown before it is done, where nobody has to be asked
    patience_s: float = 300.0  # that an answer is waited for; none is no


class Steered:
    def __init__(self, board: Board, trace: Witness, secrets: Secrets, pace: Pace) -> None:
        self.board, self.trace, self.secrets, self.pace = board, trace, secrets, pace
        self._stop = self._take = False
        self._given: Literal["yes", "no"] | None = None
        self._asked = 0
        self._by_hand: list[Step] = []  # since the person took over
        self._untold = 0  # of these, that the loop has still to tell its witness
        self._decision: Decision | None = None

    # -- what the page asks for ----------------------------------------------------------------------------------

    def confirm(self, number: int, given: Literal["yes", "no"]) -> None:
        """The answer to what is next, if that is still the one of this number."""
        with self.board.changed:
            now = self.board.view.next
            if now is None or now.number != number or self.board.view.phase not in ("next", "asking"):
                raise NotNowError("that gesture has passed: look at what is next")
            self._given = given
            self.board.changed.notify_all()

    def take_over(self) -> None:
        """Before the next gesture."""
        with self.board.changed:
            if self.board.view.phase == "by hand":
                raise NotNowError("you have the phone already")
            self._take = True
            self.board.show(taking=True)

    def hand_back(self) -> None:
        self.board.show(phase="looking")

    def stop(self) -> None:
        """End the run within a step, without another gesture."""
        self._stop = True
        self.board.show()

    def did(self, step: Step, gesture: Gesture, ms: float) -> None:
        """A gesture of the person's own, who has taken over."""
        self._by_hand.append(step)
        self.board.show_step(Decision(step.action, ""), gesture, step.screen, "person")

    def lost(self, error: DeviceError | OSError) -> None:
        """A gesture of the person's own failed. The person has been told, and has the phone; the loop will see for itself."""

    # -- a person ------------------------------------------------------------------------------------------------

    def stopped(self) -> bool:
        return self._stop

    def answer(self, proposal: Proposal) -> Answer | tuple[Step, ...]:
        with self.board.changed:
            self._asked, self._given = self._asked + 1, None
            self.board.show_screen(proposal.screen, next=self._next(proposal))
            given = self._awaited(proposal)
            if given == "yes":
                self.board.show(phase="acting" if proposal.gesture else "looking")
            if given != "mine":
                return given
            self._by_hand, self._take = [], False
            self.board.show(phase="by hand", next=None, taking=False)
            self.board.changed.wait_for(lambda: self._stop or self.board.view.phase != "by hand")
            self._untold = len(self._by_hand)
            return tuple(self._by_hand)

    def _awaited(self, proposal: Proposal) -> Literal["yes", "no", "stop", "mine"]:
        """What the person says; where nobody has to, silence is a yes, and where somebody has to, a no."""
        began = time.monotonic()
        while True:
            if self._stop or self._take or self._given:
                return "stop" if self._stop else "mine" if self._take else self._given or "no"
            waits = bool(proposal.reasons) or self.board.view.step_mode
            limit = self.pace.patience_s if waits else self.pace.shown_s
            left = began + limit - time.monotonic()
            if left <= 0 and not waits:
                return "yes"
            if left <= 0:
                ending: HaltEnding = "denied" if proposal.gesture else "handed over"
                raise Halt(ending, "; ".join((*proposal.reasons, f"nobody answered for {limit:g} seconds")))
            phase = "asking" if waits else "next"
            if self.board.view.phase != phase:
                self.board.show(phase=phase)
            self.board.changed.wait(left)

    def _next(self, proposal: Proposal) -> Next:
        wanted, said = proposal.gesture, self._decision
        if wanted is None or said is None:
            return Next(self._asked, "", "", None, None, wanted, proposal.reasons)
        wanted = without(wanted, self.secrets)
        sure = (said.confidence, said.kind_confidence)
        return Next(self._asked, what(said.action), said.words, *sure, wanted, proposal.reasons)

    # -- a witness: behind the guard, so without secrets ---------------------------------------------------------

    def saw(self, t: int, screen: Screen, ms: float) -> None:
        self.trace.saw(t, screen, ms)
        if not self._untold:
            self.board.show_screen(screen, phase="thinking", next=None)

    def decided(self, t: int, decision: Decision, ms: float) -> None:
        self.trace.decided(t, decision, ms)
        self._decision = decision

    def performed(self, t: int, done: Gesture | None, ms: float, by_hand: bool = False) -> None:
        self.trace.performed(t, done, ms, by_hand)
        if by_hand:  # it was shown when it was done
            self._untold -= 1
            return
        screen = self.board.view.screen
        assert screen is not None, "nothing is done before a screen was seen"
        assert self._decision is not None, "nor before it was decided"
        self.board.show_step(self._decision, done, screen, "agent", phase="looking", next=None)

    def ended(self, status: str, message: str) -> None:
        self.trace.ended(status, message)
