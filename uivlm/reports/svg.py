"""Line charts as SVG inside a page: numbers in, markup out."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from uivlm.reports.html import escape

WIDTH, HEIGHT = 640, 180  # of the frame, in pixels
LEFT, BOTTOM = 60, 20  # room for numbers
COLORS = ("#2563a8", "#b5482a", "#2f7d4f", "#7a4ea3", "#a07c1c", "#3b8a95", "#a33d6e", "#555555", "#000000")


@dataclass(frozen=True, slots=True)
class Series:
    """One line. Lines of one name share a color and an entry of the legend."""

    name: str
    xs: Sequence[float]  # 0 or more
    ys: Sequence[float]
    faint: bool = False


def plot(series: Sequence[Series], x_label: str, y_max: float | None = None) -> Markup:
    """The chart. `x_label` is at the right end of the x axis. `y_max` defaults to the largest value."""
    values = [value for line in series for value in line.ys]
    low = min([0.0, *values])
    top = (max(values) or 1.0) if y_max is None else y_max
    x_max = max(x for line in series for x in line.xs) or 1.0
    names = list(dict.fromkeys(line.name for line in series))

    def path(line: Series) -> str:
        points = " ".join(
            f"{LEFT + x / x_max * WIDTH:.1f},{HEIGHT - (y - low) / (top - low) * (HEIGHT - 10):.1f}"
            for x, y in zip(line.xs, line.ys, strict=True)
        )
        color = COLORS[names.index(line.name) % len(COLORS)]
        opacity = 0.3 if line.faint else 1.0
        return f'<polyline points="{points}" fill="none" stroke="{color}" opacity="{opacity}"/>'

    legend = "".join(
        f'<text x="{LEFT + WIDTH + 8}" y="{14 + 16 * i}" '
        f'fill="{COLORS[i % len(COLORS)]}">{escape(name)}</text>'
        for i, name in enumerate(names if len(names) > 1 else ())
    )
    frame = (
        f'<path d="M{LEFT} 0V{HEIGHT}H{LEFT + WIDTH}" fill="none" stroke="#999"/>'
        f'<text x="{LEFT - 6}" y="14" text-anchor="end">{top:.3g}</text>'
        f'<text x="{LEFT - 6}" y="{HEIGHT}" text-anchor="end">{low:.3g}</text>'
        f'<text x="{LEFT + WIDTH}" y="{HEIGHT + BOTTOM - 4}" text-anchor="end">{escape(x_label)}</text>'
    )
    box = f"0 0 {LEFT + WIDTH + (160 if len(names) > 1 else 10)} {HEIGHT + BOTTOM}"
    lines = "".join(map(path, series))
    return Markup(f'<svg viewBox="{box}" role="img">{frame}{lines}{legend}</svg>')
