"""A run as a film: a trace in, an animated GIF out, each screen with the action drawn on it for as long as the step took."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from uivlm.trace_page import drawn
from uivlm.trace_read import Row, Run, read_trace

WIDTH, HEIGHT = 360, 800  # pixels: the most that a frame has
MOST_PIXELS = 20_000_000  # of all frames together: long runs have smaller ones
SHORTEST_MS, LONGEST_MS, LAST_MS = 800, 2500, 3000  # what an eye needs, and has patience for


def film(folder: Path, out: Path) -> Path:
    """The trace in `folder` as the GIF file `out`. ValueError where it is damaged, or where nothing was seen in it."""
    if out.suffix.lower() != ".gif":
        raise ValueError(f"{out} is no name of a GIF: a film is one, name it {out.with_suffix('.gif')}")
    run = read_trace(folder)
    if not run.rows:
        raise ValueError(f"nothing was seen in the run in {folder}: there is nothing to show")
    first, *rest = _frames(run)
    partial = out.with_name(f"{out.name}.partial")
    out.parent.mkdir(parents=True, exist_ok=True)
    first.save(partial, "GIF", save_all=True, append_images=rest, duration=durations(run), loop=0)
    os.replace(partial, out)
    return out


def durations(run: Run) -> list[int]:
    """Milliseconds of each frame: until the next screen was seen, within what can be watched."""
    waits = [
        sum(ms or 0.0 for ms in (row.agent_ms, row.perform_ms, after.screen_ms))
        for row, after in zip(run.rows, run.rows[1:], strict=False)
    ]
    return [round(min(max(wait, SHORTEST_MS), LONGEST_MS)) for wait in waits] + [LAST_MS]


def _frames(run: Run) -> Iterator[Image.Image]:
    """All of one size, however the phone was turned; what a screen leaves free is black."""
    width, height = _size(run.rows)
    for row in run.rows:
        screen = drawn(row)
        screen.thumbnail((width, height))
        frame = Image.new("RGB", (width, height))
        frame.paste(screen, ((width - screen.width) // 2, (height - screen.height) // 2))
        yield frame.quantize(128)


def _size(rows: tuple[Row, ...]) -> tuple[int, int]:
    """Pixels (width, height) of a frame into which each of the screens fits."""
    scales = [min(1.0, WIDTH / row.width, HEIGHT / row.height) for row in rows]
    width = max(scale * row.width for scale, row in zip(scales, rows, strict=True))
    height = max(scale * row.height for scale, row in zip(scales, rows, strict=True))
    few = min(1.0, math.sqrt(MOST_PIXELS / (width * height * len(rows))))
    return max(1, round(few * width)), max(1, round(few * height))
