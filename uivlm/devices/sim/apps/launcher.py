"""The launcher: pages of tiles, the drawer with all apps, the quick panel. In a state, out a drawn view."""

from functools import partial
from zlib import crc32

from uivlm.devices.sim.state import State
from uivlm.devices.sim.theme import Colour
from uivlm.devices.sim.view import BOTTOM, Row, View
from uivlm.devices.sim.words import DIGITS

TILES: tuple[Colour, ...] = (
    *((198, 60, 60), (54, 112, 196), (46, 138, 88), (176, 108, 28), (122, 76, 176), (28, 134, 148)),
    *((188, 70, 130), (96, 104, 116)),
)


def launcher(state: State, view: View) -> None:
    world, place = state.world, state.place
    page = min(int(place.item or 0), len(world.pages) - 1)
    first = 1 + view.look.margin
    for i, app in enumerate(world.pages[page]):
        colour = TILES[crc32(app.encode()) % len(TILES)]
        box = view.canvas.tile(first + i // 3 * 3, i % 3, app, colour)
        view.touch(f"app:{app}", box, partial(state.open_app, app))
    view.canvas.text(BOTTOM - 1, 1, DIGITS[page], columns=1, align="center")
    if page + 1 < len(world.pages):
        view.moves["left"] = partial(setattr, place, "item", str(page + 1))
    if page > 0:
        view.moves["right"] = partial(setattr, place, "item", str(page - 1))
    view.moves["up"] = partial(state.go, "Drawer")
    view.moves["down"] = partial(state.go, "Quick")


def drawer(state: State, view: View) -> None:
    wanted = state.place.fields.get("search", "").strip().casefold()
    view.field("search", view.look.say("find apps"))
    view.first += view.look.margin
    found = [app for app in state.world.drawer if wanted in app.casefold()]
    view.list([Row(app, partial(state.open_app, app), f"app:{app}") for app in found])
    view.moves["down"] = state.back


def quick(state: State, view: View) -> None:
    view.title(view.look.say("quick"), back=False)
    switches = state.world.quick

    def flip(label: str) -> None:
        switches[label] = not switches[label]

    view.list([Row(label, partial(flip, label), switch=on) for label, on in switches.items()])
    view.moves["up"] = state.back
