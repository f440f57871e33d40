"""Messages: threads, and conversations that open at their newest message. A state in, a drawn view out."""

from functools import partial

from uivlm.devices.sim.navigation import PhoneState
from uivlm.devices.sim.view import AppView, ListRow, drawable_text
from uivlm.devices.sim.world import ChatMessage

SCROLL_TO_END = 1 << 20  # a scroll far beyond any end


def messages(state: PhoneState, view: AppView) -> None:
    contact = state.current.item
    if contact:
        _conversation(state, view, contact)
        return
    view.title("Messages", back=False)
    opened = {
        name: partial(state.push, "Messages", item=name, scroll=SCROLL_TO_END) for name in state.world.threads
    }
    view.list([ListRow(name, act) for name, act in opened.items()])


def _conversation(state: PhoneState, view: AppView, contact: str) -> None:
    lines, entry = state.world.threads[contact], state.current

    def send() -> None:
        text = entry.fields.pop("message", "").strip()
        if text:
            lines.append(ChatMessage(text, True))
            entry.scroll = SCROLL_TO_END

    view.title(contact)
    view.end_row -= 1
    view.field("message", view.look.label("message"), row=view.end_row, columns=2)
    view.button("send", send, row=view.end_row, column=2, columns=1)
    view.on_enter = send
    top, room = view.scroll_window(len(lines) + 1)
    if top == 0:
        start = view.look.label("start")
        view.canvas.text(view.next_row, 1, start, columns=1, align="center", ink=view.canvas.theme.faint)
    for i, line in enumerate(lines):
        at = i + 1 - top
        if 0 <= at < room:
            view.canvas.bubble(view.next_row + at, drawable_text(line.text), mine=line.from_user)
