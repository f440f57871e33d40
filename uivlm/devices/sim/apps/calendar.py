"""Calendar: one day a page, turned by swipes; events. In a state, out a drawn view."""

from functools import partial

from uivlm.devices.sim.state import State
from uivlm.devices.sim.view import Row, View
from uivlm.devices.sim.words import DAYS


def calendar(state: State, view: View) -> None:
    place = state.place
    day = place.item or DAYS[state.world.today]
    events = state.world.events[day]
    if place.page:
        view.title(place.page)
        view.say(day)
        view.say(events[place.page])
        return
    view.title("Calendar", back=False)
    view.say(day)
    view.list(
        [Row(event, partial(state.go, "Calendar", event, day), value=time) for event, time in events.items()]
    )
    at = DAYS.index(day)
    if at + 1 < len(DAYS):
        view.moves["left"] = partial(setattr, place, "item", DAYS[at + 1])
    if at > 0:
        view.moves["right"] = partial(setattr, place, "item", DAYS[at - 1])
