"""The words of lessons: plain English, what signs mean, and what belongs to what.

In: the phone's words. Out: tables for `lessons.py`, and `vocabulary()`, which the tiny base's tokenizer holds.
"""

from uivlm.devices.sim import words
from uivlm.devices.sim.words import lexicon

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
NEUTRAL = tuple(  # no screen shows it: it never is what is asked for
    word for word in COMMON if word not in SHOWN and word not in SIGNS.values()
)
# Words of actions, and of the questions below.
SPOKEN = """
tap at swipe from to Input text press back home enter complete impossible what says is on type
up down left right plus more search
"""
# What belongs to what: the common knowledge that a published language model brings along. Where the right side is asked
# for, the left one is where to go.
RELATED: dict[str, tuple[str, ...]] = {
    "Clock": ("alarm", "alarms", "wake", *words.TIMES[::4]),
    "Browser": ("site", "website", "web", "visit", "browse", "bookmark", "bookmarks", *words.SITES.values()),
    "Contacts": ("contact", "contacts", "person", "phone number", "number"),
    "Messages": ("message", "text", "tell", "chat", "send", "write", "reply"),
    "Notes": ("note", "notes", "write down", "reminder"),
    "Shop": ("cart", "buy", "order", "pay", "product", "purchase", *words.ITEMS),
    "Calendar": ("calendar", "schedule", *words.DAYS, *words.EVENTS),
    "Settings": ("setting", "settings", "switch", "toggle", "enable", "disable", *words.SETTINGS),
    **words.SETTINGS,
}


def vocabulary() -> tuple[str, ...]:
    """Every word of a lesson: the phone's, common English, and those of actions and questions."""
    return (*lexicon(), *COMMON, *(word.capitalize() for word in COMMON), *SPOKEN.split())
