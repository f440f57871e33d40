"""Notes: titles, a page for each, a form for a new one. A state in, a drawn view out."""

from functools import partial

from uivlm.devices.sim.navigation import PhoneState
from uivlm.devices.sim.view import AppView, ListRow


def notes(state: PhoneState, view: AppView) -> None:
    entry, texts = state.current, state.world.notes
    if entry.page == "new":
        _new(state, view)
    elif entry.item:
        _note(state, view, entry.item)
    else:
        new = partial(state.push, "Notes", "new", focus="title")  # a new note starts with its title
        view.title("Notes", back=False, action="plus", on_action=new)
        view.list([ListRow(title, partial(state.push, "Notes", item=title)) for title in texts])


def _note(state: PhoneState, view: AppView, title: str) -> None:
    def delete() -> None:
        state.world.notes.pop(title, None)
        state.go_back()

    yes = view.look.label("delete")
    question = (view.look.label("sure"),)
    view.title(title)
    view.text(state.world.notes[title])
    view.next_row += 1
    view.button("delete", partial(state.show_question, question, view.look.label("cancel"), yes, delete))


def _new(state: PhoneState, view: AppView) -> None:
    def save() -> None:
        title, text = (state.current.fields.get(key, "").strip() for key in ("title", "text"))
        if title:  # the new note is the first
            rest = {old: kept for old, kept in state.world.notes.items() if old != title}
            state.world.notes = {title: text, **rest}
            state.go_back()

    view.title(view.look.label("new note"))
    view.field("title", view.look.label("title"))
    view.next_row += 1
    view.field("text", view.look.label("text"))
    view.button("save", save)
