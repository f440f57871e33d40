"""Random rendered interfaces and questions on them: what the tiny base is pre-trained on.

In: a seeded random generator. Out: sentences in the grammar of training: words to find, read, type or judge,
screens that were drawn at random from the phone's words, and the one right action on each. No phone runs here:
no app, no state, no goal, no episode; one screen has nothing to do with the next but the words that are asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from uivlm.actions.action import Action, Finish, Point, Swipe, Tap, Type
from uivlm.actions.language import Language
from uivlm.devices.sim.canvas import ACCENTS, ROWS, Box, Canvas, theme
from uivlm.devices.sim.words import lexicon
from uivlm.episode import Screen
from uivlm.sentences.sentence import Picture, Sentence, Words

SIZES = ((270, 540), (270, 600), (288, 576), (300, 600), (324, 648))  # width, height of the phones, pixels
COMMON = tuple(  # plain English around what is asked for
    "a about activate add address after again alarm all an and any app application apps are as at back be before below "
    "bookmark bookmarks bring browse browser buy by call called can cart change chat check clear click clock close come "
    "contact contacts could create delete did disable do does done down drop dismiss each enable end enter find finish "
    "first fix for friend from get give go goes got has have head help her here him his home how i if in into is it item "
    "its just keep know last launch leave let like line list load look make me menu mentioned mention message messages "
    "minute move my name named need new next no not note notes now number of off ok on once one onto open option or order "
    "our out over page panel pay people person phone pick place please product pull purchase put read reminder remove "
    "reply ring run said save saved say saying says schedule screen search see send set setting settings shop should show "
    "shut site so some start stop store swipe switch take tap tell text that the their them then there these thing things "
    "this through time title to toggle turn type under until up use using via view visit wake want was we web webpage "
    "website what whatever when where which who whose will wish with within without word words would write written yes you "
    "your".split()
)


def vocabulary() -> tuple[str, ...]:
    """Every word of a lesson: the phone's, common English, and those of actions and questions."""
    spoken = "tap at swipe from to Input text press back home enter complete impossible what says is on type".split()
    return (*lexicon(), *COMMON, *(word.capitalize() for word in COMMON), *spoken)


@dataclass(frozen=True, slots=True)
class Label:
    """Something on a screen that can be asked for."""

    text: str
    box: Box  # where a finger reaches it
    value: str = ""  # what stands beside it
    on: bool | None = None  # a switch's state
    field: bool = False  # a text field

    @property
    def middle(self) -> Point:
        return Point(self.box.y + self.box.height / 2, self.box.x + self.box.width / 2)


@dataclass(frozen=True, slots=True)
class Interface:
    screen: Screen
    labels: tuple[Label, ...]


def interface(rng: Random, wanted: tuple[str, ...] = (), banned: tuple[str, ...] = ()) -> Interface:
    """A random screen that holds each of the `wanted` labels and none of the `banned` ones."""
    width, height = rng.choice(SIZES)
    canvas = Canvas(width, height, theme(rng.random() < 0.5, rng.randrange(len(ACCENTS))))
    return _Drawing(rng, canvas, list(wanted), set(banned) | set(wanted)).draw()


def phrase(rng: Random, most: int = 3) -> str:
    """One to `most` words of the lexicon."""
    count = 1 if rng.random() < 0.6 else rng.randint(1, most)
    return " ".join(rng.choice(lexicon()) for _ in range(count))


class _Drawing:
    """One random screen in the making: fills rows from the top, hands out wanted labels first."""

    def __init__(self, rng: Random, canvas: Canvas, wanted: list[str], used: set[str]) -> None:
        self.rng, self.canvas, self.wanted, self.used = rng, canvas, wanted, used
        self.may_cover = not wanted  # a dialog would hide what is wanted
        self.labels: list[Label] = []

    def fresh(self, most: int = 3) -> str:
        """A label: now and then one of those wanted, else one not on this screen yet."""
        if self.wanted and self.rng.random() < 0.3:
            return self.wanted.pop()
        while (text := phrase(self.rng, most)) in self.used:
            pass
        self.used.add(text)
        return text

    def draw(self) -> Interface:
        rng, canvas = self.rng, self.canvas
        canvas.status_bar(f"{rng.randint(0, 23)}:{rng.randint(0, 59):02d}")
        row, tabs_below = 1, rng.random() < 0.25
        if rng.random() < 0.75:
            canvas.app_bar(self.fresh(2), back=rng.random() < 0.8, action=rng.choice(("", "", "plus", "search", "more")))
            row = 2
        if rng.random() < 0.25:
            row += 1
        last = 13 if tabs_below else 14
        parts: tuple[Callable[[int], int], ...] = (self.rows, self.rows, self.tiles, self.bubbles, self.fields, self.page)
        while row <= last:
            row = rng.choice(parts)(row) if rng.random() < 0.9 else row + 1
            if rng.random() < 0.15:
                break
        for text in self.wanted:  # what found no place by chance takes a row of its own at the end
            free = [r for r in range(2, last + 1) if not any(_crosses(label, r) for label in self.labels)]
            self.row(rng.choice(free) if free else last, text)
        if tabs_below:
            names = tuple(self.fresh(1) for _ in range(rng.choice((2, 3))))
            self.add_all(names, canvas.tabs(14, names, rng.randrange(len(names))))
        canvas.nav_bar()
        if self.may_cover and rng.random() < 0.12:
            self.dialog()
        return Interface(canvas.screen(), tuple(self.labels))

    def add_all(self, names: tuple[str, ...], boxes: tuple[Box, ...]) -> None:
        self.labels += [Label(name, box) for name, box in zip(names, boxes, strict=True)]

    def row(self, row: int, text: str) -> None:
        rng = self.rng
        # a row that was drawn before is wiped, with its labels: two texts on one line could not be read
        self.labels = [label for label in self.labels if not _crosses(label, row)]
        self.canvas.panel(row, 1, 0, 1, self.canvas.theme.paper, round_to=0)
        pick = rng.random()
        switch = rng.random() < 0.5 if pick < 0.35 else None
        value = self.fresh(1) if pick > 0.75 else ""
        self.labels.append(Label(text, self.canvas.row(row, text, value=value, switch=switch), value, switch))

    def rows(self, row: int) -> int:
        stop = min(14, row + self.rng.randint(1, 8))
        for r in range(row, stop):
            self.row(r, self.fresh())
        return stop

    def tiles(self, row: int) -> int:
        if row + 3 > 14:
            return row + 1
        for column in range(3):
            if self.rng.random() < 0.85:
                text = self.fresh(1)
                colour = (self.rng.randrange(40, 210), self.rng.randrange(40, 210), self.rng.randrange(40, 210))
                self.labels.append(Label(text, self.canvas.tile(row, column / 3, 1 / 3, text, colour)))
        return row + 3

    def bubbles(self, row: int) -> int:
        for r in range(row, min(14, row + self.rng.randint(1, 4))):
            self.canvas.bubble(r, phrase(self.rng, 4), mine=self.rng.random() < 0.5)
            row = r + 1
        return row

    def fields(self, row: int) -> int:
        rng, canvas = self.rng, self.canvas
        if rng.random() < 0.5:
            hint, text = self.fresh(2), phrase(rng) if rng.random() < 0.4 else ""
            focused = rng.random() < 0.5
            if rng.random() < 0.4:
                box = canvas.field(row, text, hint, focused=focused, width=0.66)
                name = self.fresh(1)
                self.labels.append(Label(name, canvas.button(row, name, x=0.72, width=0.25)))
            else:
                box = canvas.field(row, text, hint, focused=focused)
            self.labels.append(Label(text or hint, box, field=True))
            return row + 1
        if rng.random() < 0.5:
            name = self.fresh(2)
            self.labels.append(Label(name, canvas.button(row, name, filled=rng.random() < 0.7)))
        else:
            for i, name in enumerate((self.fresh(1), self.fresh(1))):
                box = canvas.button(row, name, x=0.04 + i * 0.48, width=0.44, filled=bool(i))
                self.labels.append(Label(name, box))
        return row + 1

    def page(self, row: int) -> int:
        if self.rng.random() < 0.3:
            names = tuple(self.fresh(1) for _ in range(self.rng.choice((2, 3))))
            self.add_all(names, self.canvas.tabs(row, names, self.rng.randrange(len(names))))
            return row + 1
        stop = min(14, row + self.rng.randint(1, 3))
        for r in range(row, stop):
            align, x = self.rng.choice((("left", 0.05), ("center", 0.5)))
            self.canvas.text(r, x, phrase(self.rng, 4), room=0.9, align=align)
        return stop

    def dialog(self) -> None:
        lines = tuple(phrase(self.rng, 3) for _ in range(self.rng.choice((1, 2))))
        names = tuple(self.fresh(1) for _ in range(self.rng.choice((1, 2, 2))))
        self.labels.clear()
        self.add_all(names, self.canvas.dialog(self.rng.randint(4, 8), lines, names))


def _crosses(label: Label, row: int) -> bool:
    """Does the label reach into this row?"""
    return label.box.y < (row + 0.9) / ROWS and label.box.y + label.box.height > (row + 0.1) / ROWS


# -- questions ----------------------------------------------------------------------------------------------

LOOK_ON = Swipe(Point(0.7, 0.5), Point(0.3, 0.5))  # the answer where what was asked for is not on the screen


@dataclass(frozen=True, slots=True)
class Lesson:
    """A sentence whose right actions are trained, and for each of its screens the labels it asks for."""

    sentence: Sentence
    asked: tuple[tuple[Label, ...], ...]


def lesson(rng: Random, bins: int) -> Lesson:
    """One sentence over a few random screens."""
    say = Language(bins).say
    match rng.random():
        case p if p < 0.6:
            return _hunt(rng, say, screens=3)
        case p if p < 0.85:
            return _remember(rng, say, screens=3)
        case p if p < 0.93:
            return _copy(rng, say)
        case _:
            return _judge(rng, say)


def _answer(words: str) -> Words:
    return Words(words, trained=True, closed=True)


def _wrapped(rng: Random, text: str) -> str:
    """The text as people write: some words around it, sometimes in small letters."""
    before = " ".join(rng.choice(COMMON) for _ in range(rng.choice((0, 0, 1, 2, 3))))
    after = " ".join(rng.choice(COMMON) for _ in range(rng.choice((0, 0, 0, 1, 2))))
    words = text.lower() if rng.random() < 0.3 else text
    return " ".join(part for part in (before, words, after) if part)


def _hunt(rng: Random, say: Callable[[Action], str], screens: int) -> Lesson:
    """Words first, then screens: each shows one of them, or none (look on)."""
    targets = tuple({phrase(rng) for _ in range(rng.choice((1, 1, 2, 3)))})
    pieces: list[Words | Picture] = [Words(", ".join(_wrapped(rng, t) for t in targets) + "\n")]
    asked = []
    for _ in range(screens):
        target = rng.choice(targets) if rng.random() < 0.85 else None
        pieces += (seek := _seek(rng, say, target, targets))[0]
        asked.append(seek[1])
    return Lesson(tuple(pieces), tuple(asked))


def _seek(
    rng: Random, say: Callable[[Action], str], target: str | None, banned: tuple[str, ...]
) -> tuple[list[Words | Picture], tuple[Label, ...]]:
    """A random screen with the target, where there is one, and the action that follows; and the label that it is on."""
    shown = interface(rng, (target,) if target else (), tuple(t for t in banned if t != target))
    found = tuple(label for label in shown.labels if label.text == target)
    return [Picture(shown.screen), Words("\n"), _answer(say(Tap(found[0].middle) if found else LOOK_ON))], found


def _remember(rng: Random, say: Callable[[Action], str], screens: int) -> Lesson:
    """A screen says what a key stands for; on a later one that value is to be tapped, or typed."""
    key, value = phrase(rng, 2), phrase(rng, 1)
    while value == key:
        value = phrase(rng, 1)
    pieces: list[Words | Picture] = [Words(_wrapped(rng, f"what {key} says") + "\n"), Picture(_pair_screen(rng, key, value))]
    pieces += [Words("\n"), _answer(say(Finish("complete")))]
    asked: list[tuple[Label, ...]] = [()]
    for _ in range(screens - 1):
        if rng.random() < 0.3:
            pieces += [Picture(_typing_screen(rng)), Words("\n"), _answer(say(Type(value)))]
            asked.append(())
        else:
            pieces += (seek := _seek(rng, say, value if rng.random() < 0.8 else None, (value,)))[0]
            asked.append(seek[1])
    return Lesson(tuple(pieces), tuple(asked))


def _copy(rng: Random, say: Callable[[Action], str]) -> Lesson:
    """Type what the words before the screen say."""
    text = phrase(rng, 4)
    words = Words(f"{_wrapped(rng, 'type')} {text}\n")
    return Lesson((words, Picture(_typing_screen(rng)), Words("\n"), _answer(say(Type(text)))), ((),))


def _judge(rng: Random, say: Callable[[Action], str]) -> Lesson:
    """Is a switch on? What stands beside a label?"""
    labels: list[Label] = []
    while not labels:
        shown = interface(rng)
        labels = [label for label in shown.labels if label.value or label.on is not None]
    label = rng.choice(labels)
    if label.on is not None:
        words, action = f"is {label.text} on", say(Finish("complete" if label.on else "impossible"))
    else:
        words, action = f"what {label.text} says", say(Type(label.value))
    return Lesson((Words(f"{words}\n"), Picture(shown.screen), Words("\n"), _answer(action)), ((label,),))


def _pair_screen(rng: Random, key: str, value: str) -> Screen:
    """A screen whose title is the key and whose text holds the value; or a row with both."""
    width, height = rng.choice(SIZES)
    canvas = Canvas(width, height, theme(rng.random() < 0.5, rng.randrange(len(ACCENTS))))
    canvas.status_bar("9:00")
    row = rng.choice((2, 3, 4))
    filler = " ".join(rng.choice(COMMON) for _ in range(rng.choice((0, 1, 2))))
    told = f"{filler} {value}".strip() if rng.random() < 0.6 else f"{value} {filler}".strip()
    canvas.app_bar(key)
    if rng.random() < 0.5:
        canvas.text(row, 0.05, told, room=0.9)
    else:
        canvas.bubble(row, told, mine=False)
    canvas.nav_bar()
    return canvas.screen()


def _typing_screen(rng: Random) -> Screen:
    """A screen with one focused, empty field: what is typed lands there."""
    width, height = rng.choice(SIZES)
    canvas = Canvas(width, height, theme(rng.random() < 0.5, rng.randrange(len(ACCENTS))))
    canvas.status_bar("9:00")
    canvas.app_bar(phrase(rng, 2))
    row = rng.choice((2, 3, 4, 14))
    if row == 14:
        canvas.field(row, "", phrase(rng, 2), focused=True, width=0.66)
        canvas.button(row, phrase(rng, 1), x=0.72, width=0.25)
    else:
        canvas.field(row, "", phrase(rng, 2), focused=True)
    canvas.nav_bar()
    return canvas.screen()
