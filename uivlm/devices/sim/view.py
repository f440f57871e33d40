"""One drawing of the simulated phone: in calls by the app on show, out pixels and the places a finger can use.

All content keeps to whole rows. Lists scroll by whole rows and end with a row that says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from uivlm.devices.sim.canvas import COLUMNS, Box, Canvas
from uivlm.devices.sim.state import Act, State
from uivlm.devices.sim.theme import theme

BOTTOM = 15  # the row of the navigation bar: content ends above it
LONGEST = 60  # characters of typed text that are drawn


@dataclass(frozen=True, slots=True)
class Target:
    """Something to touch. `name` is how the expert and the tests call it: never drawn."""

    name: str
    box: Box
    act: Act


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a list; without a name it cannot be touched."""

    label: str
    act: Act | None = None
    name: str = ""
    value: str = ""
    switch: bool | None = None


def typed(text: str) -> str:
    """Typed text as it can be drawn: bounded, on one line, without halves of surrogate pairs."""
    return text[:LONGEST].encode("utf-8", "replace").decode("utf-8")


class View:
    """The canvas with what it offers: targets, scrolling, sideways moves, what enter does."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.look = state.world.look
        self.canvas = Canvas(self.look.width, self.look.height, theme(self.look.dark, self.look.accent))
        self.targets: list[Target] = []
        self.moves: dict[str, Act] = {}  # left, right, up, down: what the swipe does where nothing scrolls
        self.enter: Act | None = None
        self.top = 0  # rows scrolled away
        self.limit = 0  # rows that can be scrolled away
        self.first = 1  # the first free row
        self.bottom = BOTTOM  # the row after the last free one

    def touch(self, name: str, box: Box, act: Act) -> None:
        self.targets.append(Target(name, box, act))

    def title(self, words: str, *, back: bool = True, action: str = "", act: Act | None = None) -> None:
        """The app's bar; content starts below it, after the margin of this phone."""
        left, right = self.canvas.app_bar(typed(words), back=back, action=action)
        if back:
            self.touch("arrow", left, self.state.back)
        if act is not None:
            self.touch(f"icon:{action}", right, act)
        self.first = 2 + self.look.margin

    def tabs(self, tabs: Sequence[tuple[str, Act]], chosen: str) -> None:
        """A bar of tabs (keys of WORDINGS) where this phone has them: under the title or at the bottom."""
        row = BOTTOM - 1 if self.look.tabs_low else 2
        labels = tuple(self.look.say(key) for key, _ in tabs)
        keys = [key for key, _ in tabs]
        boxes = self.canvas.tabs(row, labels, keys.index(chosen))
        for (key, act), box in zip(tabs, boxes, strict=True):
            self.touch(f"tab:{key}", box, act)
        if self.look.tabs_low:
            self.bottom = row
        else:
            self.first += 1

    def say(self, words: str, *, faint: bool = False) -> None:
        """A line of plain text in the next row."""
        ink = self.canvas.theme.faint if faint else None
        self.canvas.text(self.first, 0, typed(words), ink=ink)
        self.first += 1

    def field(
        self, name: str, hint: str, *, row: int | None = None, columns: int = COLUMNS, shown: str = ""
    ) -> None:
        """A text field; `shown` stands in it until something is typed."""
        place = self.state.place
        text = typed(place.fields.get(name, "")) or ("" if place.focus == name else typed(shown))
        at = self.first if row is None else row
        box = self.canvas.field(at, text, hint, focused=place.focus == name, columns=columns)
        self.touch(f"field:{name}", box, partial(setattr, place, "focus", name))
        if row is None:
            self.first += 1

    def button(
        self, key: str, act: Act, *, row: int | None = None, column: int = 0, columns: int = COLUMNS
    ) -> None:
        at = self.first + 1 if row is None else row
        self.touch(
            f"button:{key}", self.canvas.button(at, self.look.say(key), column=column, columns=columns), act
        )
        if row is None:
            self.first += 2

    def window(self, length: int) -> tuple[int, int]:
        """Makes `length` rows scroll through the free rows; returns the first one shown and how many fit."""
        room = self.bottom - self.first
        self.limit = max(0, length - room)
        self.top = min(max(0, self.state.place.scroll), self.limit)
        return self.top, room

    def list(self, rows: Sequence[Row]) -> None:
        """A scrolling list in the free rows, closed by a row that says it is the end."""
        pitch = self.look.pitch
        top, room = self.window(len(rows) * pitch + 1)
        for i, row in enumerate(rows):
            at = i * pitch - top
            if not 0 <= at < room:
                continue
            box = self.canvas.row(self.first + at, typed(row.label), value=row.value, switch=row.switch)
            if row.act is not None:
                self.touch(row.name or f"row:{row.label}", box, row.act)
        at = len(rows) * pitch - top
        if 0 <= at < room:
            words = self.look.say("end" if rows else "empty")
            self.canvas.text(
                self.first + at, 1, words, columns=2, align="center", ink=self.canvas.theme.faint
            )
