"""The launcher: pages of tiles, the drawer with all apps, the quick panel. A state in, a drawn view out."""

from functools import partial
from zlib import crc32

from uivlm.devices.sim.labels import DIGITS
from uivlm.devices.sim.navigation import PhoneState
from uivlm.devices.sim.theme import Color
from uivlm.devices.sim.view import NAV_BAR_ROW, AppView, ListRow

TILE_COLORS: tuple[Color, ...] = (
    *((198, 60, 60), (54, 112, 196), (46, 138, 88), (176, 108, 28), (122, 76, 176), (28, 134, 148)),
    *((188, 70, 130), (96, 104, 116)),
)


def launcher(state: PhoneState, view: AppView) -> None:
    world, entry = state.world, state.current
    page = min(int(entry.item or 0), len(world.pages) - 1)
    first = 1 + view.look.margin
    for i, app in enumerate(world.pages[page]):
        color = TILE_COLORS[crc32(app.encode()) % len(TILE_COLORS)]
        box = view.canvas.tile(first + i // 3 * 3, i % 3, app, color)
        view.add_target(f"app:{app}", box, partial(state.open_app, app))
    view.canvas.text(NAV_BAR_ROW - 1, 1, DIGITS[page], columns=1, align="center")
    if page + 1 < len(world.pages):
        view.swipe_actions["left"] = partial(setattr, entry, "item", str(page + 1))
    if page > 0:
        view.swipe_actions["right"] = partial(setattr, entry, "item", str(page - 1))
    view.swipe_actions["up"] = partial(state.push, "Drawer")
    view.swipe_actions["down"] = partial(state.push, "Quick")


def drawer(state: PhoneState, view: AppView) -> None:
    query = state.current.fields.get("search", "").strip().casefold()
    view.field("search", view.look.label("find apps"))
    view.next_row += view.look.margin
    matches = [app for app in state.world.drawer if query in app.casefold()]
    view.list([ListRow(app, partial(state.open_app, app), f"app:{app}") for app in matches])
    view.swipe_actions["down"] = state.go_back


def quick(state: PhoneState, view: AppView) -> None:
    view.title(view.look.label("quick"), back=False)
    switches = state.world.quick

    def flip(label: str) -> None:
        switches[label] = not switches[label]

    view.list([ListRow(label, partial(flip, label), switch=on) for label, on in switches.items()])
    view.swipe_actions["up"] = state.go_back
