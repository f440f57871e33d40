"""The guard between a loop and a phone: a device and a policy in, a device that keeps the policy out.

It is also the loop's witness, for it must know how sure the agent was. No gesture passes it that the policy does not
allow; nothing is done after an end.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from uivlm.actions.gesture import Gesture, Keys, Touch
from uivlm.agents.agent import Decision
from uivlm.devices.device import Device, Telling
from uivlm.episode import Screen
from uivlm.loop import Witness
from uivlm.safety.deed import committing
from uivlm.safety.halt import Halt, TakenOver
from uivlm.safety.person import Person, Proposal
from uivlm.safety.policy import Policy
from uivlm.safety.secret import SecretError, open_secrets, without
from uivlm.safety.veil import UncoveredError, Veil

EDGE = 0.06  # top and bottom share of a screen that a secure window leaves: the bars
BLACK = 4  # grey levels: nothing brighter is on a black screen
COARSE = 20  # places across a screen that count as different ones


class Guard:
    """A Device and a Witness. Raises Halt where the run must end, TakenOver where a person did something else."""

    def __init__(
        self,
        device: Device,
        policy: Policy,
        person: Person,
        witness: Witness,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.telling = _telling(device, policy)
        self.policy, self.person, self.witness = policy, person, witness
        self.secrets = open_secrets(policy)
        self.veil = Veil(device, self.secrets)
        self._clock, self._began = clock, clock()
        self._seen: Screen | None = None
        self._decision: Decision | None = None
        self._done: Counter[tuple[str, str]] = Counter()

    # -- a device -------------------------------------------------------------------------------------------

    def screen(self) -> Screen:
        self._check()
        while is_black(screen := self._look()):
            self._hand_over(screen, "the screen is black: a secure page, or the phone is asleep")
            self._check()
        self._seen = screen
        return screen

    def perform(self, gesture: Gesture) -> None:
        assert self._seen is not None, "a gesture before any screen"
        self._check()
        state = (_afar(self._seen), _coarse(gesture, self._seen))
        if self._done[state] >= self.policy.max_repeats:
            raise Halt("stuck", f"the same gesture was done {self._done[state]} times on the same screen")
        reasons = (*self._place("before"), *self._doubts(), *self._deeds(self._seen, gesture))
        self._ask(Proposal(self._seen, self._decision, gesture, reasons))
        self._check()
        self._place("before")  # the answer may have taken its time
        if reasons and _afar(self._look()) != state[0]:
            raise TakenOver  # what was confirmed is not there any more: the agent looks anew
        self._done[state] += 1
        try:
            self.veil.perform(gesture)
        except SecretError as error:
            raise Halt("denied", str(error)) from None

    def _look(self) -> Screen:
        try:
            return self.veil.screen()
        except UncoveredError as error:
            raise Halt("handed over", str(error)) from None

    def _check(self) -> None:
        """Has the run to end?"""
        if self.person.stopped():
            raise Halt("stopped", "stopped by a person")
        if self.policy.stop_file and Path(self.policy.stop_file).exists():
            raise Halt("stopped", f"stopped by the file {self.policy.stop_file}")
        if self._clock() - self._began > self.policy.max_seconds:
            raise Halt("time", f"not finished after {self.policy.max_seconds:g} seconds, the policy's limit")

    def _place(self, when: str) -> tuple[str, ...]:
        """Why a person has to be asked in the app in front. Raises Halt where the agent may not be."""
        allow, deny, ask_in = self.policy.allow, self.policy.deny, self.policy.ask_in
        if not (allow or deny or ask_in) or self.telling is None:
            return ()
        app = self.telling.foreground()
        if not app and (allow or deny):
            raise Halt(
                "denied", f"which app is in front {when} the gesture cannot be told, and the policy needs it"
            )
        if _named(app, deny) or (allow and not _named(app, allow)):
            raise Halt("denied", f"{app} was in front {when} the gesture: the policy does not allow it")
        if not app:
            return ("which app is in front cannot be told",)
        return (f"each gesture in {app} is to be confirmed",) if _named(app, ask_in) else ()

    def _doubts(self) -> tuple[str, ...]:
        if self._decision is None:
            return ()
        sure = self._decision.kind_confidence
        sure = self._decision.confidence if sure is None else sure
        if sure is None or sure >= self.policy.min_confidence:
            return ()
        return (f"the agent is not sure: {sure:.2f}, below {self.policy.min_confidence:.2f}",)

    def _deeds(self, screen: Screen, gesture: Gesture) -> tuple[str, ...]:
        if not self.policy.commits or self.telling is None or isinstance(gesture, Keys):
            return ()
        elements = self.telling.elements()
        if elements is None:
            return ("what is touched cannot be told",)
        return tuple(
            f"it may commit: {label!r}"
            for label in committing(gesture, screen, elements, self.policy.commits)
        )

    def _ask(self, proposal: Proposal) -> None:
        match self.person.answer(proposal):
            case "yes":
                return
            case "no":
                why = "; ".join(proposal.reasons) or "by a person"
                raise Halt("denied", f"not confirmed: {why}")
            case "stop":
                raise Halt("stopped", "stopped by a person")
            case steps:
                raise TakenOver(steps)

    def _hand_over(self, screen: Screen, why: str) -> None:
        """A person may help: `yes` looks again."""
        match self.person.answer(Proposal(screen, None, None, (why,))):
            case "yes":
                return
            case "stop":
                raise Halt("stopped", "stopped by a person")
            case "no":
                raise Halt("handed over", f"{why}: a person has to go on")
            case steps:
                raise TakenOver(steps)

    # -- a witness ------------------------------------------------------------------------------------------

    def saw(self, t: int, screen: Screen, ms: float) -> None:
        self.witness.saw(t, screen, ms)

    def decided(self, t: int, decision: Decision, ms: float) -> None:
        self._decision = decision
        action, words = without(decision.action, self.secrets), self.secrets.hidden(decision.words)
        self.witness.decided(t, replace(decision, action=action, words=words), ms)

    def performed(self, t: int, done: Gesture | None, ms: float, by_hand: bool = False) -> None:
        self._decision = None
        self.witness.performed(t, None if done is None else without(done, self.secrets), ms, by_hand)
        if done is not None and not by_hand:
            self._place("after")

    def ended(self, status: str, message: str) -> None:
        self.witness.ended(status, self.secrets.hidden(message))


def is_black(screen: Screen) -> bool:
    """Is nothing on the screen between its bars? So Android shows a secure window, and a phone that sleeps."""
    height = screen.pixels.shape[0]
    return int(screen.pixels[int(EDGE * height) : max(1, int((1 - EDGE) * height))].max(initial=0)) < BLACK


def _telling(device: Device, policy: Policy) -> Telling | None:
    if isinstance(device, Telling):
        return device
    if policy.allow or policy.deny or policy.ask_in or policy.commits or policy.redact or policy.secrets:
        raise ValueError(
            f"{type(device).__name__} cannot say what is on its screen, so rules on apps, commits and secrets cannot be kept"
        )
    return None


def _named(app: str, packages: tuple[str, ...]) -> bool:
    return any(fnmatchcase(app, package) for package in packages)


def _afar(screen: Screen) -> str:
    """A screen as it looks from afar, without its bars: a caret or a clock makes no other one."""
    height = screen.pixels.shape[0]
    far = screen.pixels[int(EDGE * height) :: 8, ::8] >> 5
    return hashlib.sha256(np.ascontiguousarray(far).tobytes() + str(screen.pixels.shape).encode()).hexdigest()


def _coarse(gesture: Gesture, screen: Screen) -> str:
    """Gestures that differ by a finger's jitter are the same."""
    if not isinstance(gesture, Touch):
        return repr(gesture)
    height, width = screen.pixels.shape[:2]
    return str([(x * COARSE // width, y * COARSE // height) for x, y in gesture.path])
