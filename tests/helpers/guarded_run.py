"""Runs under a policy for the tests of safety: an agent, a phone and a supervisor, all scripted."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from uivlm.actions.action import Action, Finish, Point, Tap
from uivlm.actions.decision import Decision
from uivlm.actions.gesture import Gesture
from uivlm.episodes.episode import Element, History, Screen
from uivlm.rollout.loop import Outcome, RunObserver, run_episode
from uivlm.safety.guard import Guard
from uivlm.safety.policy import Policy
from uivlm.safety.redaction import MaskSecrets
from uivlm.safety.secrets import load_secrets
from uivlm.safety.supervisor import ConfirmationRequest, NoSupervisor

TAP, DONE = Tap(Point(0.5, 0.5)), Finish("complete")
FREE = Policy(confirm_apps=(), confirm_labels=())
PAGE = Element(0, 0, 1, 1, "Page", "FrameLayout", clickable=False)


class Phone:
    """Tells what it is told to tell; a gesture may open another app."""

    def __init__(
        self, apps: Sequence[str] = ("app.one",), elements: Sequence[Element] | None = (PAGE,)
    ) -> None:
        self.apps, self.payload = list(apps), None if elements is None else tuple(elements)
        self.gestures: list[Gesture] = []
        self.pixels = np.random.default_rng(3).integers(0, 256, (200, 100, 3), dtype=np.uint8)
        self.black = False
        self.changes = True

    def screen(self) -> Screen:
        pixels = self.pixels.copy()
        if self.changes:
            pixels[20:60] = 40 * len(self.gestures) % 256
        if self.black:
            pixels[12:188] = 0  # the bars stay
        return Screen(pixels)

    def perform(self, gesture: Gesture) -> None:
        self.gestures.append(gesture)
        if len(self.apps) > 1:
            self.apps.pop(0)

    def foreground(self) -> str:
        return self.apps[0]

    def elements(self) -> tuple[Element, ...] | None:
        return self.payload


class Says:
    """An agent with a list of actions; it keeps what it was shown."""

    def __init__(self, *actions: Action, sure: float | None = None, kind: float | None = None) -> None:
        self.actions, self.sure, self.kind = actions, sure, kind
        self.histories: list[History] = []

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        self.histories.append(history)
        action = self.actions[min(len(self.histories), len(self.actions)) - 1]
        return Decision(action, f"words of {action}", self.sure, self.kind)


class ScriptedSupervisor:
    """A person with answers, in order; then always the last one."""

    previews_gestures = False

    def __init__(self, *answers: Any, stops: Callable[[], bool] = lambda: False) -> None:
        self.answers, self.requests, self.stop_requested = list(answers), list[ConfirmationRequest](), stops

    def answer(self, request: ConfirmationRequest) -> Any:
        self.requests.append(request)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def run(
    phone: Phone,
    policy: Policy,
    agent: Says,
    person: Any = None,
    goal: str = "go",
    max_steps: int = 10,
    trace: RunObserver | None = None,
) -> Outcome:
    secrets = load_secrets(policy)
    observers = () if trace is None else (MaskSecrets(trace, secrets),)
    guard = Guard(phone, policy, secrets, person or NoSupervisor())
    return run_episode(agent, guard, goal, max_steps, observers)


def button(text: str, y: float = 0.45, x: float = 0.3, height: float = 0.1, width: float = 0.4) -> Element:
    return Element(y, x, height, width, text, "Button", clickable=True)
