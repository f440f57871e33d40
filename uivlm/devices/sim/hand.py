"""A hand on the simulated phone: in what to do and to what, out true actions with the jitter of a finger.

It keeps every screen it saw with the action it did there. Its routines are the same in every app.
"""

from random import Random

from uivlm.actions.action import Action, Key, Press, Type
from uivlm.actions.gesture import gesture
from uivlm.devices.sim import finger
from uivlm.devices.sim.finger import Direction
from uivlm.devices.sim.phone import Phone
from uivlm.devices.sim.tasks import category_of
from uivlm.episode import Step


class MissingError(Exception):
    """What was looked for is not on this phone."""


class Hand:
    """Does one thing at a time, and keeps what was seen and done."""

    def __init__(self, phone: Phone, rng: Random) -> None:
        self.phone, self.rng = phone, rng
        self.steps: list[Step] = []

    def do(self, action: Action) -> None:
        screen = self.phone.screen()
        self.steps.append(Step(screen, action))
        done = gesture(action, self.phone.height, self.phone.width)
        if done is not None:
            self.phone.perform(done)
        self._answer()

    def _answer(self) -> None:
        """A dialog is answered before anything else."""
        dialog = self.phone.state.dialog
        if dialog is not None:
            self.tap(f"dialog:{dialog.expected}")

    def sees(self, name: str) -> bool:
        return self.phone.find(name) is not None

    def reads(self, words: str) -> bool:
        """Do these words stand in a line on the screen?"""
        return any(words in element.text for element in self.phone.screen().elements)

    def tap(self, name: str) -> None:
        box = self.phone.find(name)
        if box is None:
            raise AssertionError(f"{name!r} is not on the screen")
        self.do(finger.tap(self.rng, finger.aim(self.phone.screen().elements, box)))

    def swipe(self, direction: Direction) -> None:
        self.do(finger.swipe(self.rng, finger.WAYS[direction]))

    def press(self, key: Key) -> None:
        self.do(Press(key))

    # -- routines -------------------------------------------------------------------------------------------

    def open(self, app: str) -> None:
        """An app by its tile on the page on show, else by the drawer."""
        self.home()
        if not self.sees(f"app:{app}"):
            self.swipe("up")
        self.choose(f"app:{app}")

    def home(self) -> None:
        if self.phone.state.place.app != "Launcher":
            self.press("home")

    def seek(self, name: str) -> None:
        """Scroll on until it is on the screen, to the end of the list at most."""
        while not self.sees(name):
            if self.phone.view.top >= self.phone.view.limit:
                raise MissingError(name)
            self.swipe("up")

    def choose(self, name: str) -> None:
        self.seek(name)
        self.tap(name)

    def seek_back(self, words: str) -> None:
        """Scroll a conversation towards its start until the words can be read."""
        while not self.reads(words):
            if self.phone.view.top == 0:
                raise MissingError(words)
            self.swipe("down")

    def fill(self, name: str, text: str) -> None:
        if self.phone.state.place.focus != name:
            self.tap(f"field:{name}")
        self.do(Type(text))

    def put(self, label: str, on: str) -> None:
        """Set the switch of a list to `on` or `off`, if it is not yet."""
        self.seek(f"row:{label}")
        now = {**self.phone.world.quick, **self.phone.world.alarms}
        if self.phone.state.place.app == "Settings":
            now = category_of(self.phone.world, label)
        if now[label] != (on == "on"):
            self.tap(f"row:{label}")
