"""What the page shows: one immutable value, replaced at each change, and its JSON."""

import json
import threading
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from uivlm.actions.action import Action, InvalidAction
from uivlm.actions.decision import Decision, finite_or_none
from uivlm.actions.gesture import Gesture
from uivlm.actions.schema import action_to_json
from uivlm.episodes.episode import Screen
from uivlm.reports.draw import caption
from uivlm.rollout.trace_schema import Actor

THUMBNAIL_WIDTH = 96  # pixels
Phase = Literal[
    "idle", "looking", "thinking", "preview", "confirming", "acting", "human_control", "recording"
]


@dataclass(frozen=True, slots=True)
class PendingAction:
    """The next gesture. Without one, the run cannot continue and needs help."""

    request_id: int  # an answer names it, so that it cannot confirm another gesture
    description: str
    text: str  # raw model output
    confidence: float | None  # [0, 1]
    action_type_confidence: float | None
    gesture: Gesture | None
    reasons: tuple[str, ...]  # why a person must confirm
    always: str = ""  # what can be allowed for good; empty: nothing


@dataclass(frozen=True, slots=True)
class CompletedStep:
    """A step of the history."""

    description: str
    actor: Actor
    confidence: float | None
    action_type_confidence: float | None
    gesture: Gesture | None
    height: int  # pixels of the screen
    width: int
    thumbnail: NDArray[np.uint8]  # [h, w, 3] RGB


@dataclass(frozen=True, slots=True)
class ConsoleState:
    version: int = 0
    phase: Phase = "idle"
    goal: str = ""
    status: str = ""  # how the last run ended
    message: str = ""
    trace: str = ""  # folder name
    step_mode: bool = False  # each gesture needs confirmation
    stopping: bool = False  # requested, not yet done
    takeover_requested: bool = False
    screen: Screen | None = None
    screen_id: int = 0  # number of screens shown so far
    pending: PendingAction | None = None
    steps: tuple[CompletedStep, ...] = ()


class StateStore:
    """Holds the current state.

    Hold `changed` to replace it or to read it twice; wait on `changed` for the next one.
    """

    def __init__(self) -> None:
        self.state = ConsoleState()
        self.changed = threading.Condition()

    def update(self, **changes: Any) -> None:
        with self.changed:
            self.state = replace(self.state, version=self.state.version + 1, **changes)
            self.changed.notify_all()

    def update_screen(self, screen: Screen, **changes: Any) -> None:
        with self.changed:
            if screen is not self.state.screen:
                changes |= {"screen": screen, "screen_id": self.state.screen_id + 1}
            self.update(**changes)

    def add_step(
        self, decision: Decision, gesture: Gesture | None, screen: Screen, actor: Actor, **changes: Any
    ) -> None:
        height, width = screen.pixels.shape[:2]
        stride = -(-width // THUMBNAIL_WIDTH)
        step = CompletedStep(
            description=describe_action(decision.action),
            actor=actor,
            confidence=decision.confidence,
            action_type_confidence=decision.action_type_confidence,
            gesture=gesture,
            height=height,
            width=width,
            thumbnail=screen.pixels[::stride, ::stride].copy(),
        )
        with self.changed:
            self.update(steps=(*self.state.steps, step), **changes)


def describe_action(action: Action | InvalidAction) -> str:
    return f"no action: {action.reason}" if isinstance(action, InvalidAction) else caption(action)


def state_to_json(state: ConsoleState) -> str:
    """ASCII, on one line."""
    payload: dict[str, Any] = {
        "version": state.version,
        "phase": state.phase,
        "goal": state.goal,
        "status": state.status,
        "message": state.message,
        "trace": state.trace,
        "step_mode": state.step_mode,
        "stopping": state.stopping,
        "takeover_requested": state.takeover_requested,
        "screen": None,
        "pending": None,
        "steps": [
            {**_action_to_json(step), "actor": step.actor, "height": step.height, "width": step.width}
            for step in state.steps
        ],
    }
    if state.screen is not None:
        height, width = state.screen.pixels.shape[:2]
        payload["screen"] = {"id": state.screen_id, "height": height, "width": width}
    if (pending := state.pending) is not None:
        payload["pending"] = {
            **_action_to_json(pending),
            "request_id": pending.request_id,
            "text": pending.text,
            "reasons": pending.reasons,
            "always": pending.always,
        }
    return json.dumps(payload)


def _action_to_json(step: PendingAction | CompletedStep) -> dict[str, Any]:
    return {
        "description": step.description,
        "confidence": finite_or_none(step.confidence),
        "action_type_confidence": finite_or_none(step.action_type_confidence),
        "gesture": None if step.gesture is None else action_to_json(step.gesture),
    }
