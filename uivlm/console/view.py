"""What the page shows: one value, replaced whenever anything changes, and the same as JSON."""

import json
import math
import threading
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from uivlm.actions.action import Action
from uivlm.actions.gesture import Gesture
from uivlm.actions.language import NotAnAction
from uivlm.actions.told import told
from uivlm.agents.agent import Decision
from uivlm.episode import Screen
from uivlm.picture import caption
from uivlm.trace_read import By

SMALL = 96  # pixels across a small picture
Phase = Literal["idle", "looking", "thinking", "next", "asking", "acting", "by hand", "recording"]


@dataclass(frozen=True, slots=True)
class Next:
    """What is about to be done. Without a gesture, nothing can be: the person is to help."""

    number: int  # answers name it, so that none is taken for another gesture's
    what: str
    words: str  # as the agent said it
    confidence: float | None  # [0, 1]
    kind_confidence: float | None
    gesture: Gesture | None
    reasons: tuple[str, ...]  # why the person is asked


@dataclass(frozen=True, slots=True)
class Done:
    """A step of the history."""

    what: str
    by: By
    confidence: float | None
    kind_confidence: float | None
    gesture: Gesture | None
    height: int  # pixels of the screen
    width: int
    small: NDArray[np.uint8]  # [h, w, 3] RGB: a picture to recognise the screen by


@dataclass(frozen=True, slots=True)
class View:
    version: int = 0
    phase: Phase = "idle"
    goal: str = ""
    status: str = ""  # how the last one ended
    message: str = ""
    trace: str = ""  # the folder's name
    step_mode: bool = False  # each gesture waits for the person
    stopping: bool = False  # asked for, and not come to yet
    taking: bool = False
    screen: Screen | None = None
    num_screens: int = 0  # so many were shown: the number of this one
    next: Next | None = None
    steps: tuple[Done, ...] = ()


class Board:
    """The view of now. Who reads it twice holds `changed`, who replaces it must; waiting on `changed` is waiting for another."""

    def __init__(self) -> None:
        self.view = View()
        self.changed = threading.Condition()

    def show(self, **changes: Any) -> None:
        with self.changed:
            self.view = replace(self.view, version=self.view.version + 1, **changes)
            self.changed.notify_all()

    def show_screen(self, screen: Screen, **changes: Any) -> None:
        with self.changed:
            if screen is not self.view.screen:
                changes |= {"screen": screen, "num_screens": self.view.num_screens + 1}
            self.show(**changes)

    def show_step(
        self, decision: Decision, gesture: Gesture | None, screen: Screen, by: By, **changes: Any
    ) -> None:
        sure = (decision.confidence, decision.kind_confidence)
        height, width = screen.pixels.shape[:2]
        every = -(-width // SMALL)
        small = screen.pixels[::every, ::every].copy()
        step = Done(what(decision.action), by, *sure, gesture, height, width, small)
        with self.changed:
            self.show(steps=(*self.view.steps, step), **changes)


def what(action: Action | NotAnAction) -> str:
    return f"no action: {action.reason}" if isinstance(action, NotAnAction) else caption(action)


def to_json(view: View) -> str:
    """ASCII, in one line."""
    names = ("version", "phase", "goal", "status", "message", "trace", "step_mode", "stopping", "taking")
    shown = {name: getattr(view, name) for name in names}
    shown |= {"screen": None, "next": None}
    if view.screen is not None:
        height, width = view.screen.pixels.shape[:2]
        shown["screen"] = {"number": view.num_screens, "height": height, "width": width}
    if view.next is not None:
        shown["next"] = _told(view.next, "number", "what", "words", "reasons")
    shown["steps"] = [_told(step, "what", "by", "height", "width") for step in view.steps]
    return json.dumps(shown)


def _told(thing: Next | Done, *names: str) -> dict[str, Any]:
    return {
        **{name: getattr(thing, name) for name in names},
        "confidence": sure(thing.confidence),
        "kind_confidence": sure(thing.kind_confidence),
        "gesture": None if thing.gesture is None else told(thing.gesture),
    }


def sure(confidence: float | None) -> float | None:
    """As JSON has it: no NaN."""
    return confidence if confidence is not None and math.isfinite(confidence) else None
