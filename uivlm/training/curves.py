"""The log of a run as pictures: one line a step in, a page out."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from uivlm.page import page, safe
from uivlm.plot import Line, plot

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


def write_curves(log: str, file: Path, title: str) -> None:
    """`log`: the text of log.jsonl. Plots of which there is nothing are left out, and numbers that are none."""
    lines = [json.loads(line) for line in log.splitlines()]
    body = [f"<h1>{safe(title)}</h1>"]
    for prefix, caption in TITLES.items():
        many = prefix.endswith("_")
        names = sorted(
            {name for line in lines for name in line if name == prefix or (many and name.startswith(prefix))}
        )
        drawn = [line for name in names if (line := _line(lines, name)).xs]
        if drawn:
            last = max(x for line in drawn for x in line.xs)
            picture = plot(_lines(drawn, smooth="loss" in prefix), f"step {last:.0f}")
            body.append(f"<figure><figcaption>{safe(caption)}</figcaption>{picture}</figure>")
    file.write_text(page(title, STYLE, "\n".join(body)), "utf-8")


def _line(lines: Iterable[dict[str, float]], name: str) -> Line:
    found = [(line["step"], line[name]) for line in lines if math.isfinite(line.get(name, math.nan))]
    return Line(name, [step for step, _ in found], [value for _, value in found])


def _lines(drawn: Sequence[Line], smooth: bool) -> list[Line]:
    """Long lines smoothed; one that is alone is faint beside that."""
    found = []
    for one in drawn:
        long = smooth and len(one.ys) > 20
        if long and len(drawn) == 1:
            found.append(replace(one, faint=True))
        found.append(replace(one, ys=_smoothed(one.ys)) if long else one)
    return found


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
