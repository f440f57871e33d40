"""Apps with one page: a title, then an image or a few headings. A state in, a drawn view out."""

from zlib import crc32

from uivlm.devices.sim.labels import HEADINGS
from uivlm.devices.sim.navigation import PhoneState
from uivlm.devices.sim.view import AppView


def plain(state: PhoneState, view: AppView) -> None:
    app = state.current.app
    view.title(app, back=False)
    view.text(view.look.label("welcome"))
    if app in state.world.pictures:
        view.picture(state.world.pictures[app])
        return
    turn = crc32(app.encode())
    for i in range(2 + turn % 3):
        view.text(HEADINGS[(turn + i) % len(HEADINGS)], faint=True)
