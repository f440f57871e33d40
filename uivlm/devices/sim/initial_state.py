"""The world in which a goal starts: a goal's parameters and a layout number in, a matching world out.

The world contains what the goal needs, or lacks it if the goal is impossible. The rest comes from the layout.
"""

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import TypeVar

from uivlm.devices.sim import goals, labels
from uivlm.devices.sim.goals import GOAL_TEMPLATES, GoalParameters
from uivlm.devices.sim.world import (
    ChatMessage,
    NavigationEntry,
    World,
    make_chat,
    make_phone_number,
    make_world,
)

V = TypeVar("V")
APPS_OF_GOAL = {  # the apps a goal goes through
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
MAX_SHORT_ADDRESS_CHARS = 7  # of an address that fits into a message with any prefix
FIRST_PAGE_RATE = 0.75  # fraction of the basic goals whose app is on the first page
OTHER_APP_RATE = 0.15  # fraction of the basic goals that start in another app
# These take many steps already, so nothing interrupts them.
LONG_GOALS = ("contact add", "note add", "cart", "message", "note cart", "pass number")
NOTE_SUBJECTS = {"note message": "person", "note cart": "item", "note setting": "setting", "note app": "app"}


def make_initial_world(
    template_name: str, parameters: GoalParameters, secret: str, *, absent: bool, layout: int, seed: int
) -> World:
    """Return the world of the layout, changed to fit the goal."""
    world = make_world(layout)
    rng = Random(f"setup {layout} {seed}")
    match template_name:
        case "open" | "find" | "home" | "page" | "back":
            _prepare_launcher(world, template_name, parameters, rng, absent=absent)
        case "toggle" | "category" | "quick":
            _prepare_switches(world, template_name, parameters, rng, absent=absent)
        case "alarm add" | "alarm switch" | "day" | "event" | "event alarm":
            _prepare_times(world, template_name, parameters, secret, absent=absent)
        case "number" | "contact add" | "message" | "first" | "pass number" | "chat alarm" | "chat site":
            _prepare_people(world, template_name, parameters, secret, rng, absent=absent)
        case _:
            _prepare_items(world, template_name, parameters, rng, absent=absent)
    if GOAL_TEMPLATES[template_name].needs_memory or template_name in LONG_GOALS:
        world.look = replace(world.look, pitch=1)
    if template_name in LONG_GOALS:
        world.notice = None
    if GOAL_TEMPLATES[template_name].needs_memory:
        _prepare_memory_goal(world, template_name, parameters, secret, rng)
        return world
    if template_name in APPS_OF_GOAL and rng.random() < FIRST_PAGE_RATE:
        _move_to_page(world, APPS_OF_GOAL[template_name], 0, rng)
    if template_name not in ("home", "back", "page", "quick") and rng.random() < OTHER_APP_RATE:
        others = [
            app for app in world.drawer if app not in (*APPS_OF_GOAL.get(template_name, ()), parameters[0])
        ]
        world.open_entries = (NavigationEntry(rng.choice(others)),)
    return world


def _remove_app(pages: Iterable[list[str]], app: str) -> None:
    for page in pages:
        if app in page:
            page.remove(app)


def _insert(items_by_key: dict[str, V], key: str, value: V, rng: Random) -> dict[str, V]:
    """Return the dictionary with one more item at a random position."""
    items = [(k, v) for k, v in items_by_key.items() if k != key]
    items.insert(rng.randint(0, len(items)), (key, value))
    return dict(items)


def _install(world: World, app: str, rng: Random) -> None:
    if app not in world.drawer:
        world.drawer.insert(rng.randint(0, len(world.drawer)), app)


def _move_to_page(world: World, apps: tuple[str, ...], page: int, rng: Random) -> None:
    """Move apps to a page of the launcher; if it is full, they replace others."""
    capacity = 3 * ((13 - world.look.margin) // 3)
    for app in apps:
        _install(world, app, rng)
        _remove_app(world.pages, app)
    kept = world.pages[page][: capacity - len(apps)]
    for app in apps:
        kept.insert(rng.randint(0, len(kept)), app)
    world.pages[page] = kept


def _prepare_launcher(
    world: World, template_name: str, parameters: GoalParameters, rng: Random, *, absent: bool
) -> None:
    app = parameters[0]
    if absent:
        _remove_app([*world.pages, world.drawer], app)
        return
    _install(world, app, rng)
    match template_name:
        case "home":
            world.open_entries = (NavigationEntry(app),)
        case "page":
            page = int(parameters[1]) - 1
            while len(world.pages) <= page:
                world.pages.append(rng.sample(world.drawer, 5))
            _move_to_page(world, (app,), page, rng)
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
            above = NavigationEntry(app, item=item if app == "Calendar" else "")
            world.open_entries = (above, NavigationEntry(app, page_name, item))


def _prepare_switches(
    world: World, template_name: str, parameters: GoalParameters, rng: Random, *, absent: bool
) -> None:
    first, second = parameters
    match template_name:
        case "quick":
            # usually the opposite; sometimes the goal is already reached
            on = (second == "on") == (rng.random() < 0.1)
            world.quick = _insert(world.quick, first, on, rng)
        case "toggle":
            category = next(name for name, switches in labels.SETTINGS.items() if first in switches)
            if absent:
                del world.settings[category][first]
            else:
                world.settings[category][first] = (second == "on") == (rng.random() < 0.1)


def _prepare_times(
    world: World, template_name: str, parameters: GoalParameters, secret: str, *, absent: bool
) -> None:
    first, second = (*parameters, "")[:2]
    match template_name:
        case "alarm add":
            world.alarms.pop(first, None)
        case "alarm switch":
            world.alarms.pop(first, None)
            if not absent:
                items = list(world.alarms.items())
                at = sum(map(ord, first)) % (len(items) + 1)
                world.alarms = dict([*items[:at], (first, second != "on"), *items[at:]])
        case "day" if labels.DAYS[world.today] == first:
            world.today = (world.today + 3) % len(labels.DAYS)
        case "event" | "event alarm":
            world.events[first].setdefault(second, world.clock)
    if template_name == "event alarm":
        world.events[first][second] = secret
        world.alarms.pop(secret, None)
    if template_name in ("day", "event", "event alarm"):
        day = labels.DAYS.index(first)  # at most three swipes away
        world.today = min(max(world.today, day - 3), day + 3)


def _prepare_people(
    world: World, template_name: str, parameters: GoalParameters, secret: str, rng: Random, *, absent: bool
) -> None:
    person = parameters[0]
    match template_name:
        case "number" if not absent:
            world.contacts = _insert(world.contacts, person, make_phone_number(rng), rng)
        case "number" | "contact add":
            world.contacts.pop(person, None)
        case "message" if absent:
            world.threads.pop(person, None)
        case "first":
            world.threads = _insert(world.threads, person, make_chat(rng, rng.randint(14, 22)), rng)
        case _:
            world.threads = _insert(world.threads, person, make_chat(rng, rng.randint(3, 14)), rng)
    match template_name:
        case "pass number":
            world.contacts = _insert(world.contacts, parameters[1], secret, rng)
        case "chat alarm":
            world.alarms.pop(secret, None)
            _insert_message(world.threads[person], rng.choice(labels.APPOINTMENT_PREFIXES), secret, rng)
        case "chat site":
            is_short = len(secret) <= MAX_SHORT_ADDRESS_CHARS
            link = rng.choice(labels.LINK_PREFIXES) if is_short else labels.LINK_PREFIXES[1]
            _insert_message(world.threads[person], link, secret, rng)


def _insert_message(lines: list[ChatMessage], prefix: str, secret: str, rng: Random) -> None:
    lines[rng.randrange(len(lines))] = ChatMessage(f"{prefix} {secret}", False)


def _prepare_items(
    world: World, template_name: str, parameters: GoalParameters, rng: Random, *, absent: bool
) -> None:
    first = parameters[0]
    match template_name:
        case "cart":
            _stock_item(world, first, rng)
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
            world.notes = _insert(world.notes, first, rng.choice(labels.NOTE_TEXTS), rng)
        case "note open" | "note add":
            world.notes.pop(first, None)


def _stock_item(world: World, item: str, rng: Random) -> None:
    """Put the item in stock and remove it from the cart."""
    world.cart = [other for other in world.cart if other != item]
    if item not in world.stock:
        world.stock.insert(rng.randint(0, len(world.stock)), item)


def _prepare_memory_goal(
    world: World, template_name: str, parameters: GoalParameters, secret: str, rng: Random
) -> None:
    """Keep the way short, so that the secret is soon used: both apps are on the first page."""
    world.start_page = 0
    _move_to_page(world, APPS_OF_GOAL[template_name], 0, rng)
    if template_name in NOTE_SUBJECTS:
        _write_notes(world, NOTE_SUBJECTS[template_name], parameters[0], secret, rng)
    match template_name:
        case "note message":
            world.threads = _insert(world.threads, secret, make_chat(rng, 4), rng)
        case "note cart":
            _stock_item(world, secret, rng)
        case "note setting":
            category = next(name for name, switches in labels.SETTINGS.items() if secret in switches)
            world.settings[category][secret] = parameters[1] != "on"
        case "note app":
            _install(world, secret, rng)


def _write_notes(world: World, subject: str, title: str, secret: str, rng: Random) -> None:
    """Write a note with the secret, and others with other values as distractors."""
    verb = labels.NOTE_VERBS[subject]
    others = {
        "person": labels.CONTACTS,
        "item": labels.ITEMS,
        "setting": goals.SETTING_LABELS,
        "app": labels.STUB_APPS,
    }[subject]
    for other in rng.sample(list(world.notes), min(2, len(world.notes))):
        world.notes[other] = f"{verb} {rng.choice(others)}"
    world.notes = _insert(world.notes, title, f"{verb} {secret}", rng)
