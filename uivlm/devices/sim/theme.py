"""Sizes and colors of simulated phones: light or dark and an accent in, a `Theme` out."""

from dataclasses import dataclass

SCREEN_SIZES = ((270, 540), (270, 600), (288, 576), (300, 600), (324, 648))  # width, height in pixels
Color = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Theme:
    paper: Color
    card: Color
    ink: Color
    faint: Color
    line: Color
    accent: Color
    on_accent: Color


ACCENTS: tuple[Color, ...] = ((26, 98, 214), (14, 124, 102), (150, 48, 160), (196, 78, 16), (70, 84, 110))


def make_theme(dark: bool, accent: int) -> Theme:
    """Return a light or dark theme with one of the accent colors."""
    color = ACCENTS[accent % len(ACCENTS)]
    if dark:
        return Theme(
            (18, 20, 24), (38, 42, 48), (236, 238, 242), (150, 156, 166), (58, 62, 70), color, (255,) * 3
        )
    return Theme(
        (250, 250, 252), (234, 237, 242), (24, 26, 30), (108, 114, 124), (214, 218, 224), color, (255,) * 3
    )
