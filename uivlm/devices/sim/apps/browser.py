"""Browser: an address field, pages, bookmarks. A state in, a drawn view out."""

from functools import partial
from zlib import crc32

from uivlm.devices.sim.labels import HEADINGS, SITES
from uivlm.devices.sim.navigation import PhoneState
from uivlm.devices.sim.view import AppView, ListRow

TITLE_BY_ADDRESS = {address: title for title, address in SITES.items()}


def browser(state: PhoneState, view: AppView) -> None:
    entry = state.current
    tab = entry.page or "web"

    def load(address: str) -> None:
        state.replace_current("Browser", "web", address)

    def enter() -> None:
        address = entry.fields.get("address", "").strip()
        if address:
            load(address)

    view.title("Browser", back=False)
    view.tabs([(key, partial(state.replace_current, "Browser", key)) for key in ("web", "saved")], tab)
    if tab == "saved":
        view.list([ListRow(title, partial(load, SITES[title])) for title in state.world.bookmarks])
        return
    view.field("address", view.look.label("address"), default_text=entry.item)
    view.on_enter = enter
    if entry.item in TITLE_BY_ADDRESS:
        _page(state, view, entry.item)
    elif entry.item:
        view.text(view.look.label("not found"))


def _page(state: PhoneState, view: AppView, address: str) -> None:
    view.next_row += 1
    view.text(TITLE_BY_ADDRESS[address])
    turn = crc32(address.encode())
    headings = tuple(HEADINGS[(turn + i) % len(HEADINGS)] for i in range(3))
    for line in state.world.web_texts.get(address, headings):
        view.text(line, faint=True)
