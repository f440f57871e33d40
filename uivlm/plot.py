"""Lines in a frame, as SVG inside a page: numbers in, text out."""

from collections.abc import Sequence
from dataclasses import dataclass

from uivlm.page import safe

WIDTH, HEIGHT = 640, 180  # of the frame, in pixels
LEFT, BELOW = 60, 20  # room for numbers
COLOURS = ("#2563a8", "#b5482a", "#2f7d4f", "#7a4ea3", "#a07c1c", "#3b8a95", "#a33d6e", "#555555", "#000000")


@dataclass(frozen=True, slots=True)
class Line:
    """Of one colour with all lines of its name; a faint one has no name beside the frame."""

    name: str
    xs: Sequence[float]  # from 0
    ys: Sequence[float]
    faint: bool = False


def plot(lines: Sequence[Line], right: str, high: float | None = None) -> str:
    """All of them; `right` stands at the right end of the x axis. The y axis ends at `high`, or at the greatest number."""
    every = [value for line in lines for value in line.ys]
    low = min([0.0, *every])
    top = (max(every) or 1.0) if high is None else high
    last = max(x for line in lines for x in line.xs) or 1.0
    names = list(dict.fromkeys(line.name for line in lines))

    def path(line: Line) -> str:
        points = " ".join(
            f"{LEFT + x / last * WIDTH:.1f},{HEIGHT - (y - low) / (top - low) * (HEIGHT - 10):.1f}"
            for x, y in zip(line.xs, line.ys, strict=True)
        )
        colour = COLOURS[names.index(line.name) % len(COLOURS)]
        return f'<polyline points="{points}" fill="none" stroke="{colour}" opacity="{0.3 if line.faint else 1.0}"/>'

    legend = "".join(
        f'<text x="{LEFT + WIDTH + 8}" y="{14 + 16 * i}" fill="{COLOURS[i % len(COLOURS)]}">{safe(name)}</text>'
        for i, name in enumerate(names)
        if len(names) > 1
    )
    frame = (
        f'<path d="M{LEFT} 0V{HEIGHT}H{LEFT + WIDTH}" fill="none" stroke="#999"/>'
        f'<text x="{LEFT - 6}" y="14" text-anchor="end">{top:.3g}</text>'
        f'<text x="{LEFT - 6}" y="{HEIGHT}" text-anchor="end">{low:.3g}</text>'
        f'<text x="{LEFT + WIDTH}" y="{HEIGHT + BELOW - 4}" text-anchor="end">{safe(right)}</text>'
    )
    box = f"0 0 {LEFT + WIDTH + (160 if len(names) > 1 else 10)} {HEIGHT + BELOW}"
    return f'<svg viewBox="{box}" role="img">{frame}{"".join(map(path, lines))}{legend}</svg>'
