"""An animated GIF of a run: each screen with its action drawn on it, for as long as the step took."""

import io
import math
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from uivlm.atomic import write_file
from uivlm.rollout.trace_html import draw_step
from uivlm.rollout.trace_reader import RecordedRun, read_trace
from uivlm.rollout.trace_schema import TraceStep

MAX_WIDTH, MAX_HEIGHT = 360, 800  # pixels of a frame
MAX_TOTAL_PIXELS = 20_000_000  # of all frames: long runs have smaller ones
MIN_FRAME_MS, MAX_FRAME_MS, LAST_FRAME_MS = 800, 2500, 3000


def write_gif(folder: Path, out: Path) -> Path:
    """Write the trace in `folder` as the GIF file `out`.

    Returns it. Raises ValueError if it is damaged or empty.
    """
    if out.suffix.lower() != ".gif":
        raise ValueError(f"out: got {out}; expected a GIF file. Name it {out.with_suffix('.gif')}")
    run = read_trace(folder)
    if not run.steps:
        raise ValueError(f"the run in {folder} has no screens: there is nothing to show")
    first, *rest = _frames(run)
    file = io.BytesIO()
    first.save(file, "GIF", save_all=True, append_images=rest, duration=frame_durations_ms(run), loop=0)
    out.parent.mkdir(parents=True, exist_ok=True)
    return write_file(out, file.getvalue())


def frame_durations_ms(run: RecordedRun) -> list[int]:
    """Milliseconds of each frame: the time until the next screen, clamped to what can be watched."""
    durations = [
        sum(ms or 0.0 for ms in (step.inference_ms, step.execute_ms, following.screenshot_ms))
        for step, following in zip(run.steps, run.steps[1:], strict=False)
    ]
    return [round(min(max(ms, MIN_FRAME_MS), MAX_FRAME_MS)) for ms in durations] + [LAST_FRAME_MS]


def _frames(run: RecordedRun) -> Iterator[Image.Image]:
    """All of one size, even if the phone was turned; the rest of a frame is black."""
    width, height = _frame_size(run.steps)
    for step in run.steps:
        screen = draw_step(run, step)
        screen.thumbnail((width, height))
        frame = Image.new("RGB", (width, height))
        frame.paste(screen, ((width - screen.width) // 2, (height - screen.height) // 2))
        yield frame.quantize(128)


def _frame_size(steps: tuple[TraceStep, ...]) -> tuple[int, int]:
    """Pixels (width, height) of a frame into which each screen fits."""
    scales = [min(1.0, MAX_WIDTH / step.width, MAX_HEIGHT / step.height) for step in steps]
    width = max(scale * step.width for scale, step in zip(scales, steps, strict=True))
    height = max(scale * step.height for scale, step in zip(scales, steps, strict=True))
    shrink = min(1.0, math.sqrt(MAX_TOTAL_PIXELS / (width * height * len(steps))))
    return max(1, round(shrink * width)), max(1, round(shrink * height))
