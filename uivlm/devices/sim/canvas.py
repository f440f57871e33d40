"""The simulated phone's brush: widgets on a rhythm of 16 rows, drawn with Pillow, annotated as AITW annotates.

In: labels and where they go (rows from the top, fractions of the width). Out: a `Screen` and, for each widget,
the `Box` a finger can hit. Everything scales with the screen, so all sizes and both themes share one look.
The typeface is the one inside Pillow: the same pixels on every machine.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from uivlm.episode import Element, Screen

ROWS = 16  # status bar in row 0, content in rows 1..14, navigation bar in row 15
TEXT = 0.62  # height of ordinary type, in rows
Colour = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Box:
    """A place to touch: fractions of the screen, y before x."""

    y: float
    x: float
    height: float
    width: float

    def holds(self, y: float, x: float) -> bool:
        return self.y <= y < self.y + self.height and self.x <= x < self.x + self.width


@dataclass(frozen=True, slots=True)
class Theme:
    paper: Colour
    card: Colour
    ink: Colour
    faint: Colour
    line: Colour
    accent: Colour
    on_accent: Colour


ACCENTS: tuple[Colour, ...] = ((26, 98, 214), (14, 124, 102), (150, 48, 160), (196, 78, 16), (70, 84, 110))


def theme(dark: bool, accent: int) -> Theme:
    """A light or dark theme with one of the accent colours."""
    colour = ACCENTS[accent % len(ACCENTS)]
    if dark:
        return Theme(
            (18, 20, 24), (38, 42, 48), (236, 238, 242), (150, 156, 166), (58, 62, 70), colour, (255,) * 3
        )
    return Theme(
        (250, 250, 252), (234, 237, 242), (24, 26, 30), (108, 114, 124), (214, 218, 224), colour, (255,) * 3
    )


@lru_cache(maxsize=64)
def _font(pixels: int) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(pixels)
    assert isinstance(font, ImageFont.FreeTypeFont), "Pillow was built without FreeType"
    return font


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
        x: float,
        words: str,
        *,
        room: float = 1.0,
        align: str = "left",
        size: float = TEXT,
        ink: Colour | None = None,
    ) -> None:
        """One line of type in the middle of a row; `room` is the width it may take, longer text is cut."""
        if not words:
            return
        font = _font(max(6, round(size * self.em)))
        shown = words.replace("\n", " ")
        while len(shown) > 1 and font.getlength(shown) > room * self.width:
            shown = shown[:-2].rstrip("… ") + "…"
        length = font.getlength(shown)
        left, middle = self._px(row + 0.5, x)
        left -= {"left": 0.0, "center": length / 2, "right": length}[align]
        self.draw.text(
            (round(left), round(middle)), shown, fill=ink or self.theme.ink, font=font, anchor="lm"
        )
        half = font.size * 0.5
        self._note(left, middle - half, left + length, middle + half, shown, "TEXT")

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
        """A small sign centred at x of a row: back, plus, search, close, circle, square, more."""
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
            case "more":
                for dy in (-r, 0.0, r):
                    self.draw.ellipse((cx - wide, cy + dy - wide, cx + wide, cy + dy + wide), fill=colour)
            case _:
                raise ValueError(f"no icon is called {name!r}")
        kind = {"back": "ICON_V_BACKWARD", "circle": "ICON_NAV_BAR_CIRCLE", "square": "ICON_NAV_BAR_RECT"}
        self._note(cx - r, cy - r, cx + r, cy + r, "", kind.get(name, f"ICON_{name.upper()}"))

    # -- widgets --------------------------------------------------------------------------------------------

    def status_bar(self, clock: str) -> None:
        self.text(0, 0.05, clock, size=0.5, ink=self.theme.faint)

    def nav_bar(self) -> tuple[Box, Box]:
        """System back and home; returns where each can be hit."""
        self.icon(15, 0.25, "back", ink=self.theme.faint, size=0.4)
        self.icon(15, 0.5, "circle", ink=self.theme.faint, size=0.4)
        return Box(15 / ROWS, 0.125, 1 / ROWS, 0.25), Box(15 / ROWS, 0.375, 1 / ROWS, 0.25)

    def app_bar(self, title: str, *, back: bool = True, action: str = "") -> tuple[Box, Box]:
        """Title in row 1 on the accent colour, an arrow on its left, an icon on its right; returns their boxes."""
        self.panel(1, 1, 0, 1, self.theme.accent, round_to=0)
        if back:
            self.icon(1, 0.07, "back", ink=self.theme.on_accent)
        self.text(1, 0.15 if back else 0.05, title, room=0.66, ink=self.theme.on_accent)
        if action:
            self.icon(1, 0.92, action, ink=self.theme.on_accent)
        return Box(1 / ROWS, 0, 1 / ROWS, 0.14), Box(1 / ROWS, 0.84, 1 / ROWS, 0.16)

    def row(
        self, row: float, label: str, *, value: str = "", switch: bool | None = None, indent: float = 0.05
    ) -> Box:
        """A line of a list: a label, and at the right a value or a switch."""
        right = 0.3 if switch is not None else 0.05
        if value:
            self.text(row, 0.95, value, room=0.44, align="right", ink=self.theme.faint)
            right = 0.46
        self.text(row, indent, label, room=1 - indent - right)
        if switch is not None:
            self._switch(row, switch)
        left, bottom = self._px(row + 1, 0)
        self.draw.line((left, bottom - 1, self.width, bottom - 1), fill=self.theme.line)
        return Box(row / ROWS, 0, 1 / ROWS, 1)

    def _switch(self, row: float, on: bool) -> None:
        self.panel(row + 0.22, 0.56, 0.8, 0.15, self.theme.accent if on else self.theme.line, round_to=0.28)
        cx, cy = self._px(row + 0.5, 0.91 if on else 0.84)
        r = 0.2 * self.height / ROWS
        self.draw.ellipse((cx - r, cy - r, cx + r, cy + r), fill=(255, 255, 255))
        left, top = self._px(row + 0.22, 0.8)
        right, bottom = self._px(row + 0.78, 0.95)
        self._note(left, top, right, bottom, "", "ICON_SWITCH_ON" if on else "ICON_SWITCH_OFF")

    def field(
        self, row: float, text: str, hint: str, *, focused: bool = False, x: float = 0.04, width: float = 0.92
    ) -> Box:
        """A text field of one row: its text, else its hint in faint ink; a coloured edge when focused."""
        box = self.panel(row + 0.06, 0.88, x, width, self.theme.card)
        if focused:
            left, top = self._px(row + 0.06, x)
            right, bottom = self._px(row + 0.94, x + width)
            edge = (left, top, right - 1, bottom - 1)
            self.draw.rounded_rectangle(edge, 0.25 * self.height / ROWS, outline=self.theme.accent, width=3)
        ink = self.theme.ink if text else self.theme.faint
        self.text(row, x + 0.04, text or hint, room=width - 0.08, ink=ink)
        return box

    def button(
        self, row: float, label: str, *, x: float = 0.25, width: float = 0.5, filled: bool = True
    ) -> Box:
        """A button of one row with its label in the middle."""
        box = self.panel(
            row + 0.06, 0.88, x, width, self.theme.accent if filled else self.theme.card, round_to=0.4
        )
        ink = self.theme.on_accent if filled else self.theme.ink
        self.text(row, x + width / 2, label, room=width - 0.04, align="center", ink=ink)
        return box

    def tile(self, row: float, x: float, width: float, label: str, colour: Colour) -> Box:
        """An app on the launcher: a coloured square with its initial over two rows, its name in the third."""
        side = 1.5 * self.height / ROWS / self.width
        self.panel(row + 0.3, 1.5, x + width / 2 - side / 2, side, colour, round_to=0.4)
        self.text(row + 0.55, x + width / 2, label[:1], align="center", size=0.9, ink=(255, 255, 255))
        self.text(row + 2, x + width / 2, label, room=width, align="center", size=0.5)
        return Box(row / ROWS, x, 3 / ROWS, width)

    def tabs(self, row: float, labels: tuple[str, ...], chosen: int) -> tuple[Box, ...]:
        """A bar of text tabs over the whole width; the chosen one in the accent colour."""
        self.panel(row, 1, 0, 1, self.theme.card, round_to=0)
        width = 1 / len(labels)
        for i, label in enumerate(labels):
            ink = self.theme.accent if i == chosen else self.theme.faint
            self.text(row, (i + 0.5) * width, label, room=width, align="center", ink=ink)
            if i == chosen:
                self.panel(row + 0.9, 0.1, i * width, width, self.theme.accent, round_to=0)
        return tuple(Box(row / ROWS, i * width, 1 / ROWS, width) for i in range(len(labels)))

    def bubble(self, row: float, words: str, *, mine: bool) -> None:
        """A message: left for theirs, right and coloured for mine."""
        x, fill = (0.28, self.theme.accent) if mine else (0.04, self.theme.card)
        self.panel(row + 0.06, 0.88, x, 0.68, fill)
        self.text(row, x + 0.04, words, room=0.6, ink=self.theme.on_accent if mine else self.theme.ink)

    def dialog(self, row: float, lines: tuple[str, ...], buttons: tuple[str, ...]) -> tuple[Box, ...]:
        """A card over whatever was drawn: lines of text, then buttons side by side; returns the buttons' boxes."""
        veil = Image.new("RGB", self.image.size, (0, 0, 0))
        self.image.paste(Image.blend(self.image, veil, 0.5))
        self.elements.clear()  # what lies under the veil cannot be used
        self.panel(row, len(lines) + 2.5, 0.06, 0.88, self.theme.card)
        for i, line in enumerate(lines):
            self.text(row + 0.5 + i, 0.5, line, room=0.8, align="center")
        width = 0.84 / len(buttons)
        last = len(buttons) - 1
        return tuple(
            self.button(
                row + len(lines) + 1, label, x=0.08 + i * width + 0.01, width=width - 0.02, filled=i == last
            )
            for i, label in enumerate(buttons)
        )
