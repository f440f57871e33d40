"""The expert: in a task, out an episode that solves it on a simulated phone, as a careful person would.

One routine for everything: home first, an app by its tile or else by the drawer, lists from the top to their end,
a field by a tap unless it has the focus. So the next action follows from the goal, the past and the screen.
"""

from random import Random

from uivlm.actions.action import Finish
from uivlm.devices.sim.goals import Values
from uivlm.devices.sim.hand import Hand, MissingError
from uivlm.devices.sim.tasks import Task, new_phone
from uivlm.devices.sim.words import DAYS, SETTINGS
from uivlm.episode import Episode

SUBSET = "simulated"


def record(task: Task, seed: int = 0) -> Episode:
    """The task solved once: `seed` moves only the fingers. The id holds the layout and the seed."""
    phone = new_phone(task)
    hand = Hand(phone, Random(f"expert {task.layout} {task.seed} {seed}"))
    try:
        _solve(hand, task)
        status = Finish("complete")
    except MissingError:
        status = Finish("impossible")
    hand.do(status)
    return Episode(str(10_000 * (task.layout + 1) + seed), task.goal, SUBSET, tuple(hand.steps))


def _solve(hand: Hand, task: Task) -> None:
    first, second = (*task.values, "", "")[:2]
    secret = task.secret
    _read(hand, task)
    match task.kind:
        case "note message":
            _send(hand, secret, second)
        case "note cart":
            _shop(hand, secret)
        case "note setting":
            _setting(hand, secret, second)
        case "note app":
            hand.open(secret)
        case "chat alarm" | "event alarm":
            _alarm(hand, secret)
        case "chat site":
            _site(hand, secret)
        case "pass number":
            _send(hand, first, secret)
        case "toggle":
            _setting(hand, first, second)
        case "category":
            hand.open("Settings")
            hand.choose(f"row:{first}")
            hand.seek(f"row:{second}")
        case "alarm add":
            _alarm(hand, first)
        case "message":
            _send(hand, first, second)
        case "cart":
            _shop(hand, first)
        case "site":
            _site(hand, first)
        case _:
            _solve_small(hand, task.kind, task.values)


def _read(hand: Hand, task: Task) -> None:
    """Bring to the screen what the goal speaks of without saying it."""
    first, second = (*task.values, "", "")[:2]
    match task.kind:
        case "note message" | "note cart" | "note setting" | "note app":
            hand.open("Notes")
            hand.choose(f"row:{first}")
        case "chat alarm" | "chat site":
            _chat(hand, first)
            hand.seek_back(task.secret)
        case "pass number":
            hand.open("Contacts")
            hand.choose(f"row:{second}")
        case "event alarm":
            _day(hand, first)


def _solve_small(hand: Hand, kind: str, values: Values) -> None:
    first, second = (*values, "", "")[:2]
    match kind:
        case "open":
            hand.open(first)
        case "alarm switch":
            _alarms(hand)
            hand.put(first, second)
        case "number":
            hand.open("Contacts")
            hand.choose(f"row:{first}")
        case "contact add":
            _form(hand, "Contacts", name=first, number=second)
        case "first":
            _chat(hand, first)
            while hand.phone.view.top > 0:
                hand.swipe("down")
        case "note add":
            _form(hand, "Notes", title=first, text=second)
        case "note open" | "note delete":
            hand.open("Notes")
            hand.choose(f"row:{first}")
            if kind == "note delete":
                hand.tap("button:delete")
        case "checkout":
            hand.open("Shop")
            for name in ("tab:cart", "button:checkout", "button:buy"):
                hand.tap(name)
        case "bookmark":
            hand.open("Browser")
            hand.tap("tab:saved")
            hand.choose(f"row:{first}")
        case "day" | "event":
            _day(hand, first)
            if second:
                hand.choose(f"row:{second}")
        case _:
            _solve_on_launcher(hand, kind, first, second)


def _solve_on_launcher(hand: Hand, kind: str, first: str, second: str) -> None:
    match kind:
        case "page":
            while (page := int(hand.phone.state.place.item)) != int(second) - 1:
                hand.swipe("left" if page < int(second) - 1 else "right")
            hand.tap(f"app:{first}")
        case "quick":
            hand.swipe("down")
            hand.put(first, second)
        case "find":
            hand.home()
            hand.swipe("up")
            hand.fill("search", first)
            hand.tap(f"app:{first}")
        case "home":
            hand.home()
        case "back":
            hand.press("back")
        case _:
            raise AssertionError(f"the expert does not know the kind {kind!r}")


def _chat(hand: Hand, person: str) -> None:
    hand.open("Messages")
    hand.choose(f"row:{person}")


def _send(hand: Hand, person: str, text: str) -> None:
    _chat(hand, person)
    hand.fill("message", text)
    hand.tap("button:send")


def _setting(hand: Hand, label: str, on: str) -> None:
    hand.open("Settings")
    hand.choose(f"row:{next(category for category, labels in SETTINGS.items() if label in labels)}")
    hand.put(label, on)


def _alarms(hand: Hand) -> None:
    hand.open("Clock")
    if not hand.sees("icon:plus"):
        hand.tap("tab:alarms")


def _alarm(hand: Hand, time: str) -> None:
    _alarms(hand)
    hand.tap("icon:plus")
    hand.fill("time", time)
    hand.tap("button:save")


def _form(hand: Hand, app: str, **fields: str) -> None:
    hand.open(app)
    hand.tap("icon:plus")
    for name, text in fields.items():
        hand.fill(name, text)
    hand.tap("button:save")


def _shop(hand: Hand, item: str) -> None:
    hand.open("Shop")
    hand.fill("search", item)
    hand.press("enter")
    hand.choose(f"row:{item}")
    hand.tap("button:add to cart")


def _site(hand: Hand, address: str) -> None:
    hand.open("Browser")
    hand.fill("address", address)
    hand.press("enter")


def _day(hand: Hand, day: str) -> None:
    hand.open("Calendar")
    while (now := hand.phone.state.place.item or DAYS[hand.phone.world.today]) != day:
        hand.swipe("left" if DAYS.index(now) < DAYS.index(day) else "right")
