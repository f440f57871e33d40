"""The log of a run as plots: one line per step in, one HTML page out."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from markupsafe import Markup

from uivlm.reports.html import render
from uivlm.reports.svg import Series, plot

SMOOTHING = 0.9  # of the smoothed line: weight of its previous value
MIN_SMOOTHED_POINTS = 20  # shorter lines stay as they are
CAPTIONS = {  # by key of the log; a key that ends in "_" covers all keys with that prefix
    "loss": "Loss, nats per trained token (pale: each step; dark: smoothed)",
    "loss_": "Loss by action type, smoothed",
    "eval_partial_match": "Validation: partial match, teacher-forced",
    "eval_loss": "Validation: loss, nats per trained token",
    "learning_rate": "Learning rate",
    "grad_norm": "Gradient norm, before clipping",
    "tokens_per_second": "Tokens per second",
    "data_loading_fraction": "Data loading, fraction of the time",
}


def write_curves(log: str, file: Path, title: str) -> None:
    """`log`: the text of log.jsonl. Keys without a finite value get no plot."""
    lines = [json.loads(line) for line in log.splitlines()]
    figures = []
    for key, caption in CAPTIONS.items():
        names = {name for line in lines for name in line if name == key or _stands_for(key, name)}
        series = [line for name in sorted(names) if (line := _series(lines, name)).xs]
        if series:
            last = max(x for line in series for x in line.xs)
            svg = plot(_with_smoothing(series, smooth="loss" in key), f"step {last:.0f}")
            figures.append((caption, Markup(svg)))
    file.write_text(render("curves", title=title, figures=figures), "utf-8")


def _stands_for(key: str, name: str) -> bool:
    return key.endswith("_") and name.startswith(key)


def _series(lines: Iterable[dict[str, float]], name: str) -> Series:
    points = [(line["step"], line[name]) for line in lines if math.isfinite(line.get(name, math.nan))]
    return Series(name, [step for step, _ in points], [value for _, value in points])


def _with_smoothing(series: Sequence[Series], smooth: bool) -> list[Series]:
    """Smooths long lines. A single line is also drawn as it is, faint."""
    result = []
    for line in series:
        long = smooth and len(line.ys) > MIN_SMOOTHED_POINTS
        if long and len(series) == 1:
            result.append(replace(line, faint=True))
        result.append(replace(line, ys=_moving_average(line.ys)) if long else line)
    return result


def _moving_average(values: Sequence[float]) -> list[float]:
    """Exponential; it starts at the first value, so its start needs no correction."""
    averages, mean = [], values[0]
    for value in values:
        mean = SMOOTHING * mean + (1 - SMOOTHING) * value
        averages.append(mean)
    return averages
