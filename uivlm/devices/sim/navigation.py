"""Navigation of the simulated phone: push, go_back and go_home in, the current entry or dialog out."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from uivlm.devices.sim import labels
from uivlm.devices.sim.world import NavigationEntry, World

Callback = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Dialog:
    """Lines of text over the screen, and buttons with their callbacks. The last button is the filled one."""

    lines: tuple[str, ...]
    buttons: tuple[tuple[str, Callback], ...]
    expected_button: int  # the button a reasonable user presses


def do_nothing() -> None:
    """Callback of a button that only closes its dialog."""


class PhoneState:
    """The world and its back stack. The last entry is shown."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.back_stack = [NavigationEntry("Launcher", item=str(world.start_page))]
        self.dialog: Dialog | None = None
        self._num_apps_opened = 0
        self.back_stack += [replace(entry, fields={}) for entry in world.open_entries]

    @property
    def current(self) -> NavigationEntry:
        return self.back_stack[-1]

    def push(self, app: str, page: str = "", item: str = "", *, focus: str = "", scroll: int = 0) -> None:
        """Open an entry above the current one."""
        self.back_stack.append(NavigationEntry(app, page, item, scroll, focus))

    def replace_current(self, app: str, page: str = "", item: str = "") -> None:
        """Replace the current entry, as tabs and saved forms do."""
        self.back_stack[-1] = NavigationEntry(app, page, item)

    def go_back(self) -> None:
        if self.dialog is not None:
            self.dialog = None
        elif len(self.back_stack) > 1:
            self.back_stack.pop()

    def go_home(self) -> None:
        self.dialog = None
        self.back_stack = [NavigationEntry("Launcher", item="0")]

    def open_app(self, app: str) -> None:
        """Open an app's first page, as its icon does. A notice may interrupt."""
        del self.back_stack[1:]
        self.push(app)
        self._num_apps_opened += 1
        if self.world.notice is not None and self.world.notice[1] == self._num_apps_opened:
            lines, buttons, expected = labels.NOTICES[self.world.notice[0]]
            self.dialog = Dialog(lines, tuple((label, do_nothing) for label in buttons), expected)

    def show_question(self, lines: tuple[str, ...], no: str, yes: str, on_yes: Callback) -> None:
        """Ask for confirmation before an action."""
        self.dialog = Dialog(lines, ((no, do_nothing), (yes, on_yes)), 1)

    def press_dialog_button(self, button: int) -> None:
        """Press a button of the dialog: the dialog closes, then the callback runs."""
        assert self.dialog is not None
        act = self.dialog.buttons[button][1]
        self.dialog = None
        act()
