"""Settings: categories, and in each a list of switches. In a state, out a drawn view."""

from functools import partial

from uivlm.devices.sim.state import State
from uivlm.devices.sim.view import Row, View


def settings(state: State, view: View) -> None:
    tree, category = state.world.settings, state.place.item
    if not category:
        view.title("Settings", back=False)
        view.list([Row(name, partial(state.go, "Settings", item=name)) for name in tree])
        return
    view.title(category)
    switches = tree[category]

    def flip(label: str) -> None:
        switches[label] = not switches[label]

    view.list([Row(label, partial(flip, label), switch=on) for label, on in switches.items()])
