"""Clock: alarms with switches, a timer tab, a form for a new alarm. In a state, out a drawn view."""

from functools import partial

from uivlm.devices.sim.state import State
from uivlm.devices.sim.view import Row, View


def clock(state: State, view: View) -> None:
    if state.place.page == "new":
        _new(state, view)
        return
    tab = state.place.page or state.world.clock_tab
    new = partial(state.go, "Clock", "new", focus="time")  # the only field, so it has the focus
    if tab == "alarms":
        view.title("Clock", back=False, action="plus", act=new)
    else:
        view.title("Clock", back=False)
    view.tabs([(key, partial(state.swap, "Clock", key)) for key in ("alarms", "timer")], tab)
    if tab == "timer":
        view.say(state.world.clock, faint=True)
        return
    alarms = state.world.alarms

    def flip(time: str) -> None:
        alarms[time] = not alarms[time]

    view.list([Row(time, partial(flip, time), switch=on) for time, on in alarms.items()])


def _new(state: State, view: View) -> None:
    def save() -> None:
        time = state.place.fields.get("time", "").strip()
        if time:  # the new alarm stands first
            rest = {old: on for old, on in state.world.alarms.items() if old != time}
            state.world.alarms = {time: True, **rest}
            state.back()
            state.swap("Clock", "alarms")

    view.title(view.look.say("new alarm"))
    view.field("time", view.look.say("time"))
    view.button("save", save)
