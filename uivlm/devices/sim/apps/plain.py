"""Apps that can only be opened: a title and a few headings. In a state, out a drawn view."""

from zlib import crc32

from uivlm.devices.sim.state import State
from uivlm.devices.sim.view import View
from uivlm.devices.sim.words import HEADINGS


def plain(state: State, view: View) -> None:
    app = state.place.app
    view.title(app, back=False)
    view.say(view.look.say("welcome"))
    turn = crc32(app.encode())
    for i in range(2 + turn % 3):
        view.say(HEADINGS[(turn + i) % len(HEADINGS)], faint=True)
