"""The log of a run as pictures: one line a step in, a page out."""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from uivlm.page import page, safe

WIDTH, HEIGHT = 640, 180  # of a plot, in pixels
LEFT, BELOW = 60, 20  # room for numbers
COLOURS = ("#2563a8", "#b5482a", "#2f7d4f", "#7a4ea3", "#a07c1c", "#3b8a95", "#a33d6e", "#555555", "#000000")
SMOOTH = 0.9  # of the dark line: share of what was before
TITLES = {
    "loss": "Loss, nats per trained token (pale: each step; dark: smoothed)",
    "loss_": "Loss by kind of action, smoothed",
    "eval_match": "Validation: share of right steps, teacher-forced",
    "eval_loss": "Validation: nats per trained token",
    "learning_rate": "Learning rate",
    "grad_norm": "Norm of the gradient, before it is clipped",
    "tokens_s": "Tokens a second",
    "wait": "Share of the time spent waiting for batches",
}
Line = tuple[str, list[float], list[float]]  # name, steps, values


def write_curves(log: str, file: Path, title: str) -> None:
    """`log`: the text of log.jsonl. Plots of which there is nothing are left out, and numbers that are none."""
    lines = [json.loads(line) for line in log.splitlines()]
    body = [f"<h1>{safe(title)}</h1>"]
    for prefix, caption in TITLES.items():
        many = prefix.endswith("_")
        names = sorted(
            {name for line in lines for name in line if name == prefix or (many and name.startswith(prefix))}
        )
        drawn = [line for name in names if (line := _line(lines, name))[1]]
        if drawn:
            body.append(
                f"<figure><figcaption>{safe(caption)}</figcaption>{_plot(drawn, smooth='loss' in prefix)}</figure>"
            )
    file.write_text(page(title, STYLE, "\n".join(body)), "utf-8")


def _line(lines: Iterable[dict[str, float]], name: str) -> Line:
    found = [(line["step"], line[name]) for line in lines if math.isfinite(line.get(name, math.nan))]
    return name, [step for step, _ in found], [value for _, value in found]


def _plot(drawn: Sequence[Line], smooth: bool) -> str:
    """Lines over steps in one frame, with the names of several."""
    every = [value for _, _, values in drawn for value in values]
    low, high = min([0.0, *every]), max(every) or 1.0
    last = max(step for _, steps, _ in drawn for step in steps)

    def path(steps: Sequence[float], values: Sequence[float], colour: str, opacity: float = 1.0) -> str:
        points = " ".join(
            f"{LEFT + step / max(1, last) * WIDTH:.1f},{HEIGHT - (value - low) / (high - low) * (HEIGHT - 10):.1f}"
            for step, value in zip(steps, values, strict=True)
        )
        return f'<polyline points="{points}" fill="none" stroke="{colour}" opacity="{opacity}"/>'

    parts = []
    for i, (name, steps, values) in enumerate(drawn):
        colour = COLOURS[i % len(COLOURS)]
        if smooth and len(values) > 20:
            if len(drawn) == 1:
                parts.append(path(steps, values, colour, 0.3))
            parts.append(path(steps, _smoothed(values), colour))
        else:
            parts.append(path(steps, values, colour))
        if len(drawn) > 1:
            parts.append(
                f'<text x="{LEFT + WIDTH + 8}" y="{14 + 16 * i}" fill="{colour}">{safe(name)}</text>'
            )
    frame = (
        f'<path d="M{LEFT} 0V{HEIGHT}H{LEFT + WIDTH}" fill="none" stroke="#999"/>'
        f'<text x="{LEFT - 6}" y="14" text-anchor="end">{high:.3g}</text>'
        f'<text x="{LEFT - 6}" y="{HEIGHT}" text-anchor="end">{low:.3g}</text>'
        f'<text x="{LEFT + WIDTH}" y="{HEIGHT + BELOW - 4}" text-anchor="end">step {last:.0f}</text>'
    )
    box = f"0 0 {LEFT + WIDTH + (160 if len(drawn) > 1 else 10)} {HEIGHT + BELOW}"
    return f'<svg viewBox="{box}" role="img">{frame}{"".join(parts)}</svg>'


def _smoothed(values: Sequence[float]) -> list[float]:
    """Exponential, begun at the first value, so that it has no start to correct."""
    found, mean = [], values[0]
    for value in values:
        mean = SMOOTH * mean + (1 - SMOOTH) * value
        found.append(mean)
    return found


STYLE = """
body { max-width: 56rem }
figure { margin: 1.5rem 0 }
svg { width: 100%; height: auto; font-size: 12px }
"""
