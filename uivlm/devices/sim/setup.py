"""The world a goal starts in: in a goal's parameters and a layout number, out a world where it makes sense.

What the goal needs is there (or, for a goal that cannot be reached, is not there); the rest is the layout's own.
"""

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import TypeVar

from uivlm.devices.sim import goals, words
from uivlm.devices.sim.goals import KINDS, Values
from uivlm.devices.sim.world import Line, Place, World, chat, make_world, number

V = TypeVar("V")
USED = {  # the apps a goal goes through
    "toggle": ("Settings",),
    "category": ("Settings",),
    "alarm add": ("Clock",),
    "alarm switch": ("Clock",),
    "number": ("Contacts",),
    "contact add": ("Contacts",),
    "message": ("Messages",),
    "first": ("Messages",),
    "note add": ("Notes",),
    "note open": ("Notes",),
    "note delete": ("Notes",),
    "cart": ("Shop",),
    "checkout": ("Shop",),
    "site": ("Browser",),
    "bookmark": ("Browser",),
    "day": ("Calendar",),
    "event": ("Calendar",),
    "note message": ("Notes", "Messages"),
    "chat alarm": ("Messages", "Clock"),
    "note cart": ("Notes", "Shop"),
    "note setting": ("Notes", "Settings"),
    "chat site": ("Messages", "Browser"),
    "note app": ("Notes",),
    "pass number": ("Contacts", "Messages"),
    "event alarm": ("Calendar", "Clock"),
}
SHORT = 7  # characters of an address that fit behind any words into a message
NEAR = 0.75  # share of the ordinary goals whose app is on the first page
INSIDE = 0.15  # share of the ordinary goals that start inside some other app
LONG = (
    "contact add",
    "note add",
    "cart",
    "message",
    "note cart",
    "pass number",
)  # kept short: nothing interrupts
NAMED = {"note message": "person", "note cart": "item", "note setting": "setting", "note app": "app"}


def prepared(kind: str, values: Values, secret: str, *, absent: bool, layout: int, seed: int) -> World:
    """The layout's world, changed so that the goal fits it."""
    world = make_world(layout)
    rng = Random(f"setup {layout} {seed}")
    match kind:
        case "open" | "find" | "home" | "page" | "back":
            _start(world, kind, values, rng, absent=absent)
        case "toggle" | "category" | "quick":
            _switches(world, kind, values, rng, absent=absent)
        case "alarm add" | "alarm switch" | "day" | "event" | "event alarm":
            _times(world, kind, values, secret, absent=absent)
        case "number" | "contact add" | "message" | "first" | "pass number" | "chat alarm" | "chat site":
            _people(world, kind, values, secret, rng, absent=absent)
        case _:
            _things(world, kind, values, rng, absent=absent)
    if KINDS[kind].memory or kind in LONG:
        world.look = replace(world.look, pitch=1)
    if kind in LONG:
        world.notice = None
    if KINDS[kind].memory:
        _remembered(world, kind, values, secret, rng)
        return world
    if kind in USED and rng.random() < NEAR:
        _to_page(world, USED[kind], 0, rng)
    if kind not in ("home", "back", "page", "quick") and rng.random() < INSIDE:
        others = [app for app in world.drawer if app not in (*USED.get(kind, ()), values[0])]
        world.inside = (Place(rng.choice(others)),)
    return world


def _without(pages: Iterable[list[str]], app: str) -> None:
    for page in pages:
        if app in page:
            page.remove(app)


def _insert(things: dict[str, V], key: str, value: V, rng: Random) -> dict[str, V]:
    """The things with one more, somewhere among them."""
    items = [(k, v) for k, v in things.items() if k != key]
    items.insert(rng.randint(0, len(items)), (key, value))
    return dict(items)


def _install(world: World, app: str, rng: Random) -> None:
    if app not in world.drawer:
        world.drawer.insert(rng.randint(0, len(world.drawer)), app)


def _to_page(world: World, apps: tuple[str, ...], page: int, rng: Random) -> None:
    """Move apps to a page of the launcher, in place of others where it is full."""
    room = 3 * ((13 - world.look.margin) // 3)
    for app in apps:
        _install(world, app, rng)
        _without(world.pages, app)
    kept = world.pages[page][: room - len(apps)]
    for app in apps:
        kept.insert(rng.randint(0, len(kept)), app)
    world.pages[page] = kept


def _start(world: World, kind: str, values: Values, rng: Random, *, absent: bool) -> None:
    app = values[0]
    if absent:
        _without([*world.pages, world.drawer], app)
        return
    _install(world, app, rng)
    match kind:
        case "home":
            world.inside = (Place(app),)
        case "page":
            page = int(values[1]) - 1
            while len(world.pages) <= page:
                world.pages.append(rng.sample(world.drawer, 5))
            _to_page(world, (app,), page, rng)
            world.start_page = rng.choice([i for i in range(len(world.pages)) if i != page])
        case "back":
            lists: dict[str, tuple[str, ...]] = {
                "Settings": tuple(world.settings),
                "Contacts": tuple(world.contacts),
                "Messages": tuple(world.threads),
                "Notes": tuple(world.notes),
                "Calendar": tuple(world.events),
            }
            item = rng.choice(lists[app])
            page_name = rng.choice(tuple(world.events[item])) if app == "Calendar" else ""
            above = Place(app, item=item if app == "Calendar" else "")
            world.inside = (above, Place(app, page_name, item))


def _switches(world: World, kind: str, values: Values, rng: Random, *, absent: bool) -> None:
    first, second = values
    match kind:
        case "quick":
            # mostly the other way round: now and then there is nothing left to do
            on = (second == "on") == (rng.random() < 0.1)
            world.quick = _insert(world.quick, first, on, rng)
        case "toggle":
            category = next(name for name, labels in words.SETTINGS.items() if first in labels)
            if absent:
                del world.settings[category][first]
            else:
                world.settings[category][first] = (second == "on") == (rng.random() < 0.1)


def _times(world: World, kind: str, values: Values, secret: str, *, absent: bool) -> None:
    first, second = (*values, "")[:2]
    match kind:
        case "alarm add":
            world.alarms.pop(first, None)
        case "alarm switch":
            world.alarms.pop(first, None)
            if not absent:
                items = list(world.alarms.items())
                at = sum(map(ord, first)) % (len(items) + 1)
                world.alarms = dict([*items[:at], (first, second != "on"), *items[at:]])
        case "day" if words.DAYS[world.today] == first:
            world.today = (world.today + 3) % len(words.DAYS)
        case "event" | "event alarm":
            world.events[first].setdefault(second, world.clock)
    if kind == "event alarm":
        world.events[first][second] = secret
        world.alarms.pop(secret, None)
    if kind in ("day", "event", "event alarm"):
        day = words.DAYS.index(first)  # a few swipes away at most
        world.today = min(max(world.today, day - 3), day + 3)


def _people(world: World, kind: str, values: Values, secret: str, rng: Random, *, absent: bool) -> None:
    person = values[0]
    match kind:
        case "number" if not absent:
            world.contacts = _insert(world.contacts, person, number(rng), rng)
        case "number" | "contact add":
            world.contacts.pop(person, None)
        case "message" if absent:
            world.threads.pop(person, None)
        case "first":
            world.threads = _insert(world.threads, person, chat(rng, rng.randint(14, 22)), rng)
        case _:
            world.threads = _insert(world.threads, person, chat(rng, rng.randint(3, 14)), rng)
    match kind:
        case "pass number":
            world.contacts = _insert(world.contacts, values[1], secret, rng)
        case "chat alarm":
            world.alarms.pop(secret, None)
            _say(world.threads[person], rng.choice(words.APPOINTMENTS), secret, rng)
        case "chat site":
            link = rng.choice(words.LINKS) if len(secret) <= SHORT else words.LINKS[1]
            _say(world.threads[person], link, secret, rng)


def _say(lines: list[Line], words_before: str, secret: str, rng: Random) -> None:
    lines[rng.randrange(len(lines))] = Line(f"{words_before} {secret}", False)


def _things(world: World, kind: str, values: Values, rng: Random, *, absent: bool) -> None:
    first = values[0]
    match kind:
        case "cart":
            _stock(world, first, rng)
            if absent:
                world.stock.remove(first)
        case "checkout":
            world.cart = [item for item in world.cart if item != first]
            world.cart.insert(rng.randint(0, len(world.cart)), first)
        case "bookmark":
            world.bookmarks = [title for title in world.bookmarks if title != first]
            if not absent:
                world.bookmarks.insert(rng.randint(0, len(world.bookmarks)), first)
        case "note open" | "note delete" if not absent:
            world.notes = _insert(world.notes, first, rng.choice(words.NOTE_TEXTS), rng)
        case "note open" | "note add":
            world.notes.pop(first, None)


def _stock(world: World, item: str, rng: Random) -> None:
    """The shop sells the item, and the cart does not hold it yet."""
    world.cart = [other for other in world.cart if other != item]
    if item not in world.stock:
        world.stock.insert(rng.randint(0, len(world.stock)), item)


def _remembered(world: World, kind: str, values: Values, secret: str, rng: Random) -> None:
    """Short ways, so that what is read is soon used: close lists, both apps on the first page."""
    world.start_page = 0
    _to_page(world, USED[kind], 0, rng)
    if kind in NAMED:
        _notes(world, NAMED[kind], values[0], secret, rng)
    match kind:
        case "note message":
            world.threads = _insert(world.threads, secret, chat(rng, 4), rng)
        case "note cart":
            _stock(world, secret, rng)
        case "note setting":
            category = next(name for name, labels in words.SETTINGS.items() if secret in labels)
            world.settings[category][secret] = values[1] != "on"
        case "note app":
            _install(world, secret, rng)


def _notes(world: World, about: str, title: str, secret: str, rng: Random) -> None:
    """The note that names the secret, and others that name other things: only this one is right."""
    verb = words.NOTE_ABOUT[about]
    others = {"person": words.CONTACTS, "item": words.ITEMS, "setting": goals.LABELS, "app": words.STUBS}[
        about
    ]
    for other in rng.sample(list(world.notes), min(2, len(world.notes))):
        world.notes[other] = f"{verb} {rng.choice(others)}"
    world.notes = _insert(world.notes, title, f"{verb} {secret}", rng)
