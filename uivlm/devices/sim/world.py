"""What a simulated phone holds: in a layout number, out its look (`Look`) and its contents (`World`).

The same number always gives the same phone.
"""

from dataclasses import dataclass, field
from random import Random
from zlib import crc32

from uivlm.devices.sim import words
from uivlm.devices.sim.theme import ACCENTS, SIZES
from uivlm.devices.sim.words import WORDINGS


@dataclass(frozen=True, slots=True)
class Look:
    """How a phone draws: fixed for its life."""

    width: int  # pixels
    height: int  # pixels
    dark: bool
    accent: int
    margin: int  # empty rows below the title
    pitch: int  # rows from one line of a list to the next
    tabs_low: bool  # tabs at the bottom, else at the top
    wording: int

    def say(self, key: str) -> str:
        """This phone's wording of a label."""
        choices = WORDINGS[key]
        return choices[crc32(f"{key} {self.wording}".encode()) % len(choices)]


@dataclass(frozen=True, slots=True)
class Line:
    """One message of a conversation."""

    text: str
    mine: bool


@dataclass(slots=True)
class Place:
    """Where the user is: a page of an app, what it is about, what stands in its fields."""

    app: str
    page: str = ""
    item: str = ""
    scroll: int = 0  # rows from the top; clamped when drawn
    focus: str = ""  # the field that takes typed text
    fields: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class World:
    """All that apps show and change. Dictionaries keep the order in which things are listed."""

    look: Look
    clock: str
    pages: list[list[str]]  # apps on the launcher's pages
    start_page: int
    drawer: list[str]  # all installed apps
    settings: dict[str, dict[str, bool]]
    quick: dict[str, bool]
    alarms: dict[str, bool]
    clock_tab: str  # the tab on which Clock opens
    contacts: dict[str, str]  # name: number
    threads: dict[str, list[Line]]
    notes: dict[str, str]
    stock: list[str]
    prices: dict[str, str]
    cart: list[str]
    bought: list[str]
    bookmarks: list[str]
    today: int
    events: dict[str, dict[str, str]]  # day: event: time
    notice: tuple[int, int] | None  # which notice interrupts, and at the how-many-eth opening of an app
    inside: tuple[Place, ...] = ()  # the places that are open at the start, over the launcher


def _some(rng: Random, things: tuple[str, ...], least: int, most: int) -> list[str]:
    return rng.sample(things, rng.randint(least, min(most, len(things))))


def number(rng: Random) -> str:
    """A telephone number of this world."""
    return " ".join(rng.choice(words.PAIRS) for _ in range(2))


def chat(rng: Random, lines: int) -> list[Line]:
    """A conversation of small talk."""
    return [Line(rng.choice(words.CHAT), rng.random() < 0.45) for _ in range(lines)]


def make_look(rng: Random) -> Look:
    width, height = rng.choice(SIZES)
    return Look(
        width=width,
        height=height,
        dark=rng.random() < 0.4,
        accent=rng.randrange(len(ACCENTS)),
        margin=rng.choice((0, 0, 1, 2)),
        pitch=rng.choice((1, 1, 1, 1, 2)),
        tabs_low=rng.random() < 0.5,
        wording=rng.randrange(1 << 16),
    )


def _launcher(rng: Random, drawer: list[str], margin: int) -> list[list[str]]:
    room = 3 * ((13 - margin) // 3)
    shuffled = rng.sample(drawer, len(drawer))
    pages: list[list[str]] = []
    for _ in range(rng.choice((2, 3))):
        size = rng.randint(room - 4, room)
        pages.append(shuffled[:size])
        shuffled = shuffled[size:]
    return [page for page in pages if page]


def make_world(layout: int) -> World:
    """The phone with this layout number."""
    rng = Random(f"layout {layout}")
    look = make_look(rng)
    stubs = _some(rng, words.STUBS, 12, 20)
    drawer = rng.sample((*words.WORKING, *stubs), len(words.WORKING) + len(stubs))
    pages = _launcher(rng, drawer, look.margin)
    categories = rng.sample(list(words.SETTINGS), len(words.SETTINGS))
    contacts = _some(rng, words.CONTACTS, 10, 20)
    return World(
        look=look,
        clock=rng.choice(words.TIMES),
        pages=pages,
        start_page=0 if rng.random() < 0.7 else rng.randrange(len(pages)),
        drawer=drawer,
        settings={
            name: {
                label: rng.random() < 0.5
                for label in rng.sample(words.SETTINGS[name], len(words.SETTINGS[name]))
            }
            for name in categories
        },
        quick={label: rng.random() < 0.5 for label in _some(rng, words.QUICK, 4, 6)},
        alarms={time: rng.random() < 0.5 for time in _some(rng, words.TIMES, 1, 5)},
        clock_tab="alarms" if rng.random() < 0.7 else "timer",
        contacts={name: number(rng) for name in contacts},
        threads={name: chat(rng, rng.randint(2, 18)) for name in _some(rng, tuple(contacts), 6, 16)},
        notes={title: rng.choice(words.NOTE_TEXTS) for title in _some(rng, words.NOTE_TITLES, 3, 9)},
        stock=rng.sample(words.ITEMS, rng.randint(40, len(words.ITEMS))),
        prices={item: rng.choice(words.PRICES) for item in words.ITEMS},
        cart=_some(rng, words.ITEMS, 0, 3),
        bought=[],
        bookmarks=_some(rng, tuple(words.SITES), 4, 10),
        today=rng.randrange(7),
        events={
            day: {event: rng.choice(words.TIMES) for event in _some(rng, words.EVENTS, 1, 3)}
            for day in words.DAYS
        },
        notice=(rng.randrange(len(words.NOTICES)), 1) if rng.random() < 0.12 else None,
    )
