"""The goals of the simulated phone: their templates, wordings, and the split into train and test.

`parameters_in_split(template, split)` lists the parameters of all goals of a template in a split. The hash of
a goal's key (template and parameters) decides whether it belongs to the test split. Every word of a test goal
also occurs in a train goal.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import product
from typing import Literal

from uivlm.devices.sim import labels

Split = Literal["train", "test"]
GoalParameters = tuple[str, ...]
TEST_FRACTION = 0.2  # of the goal keys


@dataclass(frozen=True, slots=True)
class GoalTemplate:
    """A type of goal: its wordings ({0}, {1}: parameters) and the choices of its parameters."""

    name: str
    wordings: tuple[str, ...]
    parameter_choices: tuple[GoalParameters, ...]
    weight: float = 1.0  # relative frequency
    needs_memory: bool = False  # does it need something that only a past screen showed?
    absent_rate: float = 0.0  # fraction of these goals that are impossible


ON_OFF = ("on", "off")
SETTING_LABELS = tuple(label for switches in labels.SETTINGS.values() for label in switches)
SITE_TITLES = tuple(labels.SITES)
PHONE_NUMBERS = tuple(
    f"{first} {second}" for first, second in product(labels.DIGIT_PAIRS, labels.DIGIT_PAIRS)
)

BASIC_TEMPLATES = (
    GoalTemplate(
        "open",
        ("Open {0}", "Open the {0} app", "Start {0}", "Launch the app {0}", "I want to use {0}", "Go to {0}"),
        (labels.APPS,), 1.3, absent_rate=0.3,
    ),
    GoalTemplate(
        "toggle",
        ("Turn {1} {0}", "Switch {0} {1}", "Turn {0} {1} in the settings", "Please turn {1} {0}",
         "Set {0} to {1}", "I want {0} {1}"),
        (SETTING_LABELS, ON_OFF), 2.0, absent_rate=0.18,
    ),
    GoalTemplate(
        "category",
        ("Show {1} in the {0} settings", "Go to the {0} settings and find {1}",
         "Where is {1} in the {0} settings?",
         "Find {1} on the {0} page of the settings", "Take me to {1} in the {0} settings"),
        (tuple(labels.SETTINGS), SETTING_LABELS),
    ),
    GoalTemplate(
        "alarm add",
        ("Set an alarm for {0}", "Add an alarm at {0}", "Wake me up at {0}", "Create a new alarm for {0}",
         "I need an alarm at {0}", "Make an alarm for {0}"),
        (labels.TIMES,),
    ),
    GoalTemplate(
        "alarm switch",
        ("Turn {1} the {0} alarm", "Switch {1} the alarm at {0}", "Turn the alarm for {0} {1}",
         "Please switch the {0} alarm {1}", "The alarm at {0} should be {1}"),
        (labels.TIMES, ON_OFF), absent_rate=0.18,
    ),
    GoalTemplate(
        "number",
        ("Show the number of {0}", "What is the phone number of {0}?", "Look up {0} in the contacts",
         "Find the contact {0}", "Open the contact page of {0}", "I need the number of {0}"),
        (labels.CONTACTS,), absent_rate=0.2,
    ),
    GoalTemplate(
        "contact add",
        ("Add {0} to the contacts with the number {1}", "Save the number {1} for {0}",
         "Create a contact {0} with number {1}", "New contact: {0}, number {1}",
         "Store {0} as a contact, {1}"),
        (labels.CONTACTS, PHONE_NUMBERS),
    ),
    GoalTemplate(
        "message",
        ("Send {0} the message {1}", "Text {0}: {1}", "Write to {0}: {1}", "Tell {0} {1}",
         "Send a message to {0} that says {1}", "Message {0} with the words {1}"),
        (labels.CONTACTS, (*labels.PHRASES, *labels.SITES.values())), 1.6, absent_rate=0.18,
    ),
    GoalTemplate(
        "first",
        ("Show the first message of the chat with {0}", "Scroll to the start of the chat with {0}",
         "How did the chat with {0} start?", "Go to the oldest message of {0}",
         "Show me where my chat with {0} begins"),
        (labels.CONTACTS,), 1.3,
    ),
    GoalTemplate(
        "note add",
        ("Write a note {0} with the text {1}", "Create a note {0} that says {1}", "Add a note {0}: {1}",
         "Note down {1} under the title {0}", "Make a new note called {0} with {1}"),
        ((*labels.NOTE_TITLES, *SITE_TITLES), labels.NOTE_TEXTS),
    ),
    GoalTemplate(
        "note open",
        ("Open the note {0}", "Show me the note {0}", "Read the note called {0}", "What is in the note {0}?",
         "Find my note {0}"),
        (labels.NOTE_TITLES,), absent_rate=0.2,
    ),
    GoalTemplate(
        "note delete",
        ("Delete the note {0}", "Remove the note {0}", "Get rid of the note {0}", "Please delete my note {0}",
         "I no longer need the note {0}"),
        (labels.NOTE_TITLES,),
    ),
    GoalTemplate(
        "cart",
        ("Put a {0} in the cart", "Add a {0} to the shopping cart",
         "Find a {0} in the shop and add it to the cart",
         "Search the shop for a {0} and put it in the cart", "I want a {0} in my cart"),
        (labels.ITEMS,), 1.3, absent_rate=0.18,
    ),
    GoalTemplate(
        "checkout",
        ("Buy the {0} in my cart", "Check out the cart with the {0}", "Order the {0} that is in the cart",
         "Pay for the {0} in the cart", "Complete the order of the {0} in my cart"),
        (labels.ITEMS,),
    ),
    GoalTemplate(
        "site",
        ("Go to {0}", "Open the site {0}", "Visit {0}", "Open {0} in the browser", "Show me the page {0}",
         "Browse to {0}"),
        (tuple(labels.SITES.values()),),
    ),
    GoalTemplate(
        "bookmark",
        ("Open the bookmark {0}", "Open my bookmark {0} in the browser", "Show the page saved as {0}",
         "Go to the bookmark {0}", "Use the bookmark called {0}"),
        (SITE_TITLES,), absent_rate=0.2,
    ),
    GoalTemplate(
        "page",
        ("Open {0} from page {1} of the home screen", "Start the {0} app on home page {1}",
         "Go to page {1} of the home screen and open {0}", "On page {1} of the home screen tap {0}",
         "Launch {0}, it is on home page {1}"),
        (labels.APPS, labels.DIGITS), 1.3,
    ),
    GoalTemplate(
        "day",
        ("Show {0} in the calendar", "Open {0} in the calendar", "Go to {0} in my calendar",
         "What is planned for {0}?", "Turn the calendar to {0}"),
        (labels.DAYS,),
    ),
    GoalTemplate(
        "event",
        ("Open the event {1} on {0}", "Show the {1} event on {0} in the calendar",
         "Look up {1} on {0} in the calendar", "Open {1} of {0} in my calendar",
         "At what time is {1} on {0}?"),
        (labels.DAYS, labels.EVENTS),
    ),
    GoalTemplate(
        "quick",
        ("Turn {1} {0} in the quick panel", "Switch {0} {1} from the quick panel",
         "Quick panel: turn {0} {1}",
         "Pull down the quick panel and turn {1} {0}", "Use the quick panel to switch {1} {0}"),
        (labels.QUICK, ON_OFF),
    ),
    GoalTemplate(
        "find",
        ("Search the apps for {0} and open it", "Find the app {0} with the search and open it",
         "Type {0} in the app search and start it", "Use the app search to open {0}",
         "Look for {0} in the app search and launch it"),
        (labels.APPS,),
    ),
    GoalTemplate(
        "home",
        ("Leave {0} and go to the home screen", "Close {0}", "Go home from {0}", "Exit the {0} app",
         "I am done with {0}, show the home screen"),
        (labels.APPS,), 0.6,
    ),
    GoalTemplate(
        "back",
        ("Go back to the list of {0}", "Go one page back in {0}", "Return to the main page of {0}",
         "Leave this page of {0}", "Back to {0}"),
        (("Settings", "Contacts", "Messages", "Notes", "Calendar"),), 0.6,
    ),
)  # fmt: skip

MEMORY_TEMPLATES = (
    GoalTemplate(
        "note message",
        ("Text the person in the note {0}: {1}", "Send {1} to the person named in the note {0}",
         "Tell the person from the note {0} {1}", "The note {0} names a person, write {1} to them",
         "Message whoever is in the note {0} with {1}"),
        (labels.NOTE_TITLES, labels.PHRASES), needs_memory=True,
    ),
    GoalTemplate(
        "chat alarm",
        ("Set an alarm for the time in the message from {0}", "Add an alarm for the time that {0} wrote",
         "{0} wrote me a time, set an alarm for it", "Wake me up at the time in the chat with {0}",
         "Create an alarm for when {0} said"),
        (labels.CONTACTS,), needs_memory=True,
    ),
    GoalTemplate(
        "note cart",
        ("Put the thing from the note {0} in the cart", "Add what the note {0} says to buy to the cart",
         "The note {0} names a thing, add it to the cart",
         "Find the item of the note {0} and put it in the cart",
         "Shop for the thing in the note {0}"),
        (labels.NOTE_TITLES,), needs_memory=True,
    ),
    GoalTemplate(
        "note setting",
        ("Turn {1} the setting in the note {0}", "Switch {1} the setting that the note {0} names",
         "The note {0} names a setting, turn it {1}", "Turn the setting written in the note {0} {1}",
         "Look in the note {0} and switch that setting {1}"),
        (labels.NOTE_TITLES, ON_OFF), needs_memory=True,
    ),
    GoalTemplate(
        "chat site",
        ("Open the site that {0} sent", "Go to the address in the message from {0}",
         "Visit the site from the chat with {0}", "{0} sent me a site, open it",
         "Browse to the site {0} wrote"),
        (labels.CONTACTS,), needs_memory=True,
    ),
    GoalTemplate(
        "note app",
        ("Open the app named in the note {0}", "Start the app from the note {0}",
         "The note {0} names an app, open it", "Launch the app that the note {0} says to use",
         "Look in the note {0} and open that app"),
        (labels.NOTE_TITLES,), needs_memory=True,
    ),
    GoalTemplate(
        "pass number",
        ("Send {0} the number of {1}", "Text {0} the phone number of {1}",
         "{0} needs the number of {1}, send it",
         "Look up the number of {1} and send it to {0}", "Message the number of {1} to {0}"),
        (labels.CONTACTS, labels.CONTACTS), needs_memory=True,
    ),
    GoalTemplate(
        "event alarm",
        ("Set an alarm for {1} on {0}", "Add an alarm for the time of {1} on {0}",
         "Wake me up for the {1} event of {0}", "Create an alarm at the time of {1} on {0}",
         "I need an alarm for {1} on {0}"),
        (labels.DAYS, labels.EVENTS), needs_memory=True,
    ),
)  # fmt: skip

GOAL_TEMPLATES: dict[str, GoalTemplate] = {
    template.name: template for template in (*BASIC_TEMPLATES, *MEMORY_TEMPLATES)
}


def goal_key(template_name: str, parameters: GoalParameters) -> str:
    """Identify a goal independently of its wording."""
    return ":".join((template_name, *parameters))


def _hash(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:8])


def _valid_parameters(template: GoalTemplate) -> Iterable[GoalParameters]:
    for values in product(*template.parameter_choices):
        match template.name, values:
            case "pass number", (receiver, contact) if receiver == contact:
                continue  # nobody is sent their own number
            case "contact add", _ if _hash(" ".join(values)) % 8:
                continue  # one eighth of all pairs
            case "category", (category, label) if label not in labels.SETTINGS[category]:
                continue
        yield values


@lru_cache(maxsize=1)
def _test_keys() -> frozenset[str]:
    """Return the goal keys of the test split: the first by hash, if train goals have their words."""
    candidates: list[tuple[str, GoalParameters]] = []
    train_words: set[str] = set()
    for name, template in GOAL_TEMPLATES.items():
        ranked = sorted(_valid_parameters(template), key=lambda values: _hash(goal_key(name, values)))
        cut = max(1, round(TEST_FRACTION * len(ranked)))
        candidates += [(name, values) for values in ranked[:cut]]
        train_words |= {word for values in ranked[cut:] for value in values for word in value.split()}
    return frozenset(
        goal_key(name, values)
        for name, values in candidates
        if all(word in train_words for value in values for word in value.split())
    )


@lru_cache(maxsize=128)
def parameters_in_split(template_name: str, split: Split) -> tuple[GoalParameters, ...]:
    """Return the parameters of all goals of a template in a split."""
    test_keys = _test_keys()
    return tuple(
        parameters
        for parameters in _valid_parameters(GOAL_TEMPLATES[template_name])
        if (goal_key(template_name, parameters) in test_keys) == (split == "test")
    )
