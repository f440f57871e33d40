"""What can be asked of the simulated phone: kinds of goals, their wordings, and which of them are held out.

In: nothing. Out: `KINDS`, and `choices(kind, split)`: the parameters of all goals of a kind in a split. A goal's
key (kind and parameters) falls to the test split by its hash; a word that no train goal would have keeps its
goals in train.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import product
from typing import Literal

from uivlm.devices.sim import words

Split = Literal["train", "test"]
Values = tuple[str, ...]
HELD_OUT = 0.2  # share of the keys that only the test split has


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of goal: how people say it ({0}, {1}: parameters) and what the parameters may be."""

    name: str
    wordings: tuple[str, ...]
    values: tuple[Values, ...]
    weight: float = 1.0  # how often it is drawn
    memory: bool = False  # is something needed that a past screen showed?
    absent: float = 0.0  # share of these goals that cannot be reached


SWITCH = ("on", "off")
LABELS = tuple(label for labels in words.SETTINGS.values() for label in labels)
TITLES = tuple(words.SITES)
NUMBERS = tuple(f"{one} {two}" for one, two in product(words.PAIRS, words.PAIRS))

PLAIN = (
    Kind(
        "open",
        ("Open {0}", "Open the {0} app", "Start {0}", "Launch the app {0}", "I want to use {0}", "Go to {0}"),
        (words.APPS,), 1.3, absent=0.3,
    ),
    Kind(
        "toggle",
        ("Turn {1} {0}", "Switch {0} {1}", "Turn {0} {1} in the settings", "Please turn {1} {0}",
         "Set {0} to {1}", "I want {0} {1}"),
        (LABELS, SWITCH), 2.0, absent=0.18,
    ),
    Kind(
        "category",
        ("Show {1} in the {0} settings", "Go to the {0} settings and find {1}", "Where is {1} in the {0} settings?",
         "Find {1} on the {0} page of the settings", "Take me to {1} in the {0} settings"),
        (tuple(words.SETTINGS), LABELS),
    ),
    Kind(
        "alarm add",
        ("Set an alarm for {0}", "Add an alarm at {0}", "Wake me up at {0}", "Create a new alarm for {0}",
         "I need an alarm at {0}", "Make an alarm for {0}"),
        (words.TIMES,),
    ),
    Kind(
        "alarm switch",
        ("Turn {1} the {0} alarm", "Switch {1} the alarm at {0}", "Turn the alarm for {0} {1}",
         "Please switch the {0} alarm {1}", "The alarm at {0} should be {1}"),
        (words.TIMES, SWITCH), absent=0.18,
    ),
    Kind(
        "number",
        ("Show the number of {0}", "What is the phone number of {0}?", "Look up {0} in the contacts",
         "Find the contact {0}", "Open the contact page of {0}", "I need the number of {0}"),
        (words.CONTACTS,), absent=0.2,
    ),
    Kind(
        "contact add",
        ("Add {0} to the contacts with the number {1}", "Save the number {1} for {0}",
         "Create a contact {0} with number {1}", "New contact: {0}, number {1}", "Store {0} as a contact, {1}"),
        (words.CONTACTS, NUMBERS),
    ),
    Kind(
        "message",
        ("Send {0} the message {1}", "Text {0}: {1}", "Write to {0}: {1}", "Tell {0} {1}",
         "Send a message to {0} that says {1}", "Message {0} with the words {1}"),
        (words.CONTACTS, (*words.PHRASES, *words.SITES.values())), 1.6, absent=0.18,
    ),
    Kind(
        "first",
        ("Show the first message of the chat with {0}", "Scroll to the start of the chat with {0}",
         "How did the chat with {0} start?", "Go to the oldest message of {0}",
         "Show me where my chat with {0} begins"),
        (words.CONTACTS,), 1.3,
    ),
    Kind(
        "note add",
        ("Write a note {0} with the text {1}", "Create a note {0} that says {1}", "Add a note {0}: {1}",
         "Note down {1} under the title {0}", "Make a new note called {0} with {1}"),
        ((*words.NOTE_TITLES, *TITLES), words.NOTE_TEXTS),
    ),
    Kind(
        "note open",
        ("Open the note {0}", "Show me the note {0}", "Read the note called {0}", "What is in the note {0}?",
         "Find my note {0}"),
        (words.NOTE_TITLES,), absent=0.2,
    ),
    Kind(
        "note delete",
        ("Delete the note {0}", "Remove the note {0}", "Get rid of the note {0}", "Please delete my note {0}",
         "I no longer need the note {0}"),
        (words.NOTE_TITLES,),
    ),
    Kind(
        "cart",
        ("Put a {0} in the cart", "Add a {0} to the shopping cart", "Find a {0} in the shop and add it to the cart",
         "Search the shop for a {0} and put it in the cart", "I want a {0} in my cart"),
        (words.ITEMS,), 1.3, absent=0.18,
    ),
    Kind(
        "checkout",
        ("Buy the {0} in my cart", "Check out the cart with the {0}", "Order the {0} that is in the cart",
         "Pay for the {0} in the cart", "Complete the order of the {0} in my cart"),
        (words.ITEMS,),
    ),
    Kind(
        "site",
        ("Go to {0}", "Open the site {0}", "Visit {0}", "Open {0} in the browser", "Show me the page {0}",
         "Browse to {0}"),
        (tuple(words.SITES.values()),),
    ),
    Kind(
        "bookmark",
        ("Open the bookmark {0}", "Open my bookmark {0} in the browser", "Show the page saved as {0}",
         "Go to the bookmark {0}", "Use the bookmark called {0}"),
        (TITLES,), absent=0.2,
    ),
    Kind(
        "page",
        ("Open {0} from page {1} of the home screen", "Start the {0} app on home page {1}",
         "Go to page {1} of the home screen and open {0}", "On page {1} of the home screen tap {0}",
         "Launch {0}, it is on home page {1}"),
        (words.APPS, words.DIGITS), 1.3,
    ),
    Kind(
        "day",
        ("Show {0} in the calendar", "Open {0} in the calendar", "Go to {0} in my calendar",
         "What is planned for {0}?", "Turn the calendar to {0}"),
        (words.DAYS,),
    ),
    Kind(
        "event",
        ("Open the event {1} on {0}", "Show the {1} event on {0} in the calendar",
         "Look up {1} on {0} in the calendar", "Open {1} of {0} in my calendar", "At what time is {1} on {0}?"),
        (words.DAYS, words.EVENTS),
    ),
    Kind(
        "quick",
        ("Turn {1} {0} in the quick panel", "Switch {0} {1} from the quick panel", "Quick panel: turn {0} {1}",
         "Pull down the quick panel and turn {1} {0}", "Use the quick panel to switch {1} {0}"),
        (words.QUICK, SWITCH),
    ),
    Kind(
        "find",
        ("Search the apps for {0} and open it", "Find the app {0} with the search and open it",
         "Type {0} in the app search and start it", "Use the app search to open {0}",
         "Look for {0} in the app search and launch it"),
        (words.APPS,),
    ),
    Kind(
        "home",
        ("Leave {0} and go to the home screen", "Close {0}", "Go home from {0}", "Exit the {0} app",
         "I am done with {0}, show the home screen"),
        (words.APPS,), 0.6,
    ),
    Kind(
        "back",
        ("Go back to the list of {0}", "Go one page back in {0}", "Return to the main page of {0}",
         "Leave this page of {0}", "Back to {0}"),
        (("Settings", "Contacts", "Messages", "Notes", "Calendar"),), 0.6,
    ),
)  # fmt: skip

REMEMBERED = (
    Kind(
        "note message",
        ("Text the person in the note {0}: {1}", "Send {1} to the person named in the note {0}",
         "Tell the person from the note {0} {1}", "The note {0} names a person, write {1} to them",
         "Message whoever is in the note {0} with {1}"),
        (words.NOTE_TITLES, words.PHRASES), memory=True,
    ),
    Kind(
        "chat alarm",
        ("Set an alarm for the time in the message from {0}", "Add an alarm for the time that {0} wrote",
         "{0} wrote me a time, set an alarm for it", "Wake me up at the time in the chat with {0}",
         "Create an alarm for when {0} said"),
        (words.CONTACTS,), memory=True,
    ),
    Kind(
        "note cart",
        ("Put the thing from the note {0} in the cart", "Add what the note {0} says to buy to the cart",
         "The note {0} names a thing, add it to the cart", "Find the item of the note {0} and put it in the cart",
         "Shop for the thing in the note {0}"),
        (words.NOTE_TITLES,), memory=True,
    ),
    Kind(
        "note setting",
        ("Turn {1} the setting in the note {0}", "Switch {1} the setting that the note {0} names",
         "The note {0} names a setting, turn it {1}", "Turn the setting written in the note {0} {1}",
         "Look in the note {0} and switch that setting {1}"),
        (words.NOTE_TITLES, SWITCH), memory=True,
    ),
    Kind(
        "chat site",
        ("Open the site that {0} sent", "Go to the address in the message from {0}",
         "Visit the site from the chat with {0}", "{0} sent me a site, open it", "Browse to the site {0} wrote"),
        (words.CONTACTS,), memory=True,
    ),
    Kind(
        "note app",
        ("Open the app named in the note {0}", "Start the app from the note {0}",
         "The note {0} names an app, open it", "Launch the app that the note {0} says to use",
         "Look in the note {0} and open that app"),
        (words.NOTE_TITLES,), memory=True,
    ),
    Kind(
        "pass number",
        ("Send {0} the number of {1}", "Text {0} the phone number of {1}", "{0} needs the number of {1}, send it",
         "Look up the number of {1} and send it to {0}", "Message the number of {1} to {0}"),
        (words.CONTACTS, words.CONTACTS), memory=True,
    ),
    Kind(
        "event alarm",
        ("Set an alarm for {1} on {0}", "Add an alarm for the time of {1} on {0}",
         "Wake me up for the {1} event of {0}", "Create an alarm at the time of {1} on {0}",
         "I need an alarm for {1} on {0}"),
        (words.DAYS, words.EVENTS), memory=True,
    ),
)  # fmt: skip

KINDS: dict[str, Kind] = {kind.name: kind for kind in (*PLAIN, *REMEMBERED)}


def key(kind: str, values: Values) -> str:
    """What is asked, however it is said."""
    return ":".join((kind, *values))


def _hash(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:8])


def _allowed(kind: Kind) -> Iterable[Values]:
    for values in product(*kind.values):
        match kind.name, values:
            case "pass number", (one, other) if one == other:
                continue  # nobody sends a person their own number
            case "contact add", _ if _hash(" ".join(values)) % 8:
                continue  # of all pairs, some
            case "category", (category, label) if label not in words.SETTINGS[category]:
                continue
        yield values


@lru_cache(maxsize=1)
def _held_out() -> frozenset[str]:
    """The test keys: of each kind the share that comes first by hash, but never the last goals with some word."""
    held: list[tuple[str, Values]] = []
    seen: set[str] = set()
    for kind in KINDS.values():
        ranked = sorted(_allowed(kind), key=lambda values: _hash(key(kind.name, values)))
        cut = max(1, round(HELD_OUT * len(ranked)))
        held += ((kind.name, values) for values in ranked[:cut])
        seen |= {word for values in ranked[cut:] for value in values for word in value.split()}
    return frozenset(
        key(name, values)
        for name, values in held
        if all(word in seen for value in values for word in value.split())
    )


@lru_cache(maxsize=128)
def choices(kind: str, split: Split) -> tuple[Values, ...]:
    """The parameters of every goal of a kind that a split may ask."""
    held = _held_out()
    return tuple(v for v in _allowed(KINDS[kind]) if (key(kind, v) in held) == (split == "test"))
