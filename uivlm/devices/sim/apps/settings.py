"""Settings: categories with lists of switches. A state in, a drawn view out."""

from functools import partial

from uivlm.devices.sim.navigation import PhoneState
from uivlm.devices.sim.view import AppView, ListRow


def settings(state: PhoneState, view: AppView) -> None:
    tree, category = state.world.settings, state.current.item
    if not category:
        view.title("Settings", back=False)
        view.list([ListRow(name, partial(state.push, "Settings", item=name)) for name in tree])
        return
    view.title(category)
    switches = tree[category]

    def flip(label: str) -> None:
        switches[label] = not switches[label]

    view.list([ListRow(label, partial(flip, label), switch=on) for label, on in switches.items()])
