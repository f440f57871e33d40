"""Contacts: people, a page for each, a form for a new one. In a state, out a drawn view."""

from functools import partial

from uivlm.devices.sim.state import State
from uivlm.devices.sim.view import Row, View


def contacts(state: State, view: View) -> None:
    people, place = state.world.contacts, state.place
    if place.page == "new":
        _new(state, view)
    elif place.item:
        view.title(place.item)
        view.say(view.look.say("number"), faint=True)
        view.say(people[place.item])
    else:
        view.title("Contacts", back=False, action="plus", act=partial(state.go, "Contacts", "new"))
        view.list([Row(name, partial(state.go, "Contacts", item=name)) for name in people])


def _new(state: State, view: View) -> None:
    def save() -> None:
        name, number = (state.place.fields.get(key, "").strip() for key in ("name", "number"))
        if name and number:  # the new person stands first, and is shown
            rest = {old: kept for old, kept in state.world.contacts.items() if old != name}
            state.world.contacts = {name: number, **rest}
            state.swap("Contacts", item=name)

    view.title(view.look.say("new contact"))
    view.field("name", view.look.say("name"))
    view.first += 1
    view.field("number", view.look.say("number"))
    view.button("save", save)
