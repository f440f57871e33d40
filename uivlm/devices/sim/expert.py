"""The expert: a task in, an episode that solves it on a simulated phone out.

It works in one way, as a careful person would. It goes home first and opens an app by its tile, or else from
the drawer. It scrolls lists from the top to the end, and taps a field unless it has the focus. So the next
action follows from the goal, the past and the screen.
"""

from random import Random

from uivlm.actions.action import Finish
from uivlm.devices.sim.demonstrator import Demonstrator, TargetNotFoundError
from uivlm.devices.sim.goals import GoalParameters
from uivlm.devices.sim.labels import DAYS, SETTINGS
from uivlm.devices.sim.tasks import SimTask, new_phone
from uivlm.episodes.episode import Episode

SUBSET = "simulated"


def record_demonstration(task: SimTask, seed: int = 0) -> Episode:
    """Solve the task once. `seed` only changes the jitter of touches; the id contains it and the layout."""
    phone = new_phone(task)
    demonstrator = Demonstrator(phone, Random(f"expert {task.layout} {task.seed} {seed}"))
    try:
        _solve(demonstrator, task)
        finish = Finish("complete")
    except TargetNotFoundError:
        finish = Finish("impossible")
    demonstrator.perform(finish)
    return Episode(str(10_000 * (task.layout + 1) + seed), task.goal, SUBSET, tuple(demonstrator.steps))


def _solve(demonstrator: Demonstrator, task: SimTask) -> None:
    first, second = (*task.parameters, "", "")[:2]
    secret = task.secret
    _read_secret(demonstrator, task)
    match task.template_name:
        case "note message":
            _send_message(demonstrator, secret, second)
        case "note cart":
            _add_to_cart(demonstrator, secret)
        case "note setting":
            _change_setting(demonstrator, secret, second)
        case "note app":
            demonstrator.open_app(secret)
        case "chat alarm" | "event alarm":
            _add_alarm(demonstrator, secret)
        case "chat site":
            _open_site(demonstrator, secret)
        case "pass number":
            _send_message(demonstrator, first, secret)
        case "toggle":
            _change_setting(demonstrator, first, second)
        case "category":
            demonstrator.open_app("Settings")
            demonstrator.scroll_and_tap(f"row:{first}")
            demonstrator.scroll_to(f"row:{second}")
        case "alarm add":
            _add_alarm(demonstrator, first)
        case "message":
            _send_message(demonstrator, first, second)
        case "cart":
            _add_to_cart(demonstrator, first)
        case "site":
            _open_site(demonstrator, first)
        case _:
            _solve_in_app(demonstrator, task.template_name, task.parameters)


def _read_secret(demonstrator: Demonstrator, task: SimTask) -> None:
    """Open the screen that shows the secret, which the goal refers to but does not name."""
    first, second = (*task.parameters, "", "")[:2]
    match task.template_name:
        case "note message" | "note cart" | "note setting" | "note app":
            demonstrator.open_app("Notes")
            demonstrator.scroll_and_tap(f"row:{first}")
        case "chat alarm" | "chat site":
            _open_chat(demonstrator, first)
            demonstrator.scroll_back_to_text(task.secret)
        case "pass number":
            demonstrator.open_app("Contacts")
            demonstrator.scroll_and_tap(f"row:{second}")
        case "event alarm":
            _open_day(demonstrator, first)


def _solve_in_app(demonstrator: Demonstrator, template_name: str, parameters: GoalParameters) -> None:
    first, second = (*parameters, "", "")[:2]
    match template_name:
        case "open":
            demonstrator.open_app(first)
        case "alarm switch":
            _open_alarms(demonstrator)
            demonstrator.set_switch(first, second)
        case "number":
            demonstrator.open_app("Contacts")
            demonstrator.scroll_and_tap(f"row:{first}")
        case "contact add":
            _fill_form(demonstrator, "Contacts", name=first, number=second)
        case "first":
            _open_chat(demonstrator, first)
            while demonstrator.phone.view.scroll_row > 0:
                demonstrator.swipe("down")
        case "note add":
            _fill_form(demonstrator, "Notes", title=first, text=second)
        case "note open" | "note delete":
            demonstrator.open_app("Notes")
            demonstrator.scroll_and_tap(f"row:{first}")
            if template_name == "note delete":
                demonstrator.tap("button:delete")
        case "checkout":
            demonstrator.open_app("Shop")
            for name in ("tab:cart", "button:checkout", "button:buy"):
                demonstrator.tap(name)
        case "bookmark":
            demonstrator.open_app("Browser")
            demonstrator.tap("tab:saved")
            demonstrator.scroll_and_tap(f"row:{first}")
        case "day" | "event":
            _open_day(demonstrator, first)
            if second:
                demonstrator.scroll_and_tap(f"row:{second}")
        case _:
            _solve_on_launcher(demonstrator, template_name, first, second)


def _solve_on_launcher(demonstrator: Demonstrator, template_name: str, first: str, second: str) -> None:
    match template_name:
        case "page":
            while (page := int(demonstrator.phone.state.current.item)) != int(second) - 1:
                demonstrator.swipe("left" if page < int(second) - 1 else "right")
            demonstrator.tap(f"app:{first}")
        case "quick":
            demonstrator.swipe("down")
            demonstrator.set_switch(first, second)
        case "find":
            demonstrator.go_home()
            demonstrator.swipe("up")
            demonstrator.fill("search", first)
            demonstrator.tap(f"app:{first}")
        case "home":
            demonstrator.go_home()
        case "back":
            demonstrator.press("back")
        case _:
            raise AssertionError(f"the expert does not know the template {template_name!r}")


def _open_chat(demonstrator: Demonstrator, person: str) -> None:
    demonstrator.open_app("Messages")
    demonstrator.scroll_and_tap(f"row:{person}")


def _send_message(demonstrator: Demonstrator, person: str, text: str) -> None:
    _open_chat(demonstrator, person)
    demonstrator.fill("message", text)
    demonstrator.tap("button:send")


def _change_setting(demonstrator: Demonstrator, label: str, on: str) -> None:
    demonstrator.open_app("Settings")
    category = next(category for category, labels in SETTINGS.items() if label in labels)
    demonstrator.scroll_and_tap(f"row:{category}")
    demonstrator.set_switch(label, on)


def _open_alarms(demonstrator: Demonstrator) -> None:
    demonstrator.open_app("Clock")
    if not demonstrator.is_visible("icon:plus"):
        demonstrator.tap("tab:alarms")


def _add_alarm(demonstrator: Demonstrator, time: str) -> None:
    _open_alarms(demonstrator)
    demonstrator.tap("icon:plus")
    demonstrator.fill("time", time)
    demonstrator.tap("button:save")


def _fill_form(demonstrator: Demonstrator, app: str, **fields: str) -> None:
    demonstrator.open_app(app)
    demonstrator.tap("icon:plus")
    for name, text in fields.items():
        demonstrator.fill(name, text)
    demonstrator.tap("button:save")


def _add_to_cart(demonstrator: Demonstrator, item: str) -> None:
    demonstrator.open_app("Shop")
    demonstrator.fill("search", item)
    demonstrator.press("enter")
    demonstrator.scroll_and_tap(f"row:{item}")
    demonstrator.tap("button:add to cart")


def _open_site(demonstrator: Demonstrator, address: str) -> None:
    demonstrator.open_app("Browser")
    demonstrator.fill("address", address)
    demonstrator.press("enter")


def _open_day(demonstrator: Demonstrator, day: str) -> None:
    demonstrator.open_app("Calendar")
    while (shown := demonstrator.phone.state.current.item or DAYS[demonstrator.phone.world.today]) != day:
        demonstrator.swipe("left" if DAYS.index(shown) < DAYS.index(day) else "right")
