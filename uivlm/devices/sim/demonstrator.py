"""Demonstrate a goal on the simulated phone: targets in, jittered actions out, as a person would perform
them.

It keeps each screen with the action that followed. Its routines are the same in all apps.
"""

from random import Random

from uivlm.actions.action import Action, Key, Press, Type
from uivlm.actions.gesture import to_gesture
from uivlm.devices.sim import touch_jitter
from uivlm.devices.sim.phone import SimPhone
from uivlm.devices.sim.tasks import switches_with
from uivlm.devices.sim.touch_jitter import Direction
from uivlm.episodes.episode import Step


class TargetNotFoundError(Exception):
    """The target does not exist on this phone."""


class Demonstrator:
    """Performs actions on a phone and records the steps."""

    def __init__(self, phone: SimPhone, rng: Random) -> None:
        self.phone, self.rng = phone, rng
        self.steps: list[Step] = []

    def perform(self, action: Action) -> None:
        screen = self.phone.screen()
        self.steps.append(Step(screen, action))
        gesture = to_gesture(action, self.phone.height, self.phone.width)
        if gesture is not None:
            self.phone.perform(gesture)
        self._answer_dialog()

    def _answer_dialog(self) -> None:
        """Answer a dialog, if any, before anything else."""
        dialog = self.phone.state.dialog
        if dialog is not None:
            self.tap(f"dialog:{dialog.expected_button}")

    def is_visible(self, name: str) -> bool:
        return self.phone.find_target(name) is not None

    def has_text(self, text: str) -> bool:
        """Does any line on the screen contain this text?"""
        return any(text in element.text for element in self.phone.screen().elements)

    def tap(self, name: str) -> None:
        box = self.phone.find_target(name)
        if box is None:
            raise AssertionError(f"{name!r} is not on the screen")
        point = touch_jitter.aim_point(self.phone.screen().elements, box)
        self.perform(touch_jitter.jittered_tap(self.rng, point))

    def swipe(self, direction: Direction) -> None:
        self.perform(touch_jitter.jittered_swipe(self.rng, touch_jitter.SWIPES[direction]))

    def press(self, key: Key) -> None:
        self.perform(Press(key))

    # -- routines -------------------------------------------------------------------------------------------

    def open_app(self, app: str) -> None:
        """Open an app by its tile on the current page, or else from the drawer."""
        self.go_home()
        if not self.is_visible(f"app:{app}"):
            self.swipe("up")
        self.scroll_and_tap(f"app:{app}")

    def go_home(self) -> None:
        if self.phone.state.current.app != "Launcher":
            self.press("home")

    def scroll_to(self, name: str) -> None:
        """Scroll down until the target is visible, or the list ends."""
        while not self.is_visible(name):
            if self.phone.view.scroll_row >= self.phone.view.max_scroll_row:
                raise TargetNotFoundError(name)
            self.swipe("up")

    def scroll_and_tap(self, name: str) -> None:
        self.scroll_to(name)
        self.tap(name)

    def scroll_back_to_text(self, text: str) -> None:
        """Scroll a conversation towards its start until the text is visible."""
        while not self.has_text(text):
            if self.phone.view.scroll_row == 0:
                raise TargetNotFoundError(text)
            self.swipe("down")

    def fill(self, name: str, text: str) -> None:
        if self.phone.state.current.focus != name:
            self.tap(f"field:{name}")
        self.perform(Type(text))

    def set_switch(self, label: str, on: str) -> None:
        """Set the switch of a list to `on` or `off` if it is not already."""
        self.scroll_to(f"row:{label}")
        switches = {**self.phone.world.quick, **self.phone.world.alarms}
        if self.phone.state.current.app == "Settings":
            switches = switches_with(self.phone.world, label)
        if switches[label] != (on == "on"):
            self.tap(f"row:{label}")
