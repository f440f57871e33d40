"""The words of lessons: plain English, the meaning of icons, and related words.

In: the simulated phone's labels. Out: tables for lessons, and `vocabulary()`, the words of the tokenizer.
"""

from collections import defaultdict
from collections.abc import Iterator

from uivlm.devices.sim import labels as words
from uivlm.devices.sim.labels import LABEL_WORDINGS, lexicon

# Plain English around a request.
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
COMMON_WORDS = tuple(ENGLISH.split())
UI_WORDS = frozenset(word.lower() for word in lexicon())
ICON_WORDS = {  # the meaning of an icon, by its UI type
    "ICON_SWITCH_ON": "on",
    "ICON_SWITCH_OFF": "off",
    "ICON_PLUS": "plus",
    "ICON_SEARCH": "search",
    "ICON_MORE": "more",
    "ICON_CURSOR": "type",
    "ICON_V_BACKWARD": "back",
    "ICON_NAV_BAR_CIRCLE": "home",
}
# Words of actions and questions.
ACTION_WORDS = """
tap at swipe from to Input text press back home enter complete impossible what says is on type
up down left right plus more search
"""
# Related words: the common knowledge that a published language model already has. A request for the right
# side leads to the left side.
APP_CUES: dict[str, tuple[str, ...]] = {
    "Clock": ("alarm", "alarms", "wake"),
    "Browser": ("site", "website", "web", "visit", "browse", "browser", "bookmark", "bookmarks", "address"),
    "Contacts": ("contact", "contacts", "phone number", "number"),
    "Messages": ("message", "text", "tell", "chat", "send", "write", "reply"),
    "Notes": ("note", "notes", "write down", "reminder"),
    "Shop": ("cart", "buy", "order", "pay", "product", "purchase", "item"),
    "Calendar": ("calendar", "schedule"),
    "Settings": ("setting", "settings", "switch", "turn on", "turn off", "toggle", "enable", "disable"),
}
PAY_LABELS = (*LABEL_WORDINGS["checkout"], *LABEL_WORDINGS["buy"])
CONTROL_CUES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(LABEL_WORDINGS["delete"], ("delete", "remove", "drop", "clear", "no need")),
    **dict.fromkeys(LABEL_WORDINGS["cart"], ("cart", "check out", "buy", "order", "pay")),
    **dict.fromkeys(PAY_LABELS, ("check out", "buy", "order", "pay")),
    **dict.fromkeys(LABEL_WORDINGS["alarms"], ("alarm", "alarms", "wake")),
    **dict.fromkeys(LABEL_WORDINGS["saved"], ("bookmark", "bookmarks", "saved")),
    **dict.fromkeys(LABEL_WORDINGS["save"], ("save", "create", "new", "add")),
    **dict.fromkeys(LABEL_WORDINGS["send"], ("send", "message", "tell", "text")),
    "plus": ("add", "create", "new", "make", "save"),
}
# Objects related to a label; and labels that an object alone implies.
RELATED_ITEMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("Clock", *LABEL_WORDINGS["alarms"]), words.TIMES),
    "Browser": tuple(words.SITES.values()),
    **dict.fromkeys(LABEL_WORDINGS["saved"], tuple(words.SITES)),
    **dict.fromkeys(("Contacts", "Messages", *LABEL_WORDINGS["send"]), words.CONTACTS),
    "Notes": words.NOTE_TITLES,
    **dict.fromkeys(("Shop", *LABEL_WORDINGS["cart"], *PAY_LABELS), words.ITEMS),
    "Calendar": (*words.DAYS, *words.EVENTS),
    "Settings": (*words.SETTINGS, *(label for labels in words.SETTINGS.values() for label in labels)),
    **words.SETTINGS,
}
SELF_EVIDENT_LABELS = ("Clock", "Browser", "Shop", "Calendar", "Settings", *words.SETTINGS)
SETTING_CUES: dict[str, tuple[str, ...]] = dict.fromkeys(words.SETTINGS, ())
# Groups by their share in lessons: words related to settings take longest to learn.
CUE_GROUPS = (APP_CUES, {"Settings": APP_CUES["Settings"]}, SETTING_CUES, SETTING_CUES, CONTROL_CUES)
SERIES = (words.DAYS, words.DIGITS)  # ordered items: the next one is to the right
TURN_TEMPLATES = ("turn to {}", "go to {}", "page {}", "show page {}", "{} is the page")
ITEM_ON_PAGE_TEMPLATES = (
    "{1} on {0}",
    "{1} of {0}",
    "on {0} {1}",
    "{1} from page {0}",
    "{0} {1}",
    "{1} is on {0}",
)  # one, and what it has
TYPE_TEMPLATES = (
    "type {}",
    "write {}",
    "enter {}",
    "say {}",
    "{} is the text",
    "with the text {}",
    "that says {}",
)
FIELD_TEMPLATES = (
    "{} {}",
    "{} is {}",
    "the {} {}",
    "with {} {}",
    "{}: {}",
)  # a field, and what belongs into it


def _filler_words() -> Iterator[str]:
    """Words that no screen shows and that relate to no label: they are never a target."""
    cues = {
        word for group in CUE_GROUPS for phrases in group.values() for cue in phrases for word in cue.split()
    }
    return (word for word in COMMON_WORDS if word not in {*UI_WORDS, *ICON_WORDS.values(), *cues})


FILLER_WORDS = tuple(_filler_words())


def _labels_by_cue() -> dict[str, frozenset[str]]:
    labels_by_cue = defaultdict(set)
    for group in CUE_GROUPS:
        for label, cues in group.items():
            for phrase in (*cues, *RELATED_ITEMS.get(label, ())):
                labels_by_cue[phrase].add(label)
    return {phrase: frozenset(labels) for phrase, labels in labels_by_cue.items()}


LABELS_BY_CUE = _labels_by_cue()  # the labels that a related word may mean


def vocabulary() -> tuple[str, ...]:
    """Every word of a lesson: the phone's, common English, and those of actions and questions."""
    return (*lexicon(), *COMMON_WORDS, *(word.capitalize() for word in COMMON_WORDS), *ACTION_WORDS.split())
