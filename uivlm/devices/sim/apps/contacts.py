"""Contacts: people, a page for each, a form for a new one. A state in, a drawn view out."""

from functools import partial

from uivlm.devices.sim.navigation import PhoneState
from uivlm.devices.sim.view import AppView, ListRow


def contacts(state: PhoneState, view: AppView) -> None:
    people, entry = state.world.contacts, state.current
    if entry.page == "new":
        _new(state, view)
    elif entry.item:
        view.title(entry.item)
        view.text(view.look.label("number"), faint=True)
        view.text(people[entry.item])
    else:
        view.title("Contacts", back=False, action="plus", on_action=partial(state.push, "Contacts", "new"))
        view.list([ListRow(name, partial(state.push, "Contacts", item=name)) for name in people])


def _new(state: PhoneState, view: AppView) -> None:
    def save() -> None:
        name, number = (state.current.fields.get(key, "").strip() for key in ("name", "number"))
        if name and number:  # the new contact is the first, and is shown
            rest = {old: kept for old, kept in state.world.contacts.items() if old != name}
            state.world.contacts = {name: number, **rest}
            state.replace_current("Contacts", item=name)

    view.title(view.look.label("new contact"))
    view.field("name", view.look.label("name"))
    view.next_row += 1
    view.field("number", view.look.label("number"))
    view.button("save", save)
