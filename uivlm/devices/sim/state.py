"""Where the user of the simulated phone is: in moves (go, back, home), out the current place or dialog."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from uivlm.devices.sim import words
from uivlm.devices.sim.world import Place, World

Act = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Dialog:
    """Lines of text over the screen, and buttons with what each does. Its last button is the filled one."""

    lines: tuple[str, ...]
    buttons: tuple[tuple[str, Act], ...]
    expected: int  # the button a reasonable user presses


def nothing() -> None:
    """The button that only closes its dialog."""


class State:
    """The world, and the places visited in it: the last one is shown, `back` leaves it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stack = [Place("Launcher", item=str(world.start_page))]
        self.dialog: Dialog | None = None
        self._opened = 0  # apps opened so far
        self.stack += [replace(place, fields={}) for place in world.inside]

    @property
    def place(self) -> Place:
        return self.stack[-1]

    def go(self, app: str, page: str = "", item: str = "", *, focus: str = "", scroll: int = 0) -> None:
        """One place deeper."""
        self.stack.append(Place(app, page, item, scroll, focus))

    def swap(self, app: str, page: str = "", item: str = "") -> None:
        """Another place instead of this one: tabs, and pages that follow a finished form."""
        self.stack[-1] = Place(app, page, item)

    def back(self) -> None:
        if self.dialog is not None:
            self.dialog = None
        elif len(self.stack) > 1:
            self.stack.pop()

    def home(self) -> None:
        self.dialog = None
        self.stack = [Place("Launcher", item="0")]

    def open_app(self, app: str) -> None:
        """The app's first page, as its icon opens it; now and then a notice comes with it."""
        del self.stack[1:]
        self.go(app)
        self._opened += 1
        if self.world.notice is not None and self.world.notice[1] == self._opened:
            lines, buttons, expected = words.NOTICES[self.world.notice[0]]
            self.dialog = Dialog(lines, tuple((label, nothing) for label in buttons), expected)

    def ask(self, lines: tuple[str, ...], no: str, yes: str, act: Act) -> None:
        """A question before something is done."""
        self.dialog = Dialog(lines, ((no, nothing), (yes, act)), 1)

    def press(self, button: int) -> None:
        """A button of the dialog: the dialog closes, then the button acts."""
        assert self.dialog is not None
        act = self.dialog.buttons[button][1]
        self.dialog = None
        act()
