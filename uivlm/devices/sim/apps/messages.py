"""Messages: threads, and conversations that open at their newest line. In a state, out a drawn view."""

from functools import partial

from uivlm.devices.sim.state import State
from uivlm.devices.sim.view import Row, View, typed
from uivlm.devices.sim.world import Line

NEWEST = 1 << 20  # a scroll far beyond any end


def messages(state: State, view: View) -> None:
    who = state.place.item
    if who:
        _conversation(state, view, who)
        return
    view.title("Messages", back=False)
    opened = {name: partial(state.go, "Messages", item=name, scroll=NEWEST) for name in state.world.threads}
    view.list([Row(name, act) for name, act in opened.items()])


def _conversation(state: State, view: View, who: str) -> None:
    lines, place = state.world.threads[who], state.place

    def send() -> None:
        text = place.fields.pop("message", "").strip()
        if text:
            lines.append(Line(text, True))
            place.scroll = NEWEST

    view.title(who)
    view.bottom -= 1
    view.field("message", view.look.say("message"), row=view.bottom, columns=2)
    view.button("send", send, row=view.bottom, column=2, columns=1)
    view.enter = send
    top, room = view.window(len(lines) + 1)
    if top == 0:
        start = view.look.say("start")
        view.canvas.text(view.first, 1, start, columns=1, align="center", ink=view.canvas.theme.faint)
    for i, line in enumerate(lines):
        at = i + 1 - top
        if 0 <= at < room:
            view.canvas.bubble(view.first + at, typed(line.text), mine=line.mine)
