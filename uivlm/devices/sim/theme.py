"""How simulated phones may look: sizes and colours. In: light or dark and an accent, out a `Theme`."""

from dataclasses import dataclass

SIZES = ((270, 540), (270, 600), (288, 576), (300, 600), (324, 648))  # width, height in pixels
Colour = tuple[int, int, int]


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
