"""The words of lessons: plain English, what signs mean, and what belongs to what.

In: the phone's words. Out: tables for `lessons.py`, and `vocabulary()`, which the tiny base's tokenizer holds.
"""

from collections import defaultdict
from collections.abc import Iterator

from uivlm.devices.sim import words
from uivlm.devices.sim.words import WORDINGS, lexicon

# Plain English around what is asked for.
ENGLISH = """
a about activate add address after again alarm all an and any app application apps are as at back be before
below bookmark bookmarks bring browse browser buy by call called can cart change chat check clear click
clock close come contact contacts could create delete did disable do does done down drop dismiss each enable
end enter find finish first fix for friend from get give go goes got has have head help her here him his
home how i if in into is it item its just keep know last launch leave let like line list load look make me
menu mentioned mention message messages minute move my name named need new next no not note notes now number
of off ok on once one onto open option or order our out over page panel pay people person phone pick place
please product pull purchase put read reminder remove reply ring run said save saved say saying says
schedule screen search see send set setting settings shop should show shut site so some start stop store
swipe switch take tap tell text that the their them then there these thing things this through time title to
toggle turn type under until up use using via view visit wake want was we web webpage website what whatever
when where which who whose will wish with within without word words would write written yes you your
"""
COMMON = tuple(ENGLISH.split())
SHOWN = frozenset(word.lower() for word in lexicon())
SIGNS = {  # what they mean, by their kinds
    "ICON_SWITCH_ON": "on",
    "ICON_SWITCH_OFF": "off",
    "ICON_PLUS": "plus",
    "ICON_SEARCH": "search",
    "ICON_MORE": "more",
    "ICON_CURSOR": "type",
    "ICON_V_BACKWARD": "back",
    "ICON_NAV_BAR_CIRCLE": "home",
}
# Words of actions, and of the questions below.
SPOKEN = """
tap at swipe from to Input text press back home enter complete impossible what says is on type
up down left right plus more search
"""
# What belongs to what: the common knowledge that a published language model brings along. Where the right side is asked
# for, the left one is where to go.
APPS: dict[str, tuple[str, ...]] = {
    "Clock": ("alarm", "alarms", "wake"),
    "Browser": ("site", "website", "web", "visit", "browse", "browser", "bookmark", "bookmarks", "address"),
    "Contacts": ("contact", "contacts", "phone number", "number"),
    "Messages": ("message", "text", "tell", "chat", "send", "write", "reply"),
    "Notes": ("note", "notes", "write down", "reminder"),
    "Shop": ("cart", "buy", "order", "pay", "product", "purchase", "item"),
    "Calendar": ("calendar", "schedule"),
    "Settings": ("setting", "settings", "switch", "turn on", "turn off", "toggle", "enable", "disable"),
}
PAYING = (*WORDINGS["checkout"], *WORDINGS["buy"])
CONTROLS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(WORDINGS["delete"], ("delete", "remove", "drop", "clear", "no need")),
    **dict.fromkeys(WORDINGS["cart"], ("cart", "check out", "buy", "order", "pay")),
    **dict.fromkeys(PAYING, ("check out", "buy", "order", "pay")),
    **dict.fromkeys(WORDINGS["alarms"], ("alarm", "alarms", "wake")),
    **dict.fromkeys(WORDINGS["saved"], ("bookmark", "bookmarks", "saved")),
    **dict.fromkeys(WORDINGS["save"], ("save", "create", "new", "add")),
    **dict.fromkeys(WORDINGS["send"], ("send", "message", "tell", "text")),
    "plus": ("add", "create", "new", "make", "save"),
}
# Things that are spoken of with them, and those that say enough by themselves.
THINGS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("Clock", *WORDINGS["alarms"]), words.TIMES),
    "Browser": tuple(words.SITES.values()),
    **dict.fromkeys(WORDINGS["saved"], tuple(words.SITES)),
    **dict.fromkeys(("Contacts", "Messages", *WORDINGS["send"]), words.CONTACTS),
    "Notes": words.NOTE_TITLES,
    **dict.fromkeys(("Shop", *WORDINGS["cart"], *PAYING), words.ITEMS),
    "Calendar": (*words.DAYS, *words.EVENTS),
    "Settings": (*words.SETTINGS, *(label for labels in words.SETTINGS.values() for label in labels)),
    **words.SETTINGS,
}
TELLING = ("Clock", "Browser", "Shop", "Calendar", "Settings", *words.SETTINGS)
CATEGORIES: dict[str, tuple[str, ...]] = dict.fromkeys(words.SETTINGS, ())
# Groups by their share in lessons: what belongs to the settings takes longest to learn.
RELATED = (APPS, {"Settings": APPS["Settings"]}, CATEGORIES, CATEGORIES, CONTROLS)
SERIES = (words.DAYS, words.DIGITS)  # what has an order: the next one lies to the right
TURNING = ("turn to {}", "go to {}", "page {}", "show page {}", "{} is the page")
THERE = (
    "{1} on {0}",
    "{1} of {0}",
    "on {0} {1}",
    "{1} from page {0}",
    "{0} {1}",
    "{1} is on {0}",
)  # one, and what it has
TYPING = ("type {}", "write {}", "enter {}", "say {}", "{} is the text", "with the text {}", "that says {}")
FILLING = ("{} {}", "{} is {}", "the {} {}", "with {} {}", "{}: {}")  # a field, and what belongs into it


def _neutral() -> Iterator[str]:
    """Words that no screen shows and nothing belongs to: they never are what is asked for."""
    cues = {
        word for group in RELATED for phrases in group.values() for cue in phrases for word in cue.split()
    }
    return (word for word in COMMON if word not in {*SHOWN, *SIGNS.values(), *cues})


NEUTRAL = tuple(_neutral())


def _whose() -> dict[str, frozenset[str]]:
    found = defaultdict(set)
    for group in RELATED:
        for label, cues in group.items():
            for phrase in (*cues, *THINGS.get(label, ())):
                found[phrase].add(label)
    return {phrase: frozenset(labels) for phrase, labels in found.items()}


WHOSE = _whose()  # the labels that a cue or a thing belongs to


def vocabulary() -> tuple[str, ...]:
    """Every word of a lesson: the phone's, common English, and those of actions and questions."""
    return (*lexicon(), *COMMON, *(word.capitalize() for word in COMMON), *SPOKEN.split())
