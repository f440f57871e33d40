"""Random rendered interfaces: what the tiny base learns to read.

In: a seeded random generator. Out: screens drawn at random from the phone's widgets and words, and what on them can be
asked for. No phone runs here: no app, no state, no goal, no episode.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from uivlm.actions.action import Point
from uivlm.devices.sim.canvas import COLUMNS, ROWS, Box, Canvas
from uivlm.devices.sim.finger import aim
from uivlm.devices.sim.theme import ACCENTS, SIZES, theme
from uivlm.devices.sim.words import TIMES, lexicon
from uivlm.episode import Screen


@dataclass(frozen=True, slots=True)
class Label:
    """Something on a screen that can be asked for."""

    text: str  # its words; of a sign, its name
    box: Box  # where a finger reaches it
    at: Point  # where a finger aims
    value: str = ""  # what the screen says of it
    told: Box | None = None  # where it says so
    on: bool | None = None  # a switch's state


@dataclass(frozen=True, slots=True)
class Interface:
    screen: Screen
    labels: tuple[Label, ...]
    field: str = ""  # the hint in the focused, empty field, where what is typed lands; "": there is none


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What one screen says."""

    words: tuple[str, ...]
    phrases: tuple[str, ...]  # of two or three words

    def text(self, rng: Random, most: int = 3) -> str:
        """At most so many words."""
        found = rng.choice(self.phrases) if most > 1 and rng.random() < 0.4 else rng.choice(self.words)
        return found if len(found.split()) <= most else rng.choice(self.words)


GRIDS, SIDE, NEIGHBOURS = 8, 12, 36


def vocabulary(rng: Random) -> Vocabulary:
    """Of all words, or of some that stand together in the lexicon: apps beside apps, times beside times. Phrases are
    two words of a grid, so that those of one screen differ in one word only; now and then a third word follows."""
    words = lexicon()
    if rng.random() < 0.5:
        first = rng.randrange(len(words) - NEIGHBOURS)
        words = words[first : first + NEIGHBOURS]
    grid = Random(f"grid {rng.randrange(GRIDS)}")  # the same grids on every screen: a phrase comes up again
    ones, others, thirds = (grid.sample(lexicon(), SIDE) for _ in range(3))
    pairs = [f"{one} {other}" for one in ones for other in others]
    return Vocabulary(
        words, tuple(f"{pair} {rng.choice(thirds)}" if rng.random() < 0.1 else pair for pair in pairs)
    )


def interface(rng: Random) -> Interface:
    """A random screen."""
    match rng.random():
        case p if p < 0.1:
            return pair_screen(rng)
        case p if p < 0.18:
            return typing_screen(rng)
        case _:
            return _Drawing(rng, _blank(rng), vocabulary(rng)).draw()


def _blank(rng: Random) -> Canvas:
    width, height = rng.choice(SIZES)
    canvas = Canvas(width, height, theme(rng.random() < 0.5, rng.randrange(len(ACCENTS))))
    canvas.status_bar(rng.choice(TIMES))
    return canvas


class _Drawing:
    """One random screen in the making: fills rows from the top."""

    def __init__(self, rng: Random, canvas: Canvas, speech: Vocabulary) -> None:
        self.rng, self.canvas, self.speech = rng, canvas, speech
        self.used: set[str] = set()
        self.labels: list[Label] = []

    def fresh(self, most: int = 3) -> str:
        """A label that is not on this screen yet."""
        for _ in range(20):
            text = self.speech.text(self.rng, most)
            if text not in self.used:
                break
        else:  # few words, and all are there
            text = next(word for word in self.rng.sample(lexicon(), len(lexicon())) if word not in self.used)
        self.used.add(text)
        return text

    def draw(self) -> Interface:
        rng, canvas = self.rng, self.canvas
        row, tabs_below = 1, rng.random() < 0.25
        if rng.random() < 0.75:
            back, action = rng.random() < 0.6, rng.choice(("", "", "plus", "search", "more"))
            _, sign = canvas.app_bar(self.fresh(COLUMNS - back - bool(action)), back=back, action=action)
            if action:
                self.add(action, sign)
            row = 2
        if rng.random() < 0.25:
            row += 1
        last = 13 if tabs_below else 14
        parts: tuple[Callable[[int], int], ...] = (
            self.rows,
            self.rows,
            self.tiles,
            self.bubbles,
            self.fields,
            self.page,
        )
        if rng.random() < 0.4:  # of one kind, as most screens are
            parts = (rng.choice((self.rows, self.tiles)),)
        more = rng.choice((0.8, 0.95))
        while row <= last:
            row = rng.choice(parts)(row) if rng.random() < 0.9 else row + 1
            if rng.random() > more:
                break
        if tabs_below:
            names = tuple(self.fresh(1) for _ in range(rng.choice((2, 3))))
            self.add_all(names, canvas.tabs(14, names, rng.randrange(len(names))))
        canvas.nav_bar()
        if rng.random() < 0.08:
            self.dialog()
        return Interface(canvas.screen(), tuple(self.labels))

    def add(self, text: str, box: Box, value: str = "", on: bool | None = None) -> None:
        told = box if value or on is not None else None
        self.labels.append(Label(text, box, aim(self.canvas.elements, box), value, told, on))

    def add_all(self, names: tuple[str, ...], boxes: tuple[Box, ...]) -> None:
        for name, box in zip(names, boxes, strict=True):
            self.add(name, box)

    def row(self, row: int, text: str) -> None:
        rng = self.rng
        pick = rng.random() if len(text.split()) < COLUMNS else 0.5
        switch = rng.random() < 0.5 if pick < 0.35 else None
        value = self.fresh(1) if pick > 0.75 else ""
        self.add(text, self.canvas.row(row, text, value=value, switch=switch), value, switch)

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
                colour = (
                    self.rng.randrange(40, 210),
                    self.rng.randrange(40, 210),
                    self.rng.randrange(40, 210),
                )
                self.add(text, self.canvas.tile(row, column, text, colour))
        return row + 3

    def bubbles(self, row: int) -> int:
        for r in range(row, min(14, row + self.rng.randint(1, 4))):
            self.canvas.bubble(r, self.speech.text(self.rng), mine=self.rng.random() < 0.5)
            row = r + 1
        return row

    def fields(self, row: int) -> int:
        rng, canvas = self.rng, self.canvas
        if rng.random() < 0.5:
            hint, text = self.fresh(2), self.speech.text(rng) if rng.random() < 0.4 else ""
            focused = rng.random() < 0.5
            if rng.random() < 0.4:
                box = canvas.field(row, text, hint, focused=focused, columns=2)
                name = self.fresh(1)
                self.add(name, canvas.button(row, name, column=2, columns=1))
            else:
                box = canvas.field(row, text, hint, focused=focused)
            if not text:
                self.add(hint, box)
            return row + 1
        if rng.random() < 0.5:
            name = self.fresh()
            self.add(name, canvas.button(row, name, filled=rng.random() < 0.7))
        else:
            for i, name in enumerate((self.fresh(1), self.fresh(1))):
                self.add(name, canvas.button(row, name, column=2 * i, columns=1, filled=bool(i)))
        return row + 1

    def page(self, row: int) -> int:
        if self.rng.random() < 0.3:
            names = tuple(self.fresh(1) for _ in range(self.rng.choice((2, 3))))
            self.add_all(names, self.canvas.tabs(row, names, self.rng.randrange(len(names))))
            return row + 1
        stop = min(14, row + self.rng.randint(1, 3))
        for r in range(row, stop):
            text = self.speech.text(self.rng)
            column = self.rng.randint(0, COLUMNS - len(text.split()))
            ink = self.rng.choice((self.canvas.theme.ink, self.canvas.theme.faint))
            self.canvas.text(r, column, text, align=self.rng.choice(("left", "center")), ink=ink)
        return stop

    def dialog(self) -> None:
        lines = tuple(self.speech.text(self.rng) for _ in range(self.rng.choice((1, 2))))
        names = tuple(self.fresh(1) for _ in range(self.rng.choice((1, 2, 2))))
        self.labels.clear()
        self.add_all(names, self.canvas.dialog(self.rng.randint(4, 8), lines, names))


def pair_screen(rng: Random) -> Interface:
    """A screen whose title is the key and whose text holds the value."""
    canvas, speech = _blank(rng), vocabulary(rng)
    key, value = speech.text(rng, 2), speech.text(rng, 2)
    row = rng.choice((2, 3, 4))
    before = [rng.choice(lexicon()) for _ in range(rng.choice((0, 1, 1, 2 if " " not in value else 1)))]
    told = " ".join((*before, value) if rng.random() < 0.6 else (value, *before))
    back = rng.random() < 0.7
    canvas.app_bar(key, back=back)
    if rng.random() < 0.5:
        canvas.text(row, 0, told)
    else:
        canvas.bubble(row, told, mine=False)
    canvas.nav_bar()
    title, line = Box(1 / ROWS, back / COLUMNS, 1 / ROWS, 1 - back / COLUMNS), Box(row / ROWS, 0, 1 / ROWS, 1)
    return Interface(canvas.screen(), (Label(key, title, aim(canvas.elements, title), value, line),))


def typing_screen(rng: Random) -> Interface:
    """A screen with one focused, empty field."""
    canvas, speech = _blank(rng), vocabulary(rng)
    canvas.app_bar(speech.text(rng, 2))
    row = rng.choice((2, 3, 4, 14))
    hint = speech.text(rng, 2)
    if row == 14:
        canvas.field(row, "", hint, focused=True, columns=2)
        canvas.button(row, speech.text(rng, 1), column=2, columns=1)
    else:
        canvas.field(row, "", hint, focused=True)
    canvas.nav_bar()
    return Interface(canvas.screen(), (), field=hint)
