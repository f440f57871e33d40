"""One drawing of the simulated phone: calls of the current app in, pixels and touch targets out.

Content occupies whole rows. Lists scroll by whole rows and end with a row that marks their end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from uivlm.devices.sim.canvas import COLUMNS, ROWS, Box, Canvas
from uivlm.devices.sim.navigation import Callback, PhoneState
from uivlm.devices.sim.theme import make_theme
from uivlm.episodes.episode import Element

NAV_BAR_ROW = 15  # content ends above it
MAX_DRAWN_CHARS = 60  # of typed text


@dataclass(frozen=True, slots=True)
class TouchTarget:
    """A touchable area. The expert and the tests use `name`; it is never drawn."""

    name: str
    box: Box
    on_touch: Callback


@dataclass(frozen=True, slots=True)
class ListRow:
    """One row of a list. It is touchable if `on_touch` is set; its target is called `name` or row:LABEL."""

    label: str
    on_touch: Callback | None = None
    name: str = ""
    value: str = ""
    switch: bool | None = None


def drawable_text(text: str) -> str:
    """Return typed text in a drawable form: truncated and without halves of surrogate pairs."""
    return text[:MAX_DRAWN_CHARS].encode("utf-8", "replace").decode("utf-8")


class AppView:
    """A canvas with its touch targets, scroll position, swipe actions and enter action."""

    def __init__(self, state: PhoneState) -> None:
        self.state = state
        self.look = state.world.look
        self.canvas = Canvas(self.look.width, self.look.height, make_theme(self.look.dark, self.look.accent))
        self.targets: list[TouchTarget] = []
        self.swipe_actions: dict[str, Callback] = {}  # left, right, up, down; used if nothing can scroll
        self.on_enter: Callback | None = None
        self.scroll_row = 0  # rows scrolled
        self.max_scroll_row = 0  # maximum of scroll_row
        self.next_row = 1  # the first free row
        self.end_row = NAV_BAR_ROW  # the row after the last free one

    def add_target(self, name: str, box: Box, on_touch: Callback) -> None:
        self.targets.append(TouchTarget(name, box, on_touch))

    def title(
        self, text: str, *, back: bool = True, action: str = "", on_action: Callback | None = None
    ) -> None:
        """Draw the app bar. Content starts below it, after the margin of this phone."""
        left, right = self.canvas.app_bar(drawable_text(text), back=back, action=action)
        if back:
            self.add_target("arrow", left, self.state.go_back)
        if on_action is not None:
            self.add_target(f"icon:{action}", right, on_action)
        self.next_row = 2 + self.look.margin

    def tabs(self, tabs: Sequence[tuple[str, Callback]], selected: str) -> None:
        """Draw tabs (keys of LABEL_WORDINGS) under the title or at the bottom, as this phone does."""
        row = NAV_BAR_ROW - 1 if self.look.tabs_at_bottom else 2
        labels = tuple(self.look.label(key) for key, _ in tabs)
        keys = [key for key, _ in tabs]
        boxes = self.canvas.tabs(row, labels, keys.index(selected))
        for (key, act), box in zip(tabs, boxes, strict=True):
            self.add_target(f"tab:{key}", box, act)
        if self.look.tabs_at_bottom:
            self.end_row = row
        else:
            self.next_row += 1

    def text(self, text: str, *, faint: bool = False) -> None:
        """Draw a line of text in the next row."""
        ink = self.canvas.theme.faint if faint else None
        self.canvas.text(self.next_row, 0, drawable_text(text), ink=ink)
        self.next_row += 1

    def picture(self, lines: Sequence[str]) -> None:
        """Draw an image that contains text: its words are pixels, not elements."""
        top, num_elements = self.next_row, len(self.canvas.elements)
        self.canvas.panel(top, len(lines), 0.0, 1.0, self.canvas.theme.card, corner_radius=0)
        for line in lines:
            self.text(line)
        image = Element(top / ROWS, 0.0, len(lines) / ROWS, 1.0, "", "IMAGE")
        self.canvas.elements[num_elements:] = [image]

    def field(
        self, name: str, hint: str, *, row: int | None = None, columns: int = COLUMNS, default_text: str = ""
    ) -> None:
        """Draw a text field. It shows `default_text` until it has the focus or a text."""
        entry = self.state.current
        text = drawable_text(entry.fields.get(name, "")) or (
            "" if entry.focus == name else drawable_text(default_text)
        )
        at = self.next_row if row is None else row
        box = self.canvas.field(at, text, hint, focused=entry.focus == name, columns=columns)
        self.add_target(f"field:{name}", box, partial(setattr, entry, "focus", name))
        if row is None:
            self.next_row += 1

    def button(
        self, key: str, on_touch: Callback, *, row: int | None = None, column: int = 0, columns: int = COLUMNS
    ) -> None:
        at = self.next_row + 1 if row is None else row
        self.add_target(
            f"button:{key}",
            self.canvas.button(at, self.look.label(key), column=column, columns=columns),
            on_touch,
        )
        if row is None:
            self.next_row += 2

    def scroll_window(self, num_rows: int) -> tuple[int, int]:
        """Scroll `num_rows` rows through the free rows; return the first visible row and how many fit."""
        num_visible = self.end_row - self.next_row
        self.max_scroll_row = max(0, num_rows - num_visible)
        self.scroll_row = min(max(0, self.state.current.scroll), self.max_scroll_row)
        return self.scroll_row, num_visible

    def list(self, rows: Sequence[ListRow]) -> None:
        """Draw a scrolling list in the free rows, closed by a row that marks its end."""
        pitch = self.look.pitch
        top, num_visible = self.scroll_window(len(rows) * pitch + 1)
        for i, row in enumerate(rows):
            at = i * pitch - top
            if not 0 <= at < num_visible:
                continue
            box = self.canvas.row(
                self.next_row + at, drawable_text(row.label), value=row.value, switch=row.switch
            )
            if row.on_touch is not None:
                self.add_target(row.name or f"row:{row.label}", box, row.on_touch)
        at = len(rows) * pitch - top
        if 0 <= at < num_visible:
            label = self.look.label("end" if rows else "empty")
            self.canvas.text(
                self.next_row + at, 1, label, columns=2, align="center", ink=self.canvas.theme.faint
            )
