"""The simulated phone, a `Device` drawn with Pillow: gestures in, screens out; equal for equal seeds."""

from collections.abc import Callable

from uivlm.actions.action import Point, Swipe, dual_point
from uivlm.actions.gesture import Gesture, PressKey, Touch, TypeText
from uivlm.devices.sim.apps.browser import browser
from uivlm.devices.sim.apps.calendar import calendar
from uivlm.devices.sim.apps.clock import clock
from uivlm.devices.sim.apps.contacts import contacts
from uivlm.devices.sim.apps.launcher import drawer, launcher, quick
from uivlm.devices.sim.apps.messages import messages
from uivlm.devices.sim.apps.notes import notes
from uivlm.devices.sim.apps.plain import plain
from uivlm.devices.sim.apps.settings import settings
from uivlm.devices.sim.apps.shop import shop
from uivlm.devices.sim.canvas import ROWS, Box
from uivlm.devices.sim.navigation import PhoneState, do_nothing
from uivlm.devices.sim.view import AppView
from uivlm.devices.sim.world import World, make_world
from uivlm.episodes.episode import Screen

APPS = {
    "Launcher": launcher,
    "Drawer": drawer,
    "Quick": quick,
    "Settings": settings,
    "Clock": clock,
    "Contacts": contacts,
    "Messages": messages,
    "Notes": notes,
    "Shop": shop,
    "Browser": browser,
    "Calendar": calendar,
}
MAX_TYPED_CHARS = 10_000  # of one field


class SimPhone:
    """A phone with the world of a layout number, or with the passed world."""

    def __init__(self, layout: int = 0, world: World | None = None) -> None:
        self.world = world if world is not None else make_world(layout)
        self.state = PhoneState(self.world)
        self.width, self.height = self.world.look.width, self.world.look.height
        self._view: AppView | None = None
        self._screen: Screen | None = None

    def screen(self) -> Screen:
        if self._screen is None:
            self._screen = self.view.canvas.screen()
        return self._screen

    @property
    def view(self) -> AppView:
        """The current drawing with its touch targets."""
        if self._view is None:
            self._view = self._draw()
        return self._view

    @property
    def app(self) -> str:
        """The foreground app. The drawer is part of the launcher."""
        app = self.state.current.app
        return "Launcher" if app == "Drawer" else app

    @property
    def apps(self) -> tuple[str, ...]:
        """The installed apps."""
        return tuple(self.world.drawer)

    def launch(self, app: str) -> None:
        """Start an app as its icon does."""
        self.state.open_app(app)
        self._view = self._screen = None

    def interrupt(self, change: Callable[[PhoneState], None]) -> None:
        """Change what is shown without a gesture, as a call or a notification does."""
        change(self.state)
        self._view = self._screen = None

    def find_target(self, name: str) -> Box | None:
        """Return the box of the touch target with this name; None if it is not on the screen."""
        return next((target.box for target in self.view.targets if target.name == name), None)

    @property
    def touch_boxes(self) -> tuple[Box, ...]:
        """What reacts to a touch; later boxes are on top."""
        return tuple(target.box for target in self.view.targets)

    def perform(self, gesture: Gesture) -> None:
        match gesture:
            case Touch(path):
                self._touch(path)
            case TypeText(text):
                self._type(text)
            case PressKey("back"):
                self.state.go_back()
            case PressKey("home"):
                self.state.go_home()
            case PressKey("enter"):
                if self.state.dialog is None and self.state.current.focus and self.view.on_enter is not None:
                    self.view.on_enter()
        self._view = self._screen = None

    # -- gestures -------------------------------------------------------------------------------------------

    def _point(self, pixel: tuple[int, int]) -> Point:
        x, y = pixel
        return Point(
            (min(max(y, 0), self.height - 1) + 0.5) / self.height,
            (min(max(x, 0), self.width - 1) + 0.5) / self.width,
        )

    def _touch(self, path: tuple[tuple[int, int], ...]) -> None:
        if not path:
            raise ValueError("touch: got no points; expected one for a tap, two for a swipe")
        start, end = self._point(path[0]), self._point(path[-1])
        match dual_point(start, end):
            case Swipe():
                self._swipe(end.y - start.y, end.x - start.x)
            case _:
                for target in reversed(self.view.targets):  # what was drawn last is on top
                    if target.box.contains(start.y, start.x):
                        target.on_touch()
                        return

    def _swipe(self, dy: float, dx: float) -> None:
        """Scroll by the rows the finger moved. If the list cannot scroll, run the view's swipe action."""
        view, entry = self.view, self.state.current
        if self.state.dialog is not None:
            return
        if abs(dx) > abs(dy):
            view.swipe_actions.get("left" if dx < 0 else "right", do_nothing)()
            return
        scrolled = min(max(0, view.scroll_row - round(dy * ROWS)), view.max_scroll_row)
        if scrolled != view.scroll_row:
            entry.scroll = scrolled
        else:
            view.swipe_actions.get("up" if dy < 0 else "down", do_nothing)()

    def _type(self, text: str) -> None:
        entry = self.state.current
        if self.state.dialog is None and entry.focus:
            entry.fields[entry.focus] = (entry.fields.get(entry.focus, "") + text)[:MAX_TYPED_CHARS]

    # -- drawing --------------------------------------------------------------------------------------------

    def _draw(self) -> AppView:
        view = AppView(self.state)
        APPS.get(self.state.current.app, plain)(self.state, view)
        dialog = self.state.dialog
        if dialog is not None:
            view.targets.clear()
            boxes = view.canvas.dialog(6, dialog.lines, tuple(label for label, _ in dialog.buttons))
            for i, box in enumerate(boxes):
                view.add_target(f"dialog:{i}", box, lambda i=i: self.state.press_dialog_button(i))  # type: ignore[misc]
        view.canvas.status_bar(self.world.clock)
        back, home = view.canvas.nav_bar()
        view.add_target("nav:back", back, self.state.go_back)
        view.add_target("nav:home", home, self.state.go_home)
        return view
