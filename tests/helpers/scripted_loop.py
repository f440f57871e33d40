"""A phone and an agent for the loop: screens and words as scripted."""

import numpy as np

from uivlm.actions.action import InvalidAction, Point, Swipe, Tap
from uivlm.actions.decision import Decision
from uivlm.devices.device import DeviceError
from uivlm.episodes.episode import Screen

TAP = Tap(Point(0.5, 0.25))
SWIPE = Swipe(Point(0.9, 0.5), Point(0.1, 0.5))
GARBLED = InvalidAction("tap somewhere", "no coordinates")


class Scripted:
    """Says the listed actions in order; an exception in the list is raised."""

    def __init__(self, *script: object) -> None:
        self.script = list(script)
        self.histories: list[object] = []
        self.num_resets = 0

    def reset(self) -> None:
        self.num_resets += 1

    def act(self, history) -> Decision:
        self.histories.append(history)
        now = self.script[len(self.histories) - 1]
        if isinstance(now, BaseException):
            raise now
        return Decision(now, f"words {len(self.histories)}", 0.5)


class Phone:
    """Each screen is a shade of its own; dies at a screen or a gesture when told to."""

    width, height = 80, 100

    def __init__(self, screens: int = 10**6, gestures: int = 10**6) -> None:
        self.shades: list[Screen] = []
        self.done: list[object] = []
        self.screens, self.gestures = screens, gestures

    def screen(self) -> Screen:
        if len(self.shades) == self.screens:
            raise DeviceError("the phone is gone")
        self.shades.append(Screen(np.full((100, 80, 3), len(self.shades), np.uint8)))
        return self.shades[-1]

    def perform(self, gesture) -> None:
        if len(self.done) == self.gestures:
            raise DeviceError("the phone is gone")
        self.done.append(gesture)
