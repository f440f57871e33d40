"""Notes: titles, a page for each, a form for a new one. In a state, out a drawn view."""

from functools import partial

from uivlm.devices.sim.state import State
from uivlm.devices.sim.view import Row, View


def notes(state: State, view: View) -> None:
    place, texts = state.place, state.world.notes
    if place.page == "new":
        _new(state, view)
    elif place.item:
        _note(state, view, place.item)
    else:
        new = partial(state.go, "Notes", "new", focus="title")  # a new note starts with its title
        view.title("Notes", back=False, action="plus", act=new)
        view.list([Row(title, partial(state.go, "Notes", item=title)) for title in texts])


def _note(state: State, view: View, title: str) -> None:
    def delete() -> None:
        state.world.notes.pop(title, None)
        state.back()

    yes = view.look.say("delete")
    question = (view.look.say("sure"),)
    view.title(title)
    view.say(state.world.notes[title])
    view.first += 1
    view.button("delete", partial(state.ask, question, view.look.say("cancel"), yes, delete))


def _new(state: State, view: View) -> None:
    def save() -> None:
        title, text = (state.place.fields.get(key, "").strip() for key in ("title", "text"))
        if title:  # the new note stands first
            rest = {old: kept for old, kept in state.world.notes.items() if old != title}
            state.world.notes = {title: text, **rest}
            state.back()

    view.title(view.look.say("new note"))
    view.field("title", view.look.say("title"))
    view.first += 1
    view.field("text", view.look.say("text"))
    view.button("save", save)
