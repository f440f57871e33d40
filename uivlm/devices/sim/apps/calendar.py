"""Calendar: one day per page, changed by swipes; events. A state in, a drawn view out."""

from functools import partial

from uivlm.devices.sim.labels import DAYS
from uivlm.devices.sim.navigation import PhoneState
from uivlm.devices.sim.view import AppView, ListRow


def calendar(state: PhoneState, view: AppView) -> None:
    entry = state.current
    day = entry.item or DAYS[state.world.today]
    events = state.world.events[day]
    if entry.page:
        view.title(entry.page)
        view.text(day)
        view.text(events[entry.page])
        return
    view.title("Calendar", back=False)
    view.text(day)
    view.list(
        [
            ListRow(event, partial(state.push, "Calendar", event, day), value=time)
            for event, time in events.items()
        ]
    )
    at = DAYS.index(day)
    if at + 1 < len(DAYS):
        view.swipe_actions["left"] = partial(setattr, entry, "item", DAYS[at + 1])
    if at > 0:
        view.swipe_actions["right"] = partial(setattr, entry, "item", DAYS[at - 1])
