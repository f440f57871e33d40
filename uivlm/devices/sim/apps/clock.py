"""Clock: alarms with switches, a timer tab, a form for a new alarm. A state in, a drawn view out."""

from functools import partial

from uivlm.devices.sim.navigation import PhoneState
from uivlm.devices.sim.view import AppView, ListRow


def clock(state: PhoneState, view: AppView) -> None:
    if state.current.page == "new":
        _new(state, view)
        return
    tab = state.current.page or state.world.clock_tab
    new = partial(state.push, "Clock", "new", focus="time")  # the only field, so it has the focus
    if tab == "alarms":
        view.title("Clock", back=False, action="plus", on_action=new)
    else:
        view.title("Clock", back=False)
    view.tabs([(key, partial(state.replace_current, "Clock", key)) for key in ("alarms", "timer")], tab)
    if tab == "timer":
        view.text(state.world.clock, faint=True)
        return
    alarms = state.world.alarms

    def flip(time: str) -> None:
        alarms[time] = not alarms[time]

    view.list([ListRow(time, partial(flip, time), switch=on) for time, on in alarms.items()])


def _new(state: PhoneState, view: AppView) -> None:
    def save() -> None:
        time = state.current.fields.get("time", "").strip()
        if time:  # the new alarm is the first
            rest = {old: on for old, on in state.world.alarms.items() if old != time}
            state.world.alarms = {time: True, **rest}
            state.go_back()
            state.replace_current("Clock", "alarms")

    view.title(view.look.label("new alarm"))
    view.field("time", view.look.label("time"))
    view.button("save", save)
