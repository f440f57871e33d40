"""The terminal. Texts of others reach it as printable characters only: none of them can steer it."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text


def printable(text: str, keep: str = "") -> str:
    r"""The text with every other character as its code, such as \x1b or \u202e, except those in `keep`.

    Not printable are control characters, line ends, and format characters, which may reverse or hide text.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


class Terminal(Console):
    """A rich console that prints each text as `printable` has it. Line ends, styles and tables stay.

    A few control characters, such as the bell, have no code: rich drops them when it makes a Text.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if isinstance(renderable, str):
            current = options or self.options
            renderable = self.render_str(renderable, highlight=current.highlight, markup=current.markup)
        if isinstance(renderable, Text) and not renderable.plain.isprintable():
            renderable = self._printable_text(renderable)
        return super().render(renderable, options)

    def _printable_text(self, text: Text) -> Text:
        """The same styles on the printable characters; line ends stay."""
        shown = text.blank_copy()
        for segment in text.render(self):
            shown.append(printable(segment.text, "\n"), segment.style)
        return shown
