"""Browser: an address field, pages, bookmarks. In a state, out a drawn view."""

from functools import partial
from zlib import crc32

from uivlm.devices.sim.state import State
from uivlm.devices.sim.view import Row, View
from uivlm.devices.sim.words import HEADINGS, SITES

TITLES = {address: title for title, address in SITES.items()}


def browser(state: State, view: View) -> None:
    place = state.place
    tab = place.page or "web"

    def load(address: str) -> None:
        state.swap("Browser", "web", address)

    def enter() -> None:
        address = place.fields.get("address", "").strip()
        if address:
            load(address)

    view.title("Browser", back=False)
    view.tabs([(key, partial(state.swap, "Browser", key)) for key in ("web", "saved")], tab)
    if tab == "saved":
        view.list([Row(title, partial(load, SITES[title])) for title in state.world.bookmarks])
        return
    view.field("address", view.look.say("address"), shown=place.item)
    view.enter = enter
    if place.item in TITLES:
        _page(view, place.item)
    elif place.item:
        view.say(view.look.say("not found"))


def _page(view: View, address: str) -> None:
    view.first += 1
    view.say(TITLES[address])
    turn = crc32(address.encode())
    for i in range(3):
        view.say(HEADINGS[(turn + i) % len(HEADINGS)], faint=True)
