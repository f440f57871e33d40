"""Draw the widgets of the simulated phone with Pillow, on a grid of 16 rows and 3 columns.

In: labels and their positions (rows from the top, columns from the left). Out: a `Screen` with annotations as
in AITW, and the touchable `Box` of each widget. All sizes scale with the screen; all screens and both themes
share one look.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image, ImageDraw

from uivlm.devices.sim.glyph_cache import MIN_FONT_PIXELS, fit_word, word_mask
from uivlm.devices.sim.theme import Color, Theme
from uivlm.episodes.episode import Element, Screen

ROWS = 16  # status bar in row 0, content in rows 1..14, navigation bar in row 15
COLUMNS = 3  # per row: each word has its own column, so that one patch shows a whole word
TEXT_HEIGHT = 0.66  # font size of normal text, in rows
MAX_WORD_WIDTH = 0.88  # of a column's width
CARD_MARGIN = 0.012  # of the screen's width, around cards
Align = Literal["left", "center"]


@dataclass(frozen=True, slots=True)
class Box:
    """A touchable area: fractions of the screen, y before x."""

    y: float
    x: float
    height: float
    width: float

    def contains(self, y: float, x: float) -> bool:
        return self.y <= y < self.y + self.height and self.x <= x < self.x + self.width


def _truncate_words(words: list[str], columns: int, keep_last: bool) -> list[str]:
    """Return at most one word per column. `…` marks that later words are left out."""
    if len(words) <= columns or keep_last:
        return words[-columns:]
    return [*words[: columns - 1], f"{words[columns - 1]}…"]


class Canvas:
    """One screen being drawn."""

    def __init__(self, width: int, height: int, theme: Theme) -> None:
        self.width, self.height, self.theme = width, height, theme
        self.image = Image.new("RGB", (width, height), theme.paper)
        self.draw = ImageDraw.Draw(self.image)
        self.elements: list[Element] = []
        self.em = min(height / ROWS, width / ROWS * 2)  # text keeps its width on tall screens

    def screen(self) -> Screen:
        return Screen(np.asarray(self.image), tuple(self.elements))

    # -- primitives -----------------------------------------------------------------------------------------

    def _to_pixels(self, row: float, x: float) -> tuple[float, float]:
        return x * self.width, row * self.height / ROWS

    def _add_element(
        self, left: float, top: float, right: float, bottom: float, text: str, ui_type: str
    ) -> None:
        y0, x0 = max(0.0, top / self.height), max(0.0, left / self.width)
        y1, x1 = min(1.0, bottom / self.height), min(1.0, right / self.width)
        self.elements.append(Element(y0, x0, max(0.0, y1 - y0), max(0.0, x1 - x0), text, ui_type))

    def text(
        self,
        row: float,
        column: int,
        text: str,
        *,
        columns: int = COLUMNS,
        align: Align = "left",
        size: float = TEXT_HEIGHT,
        ink: Color | None = None,
        keep_last: bool = False,
    ) -> None:
        """Draw one line of text in the middle of a row, each word in its own column.

        If there are more than `columns` words, the first are drawn, or the last with `keep_last`.
        """
        shown = _truncate_words(text.split(), columns, keep_last)
        if not shown:
            return
        ends = [self._draw_word(row, column + i, word, align, size, ink) for i, word in enumerate(shown)]
        left, right = ends[0][0], ends[-1][1]
        middle, half = self._to_pixels(row + 0.5, 0)[1], size * self.em / 2
        self._add_element(left, middle - half, right, middle + half, " ".join(shown), "TEXT")

    def _draw_word(
        self, row: float, column: int, word: str, align: Align, size: float, ink: Color | None
    ) -> tuple[float, float]:
        """Draw a word in its column, smaller if it would not fit; return its left and right end in pixels."""
        max_width = MAX_WORD_WIDTH * self.width / COLUMNS
        pixels = max(MIN_FONT_PIXELS, round(size * self.em))
        word, pixels, length = fit_word(word, pixels, max_width)
        left, middle = self._to_pixels(row + 0.5, (column + (1 - MAX_WORD_WIDTH) / 2) / COLUMNS)
        left += (max_width - length) / 2 if align == "center" else 0
        mask, right, down = word_mask(word, pixels)
        self.draw.bitmap((round(left) + right, round(middle) + down), mask, fill=ink or self.theme.ink)
        return left, left + length

    def panel(
        self,
        row: float,
        rows: float,
        x: float,
        width: float,
        fill: Color | None,
        *,
        corner_radius: float = 0.25,
    ) -> Box:
        """Draw a rounded rectangle; with `fill` None only its edge."""
        left, top = self._to_pixels(row, x)
        right, bottom = self._to_pixels(row + rows, x + width)
        radius = corner_radius * self.height / ROWS
        edge = self.theme.line if fill is None else None
        self.draw.rounded_rectangle(
            (left, top, right - 1, bottom - 1), radius, fill=fill, outline=edge, width=2
        )
        return Box(row / ROWS, x, rows / ROWS, width)

    def icon(self, row: float, x: float, name: str, *, ink: Color | None = None, size: float = 0.5) -> None:
        """Draw an icon centered at x of a row: back, plus, search, close, circle, square, cursor, more."""
        cx, cy = self._to_pixels(row + 0.5, x)
        r = size * self.height / ROWS / 2
        color, wide = ink or self.theme.ink, max(2, round(r / 4))
        match name:
            case "back":
                self.draw.line(
                    (cx + r, cy - r, cx - r * 0.6, cy, cx + r, cy + r), fill=color, width=wide, joint="curve"
                )
            case "plus":
                self.draw.line((cx - r, cy, cx + r, cy), fill=color, width=wide)
                self.draw.line((cx, cy - r, cx, cy + r), fill=color, width=wide)
            case "close":
                self.draw.line((cx - r, cy - r, cx + r, cy + r), fill=color, width=wide)
                self.draw.line((cx - r, cy + r, cx + r, cy - r), fill=color, width=wide)
            case "search":
                self.draw.ellipse((cx - r, cy - r, cx + r * 0.5, cy + r * 0.5), outline=color, width=wide)
                self.draw.line((cx + r * 0.3, cy + r * 0.3, cx + r, cy + r), fill=color, width=wide)
            case "circle":
                self.draw.ellipse((cx - r, cy - r, cx + r, cy + r), outline=color, width=wide)
            case "square":
                self.draw.rectangle((cx - r, cy - r, cx + r, cy + r), outline=color, width=wide)
            case "cursor":
                self.draw.line((cx, cy - r, cx, cy + r), fill=color, width=wide)
            case "more":
                for dy in (-r, 0.0, r):
                    self.draw.ellipse((cx - wide, cy + dy - wide, cx + wide, cy + dy + wide), fill=color)
            case _:
                raise ValueError(f"icon: got {name!r}; no icon has this name")
        ui_types = {"back": "ICON_V_BACKWARD", "circle": "ICON_NAV_BAR_CIRCLE", "square": "ICON_NAV_BAR_RECT"}
        self._add_element(cx - r, cy - r, cx + r, cy + r, "", ui_types.get(name, f"ICON_{name.upper()}"))

    # -- widgets --------------------------------------------------------------------------------------------

    def status_bar(self, clock: str) -> None:
        self.text(0, 0, clock, size=0.5, ink=self.theme.faint)

    def nav_bar(self) -> tuple[Box, Box]:
        """Draw system back and home; return their boxes."""
        self.icon(15, 0.25, "back", ink=self.theme.faint, size=0.4)
        self.icon(15, 0.5, "circle", ink=self.theme.faint, size=0.4)
        return Box(15 / ROWS, 0.125, 1 / ROWS, 0.25), Box(15 / ROWS, 0.375, 1 / ROWS, 0.25)

    def app_bar(self, title: str, *, back: bool = True, action: str = "") -> tuple[Box, Box]:
        """Draw a title bar in row 1 with an arrow (left) and an icon (right); return their boxes."""
        self.panel(1, 1, 0, 1, self.theme.accent, corner_radius=0)
        ink, first = self.theme.on_accent, int(back)
        if back:
            self.icon(1, 0.1, "back", ink=ink)
        self.text(1, first, title, columns=COLUMNS - first - bool(action), ink=ink)
        if action:
            self.icon(1, 0.9, action, ink=ink)
        return self._box(1, 0, 1), self._box(1, COLUMNS - 1, 1)

    def _box(self, row: float, column: int, columns: int) -> Box:
        return Box(row / ROWS, column / COLUMNS, 1 / ROWS, columns / COLUMNS)

    def _card(self, row: float, column: int, columns: int, fill: Color, corner_radius: float = 0.25) -> Box:
        """Draw a panel over some columns of a row, with a small margin."""
        self.panel(
            row + 0.06,
            0.88,
            column / COLUMNS + CARD_MARGIN,
            columns / COLUMNS - 2 * CARD_MARGIN,
            fill,
            corner_radius=corner_radius,
        )
        return self._box(row, column, columns)

    def row(self, row: float, label: str, *, value: str = "", switch: bool | None = None) -> Box:
        """Draw one list row: a label, and at the right a value or a switch."""
        value_columns = min(len(value.split()), COLUMNS - 1) or int(switch is not None)
        self.text(row, 0, label, columns=COLUMNS - value_columns)
        self.text(row, COLUMNS - value_columns, value, columns=value_columns, ink=self.theme.faint)
        if switch is not None:
            self._switch(row, switch)
        left, bottom = self._to_pixels(row + 1, 0)
        self.draw.line((left, bottom - 1, self.width, bottom - 1), fill=self.theme.line)
        return self._box(row, 0, COLUMNS)

    def _switch(self, row: float, on: bool) -> None:
        self.panel(
            row + 0.22, 0.56, 0.8, 0.15, self.theme.accent if on else self.theme.line, corner_radius=0.28
        )
        cx, cy = self._to_pixels(row + 0.5, 0.91 if on else 0.84)
        r = 0.2 * self.height / ROWS
        self.draw.ellipse((cx - r, cy - r, cx + r, cy + r), fill=(255, 255, 255))
        left, top = self._to_pixels(row + 0.22, 0.8)
        right, bottom = self._to_pixels(row + 0.78, 0.95)
        self._add_element(left, top, right, bottom, "", "ICON_SWITCH_ON" if on else "ICON_SWITCH_OFF")

    def field(
        self, row: float, text: str, hint: str, *, focused: bool = False, columns: int = COLUMNS
    ) -> Box:
        """Draw a text field: its text, else its hint in faint ink; an edge and a cursor if it is focused."""
        box = self._card(row, 0, columns, self.theme.card)
        if focused:
            left, top = self._to_pixels(row + 0.06, CARD_MARGIN)
            right, bottom = self._to_pixels(row + 0.94, columns / COLUMNS - CARD_MARGIN)
            edge = (left, top, right - 1, bottom - 1)
            self.draw.rounded_rectangle(edge, 0.25 * self.height / ROWS, outline=self.theme.accent, width=3)
        self.text(
            row,
            0,
            text or hint,
            columns=columns,
            ink=self.theme.ink if text else self.theme.faint,
            keep_last=bool(text),
        )
        if focused:
            self.icon(row, self._cursor(text, columns), "cursor", ink=self.theme.accent)
        return box

    def _cursor(self, text: str, columns: int) -> float:
        """Return the x of the cursor: before the next word's column, or at the end of a full field."""
        count = len(text.split())
        return (count / COLUMNS if count < columns else columns / COLUMNS - 0.04) + 0.02

    def button(
        self, row: float, label: str, *, column: int = 0, columns: int = COLUMNS, filled: bool = True
    ) -> Box:
        """Draw a button over some columns of a row, with a centered label."""
        box = self._card(row, column, columns, self.theme.accent if filled else self.theme.card, 0.4)
        ink = self.theme.on_accent if filled else self.theme.ink
        first = column + max(0, columns - len(label.split())) // 2
        self.text(row, first, label, columns=columns, align="center", ink=ink)
        return box

    def tile(self, row: float, column: int, label: str, color: Color) -> Box:
        """Draw an app of the launcher: an empty row, a colored square, and the name in the third row."""
        side = 0.9 * self.height / ROWS / self.width
        middle = (column + 0.5) / COLUMNS
        self.panel(row + 1.05, 0.9, middle - side / 2, side, color, corner_radius=0.3)
        self.panel(row + 1.35, 0.3, middle - side / 6, side / 3, (255, 255, 255), corner_radius=0.1)
        self.text(row + 2, column, label, columns=1, align="center", size=0.56)
        return Box(row / ROWS, column / COLUMNS, 3 / ROWS, 1 / COLUMNS)

    def tabs(self, row: float, labels: tuple[str, ...], selected: int) -> tuple[Box, ...]:
        """Draw a bar of one to three tabs, one word each; the selected one has the accent color."""
        self.panel(row, 1, 0, 1, self.theme.card, corner_radius=0)
        width = 1 / len(labels)
        for i, label in enumerate(labels):
            ink = self.theme.accent if i == selected else self.theme.faint
            self.text(row, int((i + 0.5) * width * COLUMNS), label, columns=1, align="center", ink=ink)
            if i == selected:
                self.panel(row + 0.9, 0.1, i * width, width, self.theme.accent, corner_radius=0)
        return tuple(Box(row / ROWS, i * width, 1 / ROWS, width) for i in range(len(labels)))

    def bubble(self, row: float, text: str, *, mine: bool) -> None:
        """Draw a message as wide as its words: at the left, or at the right and colored if it is mine."""
        columns = min(COLUMNS, len(text.split()) or 1)
        column, fill = (COLUMNS - columns, self.theme.accent) if mine else (0, self.theme.card)
        self._card(row, column, columns, fill)
        self.text(row, column, text, columns=columns, ink=self.theme.on_accent if mine else self.theme.ink)

    def dialog(self, row: float, lines: tuple[str, ...], buttons: tuple[str, ...]) -> tuple[Box, ...]:
        """Draw a dialog over the screen: lines of text and one or two buttons; return the buttons' boxes."""
        shade = Image.new("RGB", self.image.size, (0, 0, 0))
        self.image.paste(Image.blend(self.image, shade, 0.5))
        self.elements.clear()  # what the dialog covers cannot be touched
        self.panel(row - 0.4, len(lines) + 2.8, CARD_MARGIN / 2, 1 - CARD_MARGIN, self.theme.card)
        for i, line in enumerate(lines):
            self.text(row + i, max(0, COLUMNS - len(line.split())) // 2, line, align="center")
        columns = (0, COLUMNS - 1) if len(buttons) > 1 else (COLUMNS // 2,)
        return tuple(
            self.button(row + len(lines) + 1, label, column=column, columns=1, filled=label == buttons[-1])
            for column, label in zip(columns, buttons, strict=True)
        )
