"""The contents of a simulated phone: a layout number in, its `Look` and its `World` out.

Equal numbers give equal phones.
"""

from dataclasses import dataclass, field
from random import Random
from zlib import crc32

from uivlm.devices.sim import labels
from uivlm.devices.sim.labels import LABEL_WORDINGS
from uivlm.devices.sim.theme import ACCENTS, SCREEN_SIZES


@dataclass(frozen=True, slots=True)
class Look:
    """How a phone draws. It never changes."""

    width: int  # pixels
    height: int  # pixels
    dark: bool
    accent: int
    margin: int  # empty rows below the title
    pitch: int  # rows per line of a list
    tabs_at_bottom: bool  # else at the top
    wording: int

    def label(self, key: str) -> str:
        """Return this phone's wording of a label."""
        choices = LABEL_WORDINGS[key]
        return choices[crc32(f"{key} {self.wording}".encode()) % len(choices)]


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a conversation."""

    text: str
    from_user: bool


@dataclass(slots=True)
class NavigationEntry:
    """An entry of the back stack: a page of an app, its item, and the contents of its fields."""

    app: str
    page: str = ""
    item: str = ""
    scroll: int = 0  # rows from the top; clamped when drawn
    focus: str = ""  # the field that receives typed text
    fields: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class World:
    """All contents that apps show and change. Dictionaries keep the order of lists."""

    look: Look
    clock: str
    pages: list[list[str]]  # apps on each page of the launcher
    start_page: int
    drawer: list[str]  # all installed apps
    settings: dict[str, dict[str, bool]]
    quick: dict[str, bool]
    alarms: dict[str, bool]
    clock_tab: str  # the tab on which Clock opens
    contacts: dict[str, str]  # name: number
    threads: dict[str, list[ChatMessage]]
    notes: dict[str, str]
    stock: list[str]
    prices: dict[str, str]
    cart: list[str]
    bought: list[str]
    bookmarks: list[str]
    today: int
    events: dict[str, dict[str, str]]  # day: event: time
    notice: tuple[int, int] | None  # index of the notice that interrupts, number of the app start (from 1)
    open_entries: tuple[NavigationEntry, ...] = ()  # open at the start, above the launcher
    web_texts: dict[str, tuple[str, ...]] = field(default_factory=dict)  # address: lines in place of headings
    pictures: dict[str, tuple[str, ...]] = field(default_factory=dict)  # app: lines inside its image


def _sample_some(rng: Random, items: tuple[str, ...], minimum: int, maximum: int) -> list[str]:
    return rng.sample(items, rng.randint(minimum, min(maximum, len(items))))


def make_phone_number(rng: Random) -> str:
    """Return a random phone number."""
    return " ".join(rng.choice(labels.DIGIT_PAIRS) for _ in range(2))


def make_chat(rng: Random, num_messages: int) -> list[ChatMessage]:
    """Return a conversation of small talk."""
    return [ChatMessage(rng.choice(labels.CHAT_LINES), rng.random() < 0.45) for _ in range(num_messages)]


def make_look(rng: Random) -> Look:
    width, height = rng.choice(SCREEN_SIZES)
    return Look(
        width=width,
        height=height,
        dark=rng.random() < 0.4,
        accent=rng.randrange(len(ACCENTS)),
        margin=rng.choice((0, 0, 1, 2)),
        pitch=rng.choice((1, 1, 1, 1, 2)),
        tabs_at_bottom=rng.random() < 0.5,
        wording=rng.randrange(1 << 16),
    )


def _make_launcher_pages(rng: Random, drawer: list[str], margin: int) -> list[list[str]]:
    capacity = 3 * ((13 - margin) // 3)
    shuffled = rng.sample(drawer, len(drawer))
    pages: list[list[str]] = []
    for _ in range(rng.choice((2, 3))):
        size = rng.randint(capacity - 4, capacity)
        pages.append(shuffled[:size])
        shuffled = shuffled[size:]
    return [page for page in pages if page]


def make_world(layout: int) -> World:
    """Return the world of this layout number."""
    rng = Random(f"layout {layout}")
    look = make_look(rng)
    stubs = _sample_some(rng, labels.STUB_APPS, 12, 20)
    drawer = rng.sample((*labels.IMPLEMENTED_APPS, *stubs), len(labels.IMPLEMENTED_APPS) + len(stubs))
    pages = _make_launcher_pages(rng, drawer, look.margin)
    categories = rng.sample(list(labels.SETTINGS), len(labels.SETTINGS))
    contacts = _sample_some(rng, labels.CONTACTS, 10, 20)
    return World(
        look=look,
        clock=rng.choice(labels.TIMES),
        pages=pages,
        start_page=0 if rng.random() < 0.7 else rng.randrange(len(pages)),
        drawer=drawer,
        settings={
            name: {
                label: rng.random() < 0.5
                for label in rng.sample(labels.SETTINGS[name], len(labels.SETTINGS[name]))
            }
            for name in categories
        },
        quick={label: rng.random() < 0.5 for label in _sample_some(rng, labels.QUICK, 4, 6)},
        alarms={time: rng.random() < 0.5 for time in _sample_some(rng, labels.TIMES, 1, 5)},
        clock_tab="alarms" if rng.random() < 0.7 else "timer",
        contacts={name: make_phone_number(rng) for name in contacts},
        threads={
            name: make_chat(rng, rng.randint(2, 18)) for name in _sample_some(rng, tuple(contacts), 6, 16)
        },
        notes={title: rng.choice(labels.NOTE_TEXTS) for title in _sample_some(rng, labels.NOTE_TITLES, 3, 9)},
        stock=rng.sample(labels.ITEMS, rng.randint(40, len(labels.ITEMS))),
        prices={item: rng.choice(labels.PRICES) for item in labels.ITEMS},
        cart=_sample_some(rng, labels.ITEMS, 0, 3),
        bought=[],
        bookmarks=_sample_some(rng, tuple(labels.SITES), 4, 10),
        today=rng.randrange(7),
        events={
            day: {event: rng.choice(labels.TIMES) for event in _sample_some(rng, labels.EVENTS, 1, 3)}
            for day in labels.DAYS
        },
        notice=(rng.randrange(len(labels.NOTICES)), 1) if rng.random() < 0.12 else None,
    )
