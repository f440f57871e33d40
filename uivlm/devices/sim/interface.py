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

    text: str
    box: Box  # where a finger reaches it
    at: Point  # where a finger aims
    value: str = ""  # what stands beside it
    on: bool | None = None  # a switch's state


@dataclass(frozen=True, slots=True)
class Interface:
    screen: Screen
    labels: tuple[Label, ...]


def interface(rng: Random, wanted: tuple[str, ...] = (), banned: tuple[str, ...] = ()) -> Interface:
    """A random screen that holds each of the `wanted` labels and none of the `banned` ones."""
    canvas = _blank(rng)
    return _Drawing(rng, canvas, list(wanted), set(banned) | set(wanted)).draw()


def _blank(rng: Random) -> Canvas:
    width, height = rng.choice(SIZES)
    canvas = Canvas(width, height, theme(rng.random() < 0.5, rng.randrange(len(ACCENTS))))
    canvas.status_bar(rng.choice(TIMES))
    return canvas


def phrase(rng: Random, most: int = 3) -> str:
    """One to `most` words of the lexicon."""
    count = 1 if rng.random() < 0.6 else rng.randint(1, most)
    return " ".join(rng.choice(lexicon()) for _ in range(count))


class _Drawing:
    """One random screen in the making: fills rows from the top, hands out wanted labels first."""

    def __init__(self, rng: Random, canvas: Canvas, wanted: list[str], used: set[str]) -> None:
        self.rng, self.canvas, self.wanted, self.used = rng, canvas, wanted, used
        self.asked = sorted(self.used)
        self.may_cover = not wanted  # a dialog would hide what is wanted
        self.labels: list[Label] = []

    def fresh(self, most: int = 3) -> str:
        """A label: now and then one of those wanted, else one not on this screen yet."""
        if self.wanted and len(self.wanted[-1].split()) <= most and self.rng.random() < 0.3:
            return self.wanted.pop()
        while (text := self.near(most) or phrase(self.rng, most)) in self.used:
            pass
        self.used.add(text)
        return text

    def near(self, most: int) -> str:
        """Now and then what differs in one word from something asked for: "Red Mug" beside "Red Lamp"."""
        words = self.rng.choice(self.asked).split() if self.asked and self.rng.random() < 0.1 else []
        if not 1 < len(words) <= most:
            return ""
        words[self.rng.randrange(len(words))] = self.rng.choice(lexicon())
        return " ".join(words)

    def draw(self) -> Interface:
        rng, canvas = self.rng, self.canvas
        row, tabs_below = 1, rng.random() < 0.25
        if rng.random() < 0.75:
            back, action = rng.random() < 0.6, rng.choice(("", "", "plus", "search", "more"))
            canvas.app_bar(self.fresh(COLUMNS - back - bool(action)), back=back, action=action)
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

    def add(self, text: str, box: Box, value: str = "", on: bool | None = None) -> None:
        self.labels.append(Label(text, box, aim(self.canvas.elements, box), value, on))

    def add_all(self, names: tuple[str, ...], boxes: tuple[Box, ...]) -> None:
        for name, box in zip(names, boxes, strict=True):
            self.add(name, box)

    def row(self, row: int, text: str) -> None:
        rng = self.rng
        # a row that was drawn before is wiped, with its labels: two texts on one line could not be read
        self.labels = [label for label in self.labels if not _crosses(label, row)]
        self.canvas.wipe(row)
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
            self.canvas.bubble(r, phrase(self.rng), mine=self.rng.random() < 0.5)
            row = r + 1
        return row

    def fields(self, row: int) -> int:
        rng, canvas = self.rng, self.canvas
        if rng.random() < 0.5:
            hint, text = self.fresh(2), phrase(rng) if rng.random() < 0.4 else ""
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
            text = phrase(self.rng)
            column = self.rng.randint(0, COLUMNS - len(text.split()))
            ink = self.rng.choice((self.canvas.theme.ink, self.canvas.theme.faint))
            self.canvas.text(r, column, text, align=self.rng.choice(("left", "center")), ink=ink)
        return stop

    def dialog(self) -> None:
        lines = tuple(phrase(self.rng, 3) for _ in range(self.rng.choice((1, 2))))
        names = tuple(self.fresh(1) for _ in range(self.rng.choice((1, 2, 2))))
        self.labels.clear()
        self.add_all(names, self.canvas.dialog(self.rng.randint(4, 8), lines, names))


def _crosses(label: Label, row: int) -> bool:
    """Does the label reach into this row?"""
    return label.box.y < (row + 0.9) / ROWS and label.box.y + label.box.height > (row + 0.1) / ROWS


def pair_screen(rng: Random, key: str, value: str, before: tuple[str, ...]) -> Screen:
    """A screen whose title is the key and whose text holds the value; or a row with both."""
    canvas = _blank(rng)
    row = rng.choice((2, 3, 4))
    told = " ".join((*before, value) if rng.random() < 0.6 else (value, *before))
    canvas.app_bar(key)
    if rng.random() < 0.5:
        canvas.text(row, 0, told)
    else:
        canvas.bubble(row, told, mine=False)
    canvas.nav_bar()
    return canvas.screen()


def typing_screen(rng: Random) -> Screen:
    """A screen with one focused, empty field: what is typed lands there."""
    canvas = _blank(rng)
    canvas.app_bar(phrase(rng, 2))
    row = rng.choice((2, 3, 4, 14))
    if row == 14:
        canvas.field(row, "", phrase(rng, 2), focused=True, columns=2)
        canvas.button(row, phrase(rng, 1), column=2, columns=1)
    else:
        canvas.field(row, "", phrase(rng, 2), focused=True)
    canvas.nav_bar()
    return canvas.screen()
