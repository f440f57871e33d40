"""The simulated phone: a `Device` drawn with Pillow. In gestures, out screens; the same ones for the same seed."""

from uivlm.actions.action import Point, Swipe, dual_point
from uivlm.actions.gesture import Button, Gesture, Keys, Touch
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
from uivlm.devices.sim.state import State, nothing
from uivlm.devices.sim.view import View
from uivlm.devices.sim.world import World, make_world
from uivlm.episode import Screen

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
MOST_TYPED = 10_000  # characters a field keeps


class Phone:
    """A phone with the world of a layout number, or with the world it is given."""

    def __init__(self, layout: int = 0, world: World | None = None) -> None:
        self.world = world if world is not None else make_world(layout)
        self.state = State(self.world)
        self.width, self.height = self.world.look.width, self.world.look.height
        self._view: View | None = None
        self._screen: Screen | None = None

    def screen(self) -> Screen:
        if self._screen is None:
            self._screen = self.view.canvas.screen()
        return self._screen

    @property
    def view(self) -> View:
        """The drawing on show, with the places to touch."""
        if self._view is None:
            self._view = self._drawn()
        return self._view

    @property
    def app(self) -> str:
        """The app in front; the drawer is a page of the launcher."""
        app = self.state.place.app
        return "Launcher" if app == "Drawer" else app

    @property
    def apps(self) -> tuple[str, ...]:
        """The installed ones."""
        return tuple(self.world.drawer)

    def launch(self, app: str) -> None:
        """Start an app, as its icon does."""
        self.state.open_app(app)
        self._view = self._screen = None

    def find(self, name: str) -> Box | None:
        """Where the thing with this name can be touched now; None where it is not on the screen."""
        return next((target.box for target in self.view.targets if target.name == name), None)

    def perform(self, gesture: Gesture) -> None:
        match gesture:
            case Touch(path):
                self._touch(path)
            case Keys(text):
                self._type(text)
            case Button("back"):
                self.state.back()
            case Button("home"):
                self.state.home()
            case Button("enter"):
                if self.state.dialog is None and self.state.place.focus and self.view.enter is not None:
                    self.view.enter()
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
            raise ValueError("a touch without points: give one pixel for a tap, two for a swipe")
        start, end = self._point(path[0]), self._point(path[-1])
        match dual_point(start, end):
            case Swipe():
                self._swipe(end.y - start.y, end.x - start.x)
            case _:
                for target in reversed(self.view.targets):  # what was drawn last lies on top
                    if target.box.holds(start.y, start.x):
                        target.act()
                        return

    def _swipe(self, dy: float, dx: float) -> None:
        """Scrolls by the rows the finger went; where the list is at its end already, the move of the place."""
        view, place = self.view, self.state.place
        if self.state.dialog is not None:
            return
        if abs(dx) > abs(dy):
            view.moves.get("left" if dx < 0 else "right", nothing)()
            return
        scrolled = min(max(0, view.top - round(dy * ROWS)), view.limit)
        if scrolled != view.top:
            place.scroll = scrolled
        else:
            view.moves.get("up" if dy < 0 else "down", nothing)()

    def _type(self, text: str) -> None:
        place = self.state.place
        if self.state.dialog is None and place.focus:
            place.fields[place.focus] = (place.fields.get(place.focus, "") + text)[:MOST_TYPED]

    # -- drawing --------------------------------------------------------------------------------------------

    def _drawn(self) -> View:
        view = View(self.state)
        APPS.get(self.state.place.app, plain)(self.state, view)
        dialog = self.state.dialog
        if dialog is not None:
            view.targets.clear()
            boxes = view.canvas.dialog(6, dialog.lines, tuple(label for label, _ in dialog.buttons))
            for i, box in enumerate(boxes):
                view.touch(f"dialog:{i}", box, lambda i=i: self.state.press(i))  # type: ignore[misc]
        view.canvas.status_bar(self.world.clock)
        back, home = view.canvas.nav_bar()
        view.touch("nav:back", back, self.state.back)
        view.touch("nav:home", home, self.state.home)
        return view
