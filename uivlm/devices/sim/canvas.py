"""The simulated phone's brush: widgets on a rhythm of 16 rows and 3 columns, drawn with Pillow, annotated as AITW annotates.

In: labels and where they go (rows from the top, columns from the left). Out: a `Screen` and, for each widget,
the `Box` a finger can hit. Everything scales with the screen, so all sizes and both themes share one look.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image, ImageDraw

from uivlm.devices.sim.lettering import SMALLEST, fitted, shape
from uivlm.devices.sim.theme import Colour, Theme
from uivlm.episode import Element, Screen

ROWS = 16  # status bar in row 0, content in rows 1..14, navigation bar in row 15
COLUMNS = 3  # of a row: each word stands in one of its own, so that a patch shows a whole word
TEXT = 0.66  # height of ordinary type, in rows
WORD = 0.88  # of a column's width: the longest a word can be
AIR = 0.012  # of the screen's width, around cards
Align = Literal["left", "center"]


@dataclass(frozen=True, slots=True)
class Box:
    """A place to touch: fractions of the screen, y before x."""

    y: float
    x: float
    height: float
    width: float

    def holds(self, y: float, x: float) -> bool:
        return self.y <= y < self.y + self.height and self.x <= x < self.x + self.width


def _cut(words: list[str], columns: int, end: bool) -> list[str]:
    """At most as many words as there are columns. Where the last are left out, `…` says so."""
    if len(words) <= columns or end:
        return words[-columns:]
    return [*words[: columns - 1], f"{words[columns - 1]}…"]


class Canvas:
    """One screen being drawn."""

    def __init__(self, width: int, height: int, colours: Theme) -> None:
        self.width, self.height, self.theme = width, height, colours
        self.image = Image.new("RGB", (width, height), colours.paper)
        self.draw = ImageDraw.Draw(self.image)
        self.elements: list[Element] = []
        self.em = min(height / ROWS, width / ROWS * 2)  # type keeps its width on tall screens

    def screen(self) -> Screen:
        return Screen(np.asarray(self.image), tuple(self.elements))

    # -- primitives -----------------------------------------------------------------------------------------

    def _px(self, row: float, x: float) -> tuple[float, float]:
        return x * self.width, row * self.height / ROWS

    def _note(self, left: float, top: float, right: float, bottom: float, text: str, kind: str) -> None:
        y0, x0 = max(0.0, top / self.height), max(0.0, left / self.width)
        y1, x1 = min(1.0, bottom / self.height), min(1.0, right / self.width)
        self.elements.append(Element(y0, x0, max(0.0, y1 - y0), max(0.0, x1 - x0), text, kind))

    def text(
        self,
        row: float,
        column: int,
        words: str,
        *,
        columns: int = COLUMNS,
        align: Align = "left",
        size: float = TEXT,
        ink: Colour | None = None,
        end: bool = False,
    ) -> None:
        """One line of type in the middle of a row, each word in a column of its own.

        Of more than `columns` words the first are drawn, or with `end` the last.
        """
        shown = _cut(words.split(), columns, end)
        if not shown:
            return
        ends = [self._word(row, column + i, word, align, size, ink) for i, word in enumerate(shown)]
        left, right = ends[0][0], ends[-1][1]
        middle, half = self._px(row + 0.5, 0)[1], size * self.em / 2
        self._note(left, middle - half, right, middle + half, " ".join(shown), "TEXT")

    def _word(
        self, row: float, column: int, word: str, align: Align, size: float, ink: Colour | None
    ) -> tuple[float, float]:
        """A word in its column, in smaller type where it would not fit; returns its left and right end in pixels."""
        room = WORD * self.width / COLUMNS
        pixels = max(SMALLEST, round(size * self.em))
        word, pixels, length = fitted(word, pixels, room)
        left, middle = self._px(row + 0.5, (column + (1 - WORD) / 2) / COLUMNS)
        left += (room - length) / 2 if align == "center" else 0
        mask, right, down = shape(word, pixels)
        self.draw.bitmap((round(left) + right, round(middle) + down), mask, fill=ink or self.theme.ink)
        return left, left + length

    def wipe(self, row: int) -> None:
        """Empties a row."""
        self.panel(row, 1, 0, 1, self.theme.paper, round_to=0)
        self.elements = [e for e in self.elements if int((e.y + e.height / 2) * ROWS) != row]

    def panel(
        self, row: float, rows: float, x: float, width: float, fill: Colour | None, *, round_to: float = 0.25
    ) -> Box:
        """A rounded rectangle; `fill` None draws only its edge."""
        left, top = self._px(row, x)
        right, bottom = self._px(row + rows, x + width)
        radius = round_to * self.height / ROWS
        edge = self.theme.line if fill is None else None
        self.draw.rounded_rectangle(
            (left, top, right - 1, bottom - 1), radius, fill=fill, outline=edge, width=2
        )
        return Box(row / ROWS, x, rows / ROWS, width)

    def icon(self, row: float, x: float, name: str, *, ink: Colour | None = None, size: float = 0.5) -> None:
        """A small sign centred at x of a row: back, plus, search, close, circle, square, cursor, more."""
        cx, cy = self._px(row + 0.5, x)
        r = size * self.height / ROWS / 2
        colour, wide = ink or self.theme.ink, max(2, round(r / 4))
        match name:
            case "back":
                self.draw.line(
                    (cx + r, cy - r, cx - r * 0.6, cy, cx + r, cy + r), fill=colour, width=wide, joint="curve"
                )
            case "plus":
                self.draw.line((cx - r, cy, cx + r, cy), fill=colour, width=wide)
                self.draw.line((cx, cy - r, cx, cy + r), fill=colour, width=wide)
            case "close":
                self.draw.line((cx - r, cy - r, cx + r, cy + r), fill=colour, width=wide)
                self.draw.line((cx - r, cy + r, cx + r, cy - r), fill=colour, width=wide)
            case "search":
                self.draw.ellipse((cx - r, cy - r, cx + r * 0.5, cy + r * 0.5), outline=colour, width=wide)
                self.draw.line((cx + r * 0.3, cy + r * 0.3, cx + r, cy + r), fill=colour, width=wide)
            case "circle":
                self.draw.ellipse((cx - r, cy - r, cx + r, cy + r), outline=colour, width=wide)
            case "square":
                self.draw.rectangle((cx - r, cy - r, cx + r, cy + r), outline=colour, width=wide)
            case "cursor":
                self.draw.line((cx, cy - r, cx, cy + r), fill=colour, width=wide)
            case "more":
                for dy in (-r, 0.0, r):
                    self.draw.ellipse((cx - wide, cy + dy - wide, cx + wide, cy + dy + wide), fill=colour)
            case _:
                raise ValueError(f"no icon is called {name!r}")
        kind = {"back": "ICON_V_BACKWARD", "circle": "ICON_NAV_BAR_CIRCLE", "square": "ICON_NAV_BAR_RECT"}
        self._note(cx - r, cy - r, cx + r, cy + r, "", kind.get(name, f"ICON_{name.upper()}"))

    # -- widgets --------------------------------------------------------------------------------------------

    def status_bar(self, clock: str) -> None:
        self.text(0, 0, clock, size=0.5, ink=self.theme.faint)

    def nav_bar(self) -> tuple[Box, Box]:
        """System back and home; returns where each can be hit."""
        self.icon(15, 0.25, "back", ink=self.theme.faint, size=0.4)
        self.icon(15, 0.5, "circle", ink=self.theme.faint, size=0.4)
        return Box(15 / ROWS, 0.125, 1 / ROWS, 0.25), Box(15 / ROWS, 0.375, 1 / ROWS, 0.25)

    def app_bar(self, title: str, *, back: bool = True, action: str = "") -> tuple[Box, Box]:
        """Title in row 1 on the accent colour, an arrow on its left, an icon on its right; returns their boxes."""
        self.panel(1, 1, 0, 1, self.theme.accent, round_to=0)
        ink, first = self.theme.on_accent, int(back)
        if back:
            self.icon(1, 0.1, "back", ink=ink)
        self.text(1, first, title, columns=COLUMNS - first - bool(action), ink=ink)
        if action:
            self.icon(1, 0.9, action, ink=ink)
        return self._box(1, 0, 1), self._box(1, COLUMNS - 1, 1)

    def _box(self, row: float, column: int, columns: int) -> Box:
        return Box(row / ROWS, column / COLUMNS, 1 / ROWS, columns / COLUMNS)

    def _card(self, row: float, column: int, columns: int, fill: Colour, round_to: float = 0.25) -> Box:
        """A panel over some columns of a row, with a little air around it."""
        self.panel(
            row + 0.06, 0.88, column / COLUMNS + AIR, columns / COLUMNS - 2 * AIR, fill, round_to=round_to
        )
        return self._box(row, column, columns)

    def row(self, row: float, label: str, *, value: str = "", switch: bool | None = None) -> Box:
        """A line of a list: a label, and at the right a value or a switch."""
        taken = min(len(value.split()), COLUMNS - 1) or int(switch is not None)
        self.text(row, 0, label, columns=COLUMNS - taken)
        self.text(row, COLUMNS - taken, value, columns=taken, ink=self.theme.faint)
        if switch is not None:
            self._switch(row, switch)
        left, bottom = self._px(row + 1, 0)
        self.draw.line((left, bottom - 1, self.width, bottom - 1), fill=self.theme.line)
        return self._box(row, 0, COLUMNS)

    def _switch(self, row: float, on: bool) -> None:
        self.panel(row + 0.22, 0.56, 0.8, 0.15, self.theme.accent if on else self.theme.line, round_to=0.28)
        cx, cy = self._px(row + 0.5, 0.91 if on else 0.84)
        r = 0.2 * self.height / ROWS
        self.draw.ellipse((cx - r, cy - r, cx + r, cy + r), fill=(255, 255, 255))
        left, top = self._px(row + 0.22, 0.8)
        right, bottom = self._px(row + 0.78, 0.95)
        self._note(left, top, right, bottom, "", "ICON_SWITCH_ON" if on else "ICON_SWITCH_OFF")

    def field(
        self, row: float, text: str, hint: str, *, focused: bool = False, columns: int = COLUMNS
    ) -> Box:
        """A text field of one row: its text, else its hint in faint ink; an edge and a cursor when focused."""
        box = self._card(row, 0, columns, self.theme.card)
        if focused:
            left, top = self._px(row + 0.06, AIR)
            right, bottom = self._px(row + 0.94, columns / COLUMNS - AIR)
            edge = (left, top, right - 1, bottom - 1)
            self.draw.rounded_rectangle(edge, 0.25 * self.height / ROWS, outline=self.theme.accent, width=3)
        self.text(
            row,
            0,
            text or hint,
            columns=columns,
            ink=self.theme.ink if text else self.theme.faint,
            end=bool(text),
        )
        if focused:
            self.icon(row, self._cursor(text, columns), "cursor", ink=self.theme.accent)
        return box

    def _cursor(self, text: str, columns: int) -> float:
        """Before the column of the next word; at the end of a full field."""
        count = len(text.split())
        return (count / COLUMNS if count < columns else columns / COLUMNS - 0.04) + 0.02

    def button(
        self, row: float, label: str, *, column: int = 0, columns: int = COLUMNS, filled: bool = True
    ) -> Box:
        """A button over some columns of a row with its label in the middle."""
        box = self._card(row, column, columns, self.theme.accent if filled else self.theme.card, 0.4)
        ink = self.theme.on_accent if filled else self.theme.ink
        first = column + max(0, columns - len(label.split())) // 2
        self.text(row, first, label, columns=columns, align="center", ink=ink)
        return box

    def tile(self, row: float, column: int, label: str, colour: Colour) -> Box:
        """An app on the launcher: after an empty row a coloured square, and in the third row its name."""
        side = 0.9 * self.height / ROWS / self.width
        middle = (column + 0.5) / COLUMNS
        self.panel(row + 1.05, 0.9, middle - side / 2, side, colour, round_to=0.3)
        self.panel(row + 1.35, 0.3, middle - side / 6, side / 3, (255, 255, 255), round_to=0.1)
        self.text(row + 2, column, label, columns=1, align="center", size=0.56)
        return Box(row / ROWS, column / COLUMNS, 3 / ROWS, 1 / COLUMNS)

    def tabs(self, row: float, labels: tuple[str, ...], chosen: int) -> tuple[Box, ...]:
        """A bar of one to three tabs, a word each, over the whole width; the chosen one in the accent colour."""
        self.panel(row, 1, 0, 1, self.theme.card, round_to=0)
        width = 1 / len(labels)
        for i, label in enumerate(labels):
            ink = self.theme.accent if i == chosen else self.theme.faint
            self.text(row, int((i + 0.5) * width * COLUMNS), label, columns=1, align="center", ink=ink)
            if i == chosen:
                self.panel(row + 0.9, 0.1, i * width, width, self.theme.accent, round_to=0)
        return tuple(Box(row / ROWS, i * width, 1 / ROWS, width) for i in range(len(labels)))

    def bubble(self, row: float, words: str, *, mine: bool) -> None:
        """A message as wide as its words: left for theirs, right and coloured for mine."""
        columns = min(COLUMNS, len(words.split()) or 1)
        column, fill = (COLUMNS - columns, self.theme.accent) if mine else (0, self.theme.card)
        self._card(row, column, columns, fill)
        self.text(row, column, words, columns=columns, ink=self.theme.on_accent if mine else self.theme.ink)

    def dialog(self, row: float, lines: tuple[str, ...], buttons: tuple[str, ...]) -> tuple[Box, ...]:
        """A card over whatever was drawn: lines of text, then one button or two; returns the buttons' boxes."""
        veil = Image.new("RGB", self.image.size, (0, 0, 0))
        self.image.paste(Image.blend(self.image, veil, 0.5))
        self.elements.clear()  # what lies under the veil cannot be used
        self.panel(row - 0.4, len(lines) + 2.8, AIR / 2, 1 - AIR, self.theme.card)
        for i, line in enumerate(lines):
            self.text(row + i, max(0, COLUMNS - len(line.split())) // 2, line, align="center")
        columns = (0, COLUMNS - 1) if len(buttons) > 1 else (COLUMNS // 2,)
        return tuple(
            self.button(row + len(lines) + 1, label, column=column, columns=1, filled=label == buttons[-1])
            for column, label in zip(columns, buttons, strict=True)
        )
