"""Random rendered interfaces: what the tiny base learns to read.

In: a seeded random generator. Out: screens drawn at random from the phone's widgets and words, and the items
on them. No phone runs here: there is no app, no state, no goal and no episode.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from uivlm.actions.action import Point
from uivlm.devices.sim.canvas import COLUMNS, ROWS, Box, Canvas
from uivlm.devices.sim.labels import TIMES, lexicon
from uivlm.devices.sim.theme import ACCENTS, SCREEN_SIZES, make_theme
from uivlm.devices.sim.touch_jitter import aim_point
from uivlm.episodes.episode import Screen


@dataclass(frozen=True, slots=True)
class ScreenItem:
    """Something on a screen that a lesson can request."""

    text: str  # its label; of an icon, its name
    box: Box  # its touch area
    tap_point: Point  # where to tap it
    value: str = ""  # its value on the screen
    value_box: Box | None = None  # where the value is
    switch_on: bool | None = None  # a switch's state


@dataclass(frozen=True, slots=True)
class RandomScreen:
    screen: Screen
    items: tuple[ScreenItem, ...]
    focused_hint: str = ""  # hint of the focused, empty field; "": none


@dataclass(frozen=True, slots=True)
class TextPool:
    """The texts of one screen."""

    words: tuple[str, ...]
    phrases: tuple[str, ...]  # of two or three words

    def sample(self, rng: Random, max_words: int = 3) -> str:
        """A text of at most `max_words` words."""
        text = rng.choice(self.phrases) if max_words > 1 and rng.random() < 0.4 else rng.choice(self.words)
        return text if len(text.split()) <= max_words else rng.choice(self.words)


NUM_GRIDS, GRID_SIZE, NUM_NEIGHBORS = 8, 12, 36


def random_text_pool(rng: Random) -> TextPool:
    """A pool of all words, or of neighbors in the lexicon: apps with apps, times with times.

    A phrase is two words of a grid, so that the phrases of a screen often differ in one word only. A third
    word follows sometimes.
    """
    words = lexicon()
    if rng.random() < 0.5:
        first = rng.randrange(len(words) - NUM_NEIGHBORS)
        words = words[first : first + NUM_NEIGHBORS]
    grid = Random(f"grid {rng.randrange(NUM_GRIDS)}")  # a few grids for all screens, so that phrases recur
    firsts, seconds, thirds = (grid.sample(lexicon(), GRID_SIZE) for _ in range(3))
    pairs = [f"{first} {second}" for first in firsts for second in seconds]
    return TextPool(
        words, tuple(f"{pair} {rng.choice(thirds)}" if rng.random() < 0.1 else pair for pair in pairs)
    )


def random_screen(rng: Random) -> RandomScreen:
    """A random screen."""
    match rng.random():
        case p if p < 0.1:
            return key_value_screen(rng)
        case p if p < 0.18:
            return typing_screen(rng)
        case _:
            return _ScreenBuilder(rng, _blank_canvas(rng), random_text_pool(rng)).build()


def _blank_canvas(rng: Random) -> Canvas:
    width, height = rng.choice(SCREEN_SIZES)
    canvas = Canvas(width, height, make_theme(rng.random() < 0.5, rng.randrange(len(ACCENTS))))
    canvas.status_bar(rng.choice(TIMES))
    return canvas


class _ScreenBuilder:
    """One random screen in the making: fills rows from the top."""

    def __init__(self, rng: Random, canvas: Canvas, text_pool: TextPool) -> None:
        self.rng, self.canvas, self.text_pool = rng, canvas, text_pool
        self.used_texts: set[str] = set()
        self.items: list[ScreenItem] = []

    def unused_text(self, max_words: int = 3) -> str:
        """A label that is not on this screen yet."""
        for _ in range(20):
            text = self.text_pool.sample(self.rng, max_words)
            if text not in self.used_texts:
                break
        else:  # few words, and all are there
            text = next(
                word for word in self.rng.sample(lexicon(), len(lexicon())) if word not in self.used_texts
            )
        self.used_texts.add(text)
        return text

    def build(self) -> RandomScreen:
        rng, canvas = self.rng, self.canvas
        row, tabs_below = 1, rng.random() < 0.25
        if rng.random() < 0.75:
            back, action = rng.random() < 0.6, rng.choice(("", "", "plus", "search", "more"))
            _, sign = canvas.app_bar(
                self.unused_text(COLUMNS - back - bool(action)), back=back, action=action
            )
            if action:
                self.add_item(action, sign)
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
            names = tuple(self.unused_text(1) for _ in range(rng.choice((2, 3))))
            self.add_items(names, canvas.tabs(14, names, rng.randrange(len(names))))
        canvas.nav_bar()
        if rng.random() < 0.08:
            self.dialog()
        return RandomScreen(canvas.screen(), tuple(self.items))

    def add_item(self, text: str, box: Box, value: str = "", on: bool | None = None) -> None:
        value_box = box if value or on is not None else None
        self.items.append(ScreenItem(text, box, aim_point(self.canvas.elements, box), value, value_box, on))

    def add_items(self, names: tuple[str, ...], boxes: tuple[Box, ...]) -> None:
        for name, box in zip(names, boxes, strict=True):
            self.add_item(name, box)

    def row(self, row: int, text: str) -> None:
        rng = self.rng
        pick = rng.random() if len(text.split()) < COLUMNS else 0.5
        switch = rng.random() < 0.5 if pick < 0.35 else None
        value = self.unused_text(1) if pick > 0.75 else ""
        self.add_item(text, self.canvas.row(row, text, value=value, switch=switch), value, switch)

    def rows(self, row: int) -> int:
        stop = min(14, row + self.rng.randint(1, 8))
        for r in range(row, stop):
            self.row(r, self.unused_text())
        return stop

    def tiles(self, row: int) -> int:
        if row + 3 > 14:
            return row + 1
        for column in range(3):
            if self.rng.random() < 0.85:
                text = self.unused_text(1)
                color = (
                    self.rng.randrange(40, 210),
                    self.rng.randrange(40, 210),
                    self.rng.randrange(40, 210),
                )
                self.add_item(text, self.canvas.tile(row, column, text, color))
        return row + 3

    def bubbles(self, row: int) -> int:
        for r in range(row, min(14, row + self.rng.randint(1, 4))):
            self.canvas.bubble(r, self.text_pool.sample(self.rng), mine=self.rng.random() < 0.5)
            row = r + 1
        return row

    def fields(self, row: int) -> int:
        rng, canvas = self.rng, self.canvas
        if rng.random() < 0.5:
            hint, text = self.unused_text(2), self.text_pool.sample(rng) if rng.random() < 0.4 else ""
            focused = rng.random() < 0.5
            if rng.random() < 0.4:
                box = canvas.field(row, text, hint, focused=focused, columns=2)
                name = self.unused_text(1)
                self.add_item(name, canvas.button(row, name, column=2, columns=1))
            else:
                box = canvas.field(row, text, hint, focused=focused)
            if not text:
                self.add_item(hint, box)
            return row + 1
        if rng.random() < 0.5:
            name = self.unused_text()
            self.add_item(name, canvas.button(row, name, filled=rng.random() < 0.7))
        else:
            for i, name in enumerate((self.unused_text(1), self.unused_text(1))):
                self.add_item(name, canvas.button(row, name, column=2 * i, columns=1, filled=bool(i)))
        return row + 1

    def page(self, row: int) -> int:
        if self.rng.random() < 0.3:
            names = tuple(self.unused_text(1) for _ in range(self.rng.choice((2, 3))))
            self.add_items(names, self.canvas.tabs(row, names, self.rng.randrange(len(names))))
            return row + 1
        stop = min(14, row + self.rng.randint(1, 3))
        for r in range(row, stop):
            text = self.text_pool.sample(self.rng)
            column = self.rng.randint(0, COLUMNS - len(text.split()))
            ink = self.rng.choice((self.canvas.theme.ink, self.canvas.theme.faint))
            self.canvas.text(r, column, text, align=self.rng.choice(("left", "center")), ink=ink)
        return stop

    def dialog(self) -> None:
        lines = tuple(self.text_pool.sample(self.rng) for _ in range(self.rng.choice((1, 2))))
        names = tuple(self.unused_text(1) for _ in range(self.rng.choice((1, 2, 2))))
        self.items.clear()
        self.add_items(names, self.canvas.dialog(self.rng.randint(4, 8), lines, names))


def key_value_screen(rng: Random) -> RandomScreen:
    """A screen whose title is the key and whose text holds the value."""
    canvas, speech = _blank_canvas(rng), random_text_pool(rng)
    key, value = speech.sample(rng, 2), speech.sample(rng, 2)
    row = rng.choice((2, 3, 4))
    before = [rng.choice(lexicon()) for _ in range(rng.choice((0, 1, 1, 2 if " " not in value else 1)))]
    text = " ".join((*before, value) if rng.random() < 0.6 else (value, *before))
    back = rng.random() < 0.7
    canvas.app_bar(key, back=back)
    if rng.random() < 0.5:
        canvas.text(row, 0, text)
    else:
        canvas.bubble(row, text, mine=False)
    canvas.nav_bar()
    title, line = Box(1 / ROWS, back / COLUMNS, 1 / ROWS, 1 - back / COLUMNS), Box(row / ROWS, 0, 1 / ROWS, 1)
    return RandomScreen(
        canvas.screen(), (ScreenItem(key, title, aim_point(canvas.elements, title), value, line),)
    )


def typing_screen(rng: Random) -> RandomScreen:
    """A screen with one focused, empty field."""
    canvas, speech = _blank_canvas(rng), random_text_pool(rng)
    canvas.app_bar(speech.sample(rng, 2))
    row = rng.choice((2, 3, 4, 14))
    hint = speech.sample(rng, 2)
    if row == 14:
        canvas.field(row, "", hint, focused=True, columns=2)
        canvas.button(row, speech.sample(rng, 1), column=2, columns=1)
    else:
        canvas.field(row, "", hint, focused=True)
    canvas.nav_bar()
    return RandomScreen(canvas.screen(), (), focused_hint=hint)
