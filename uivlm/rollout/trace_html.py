"""HTML pages of one trace and of a folder of traces.

Both are made from the traces alone, and can be made again.
"""

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup
from PIL import Image

from uivlm.actions.action import Action, InvalidAction
from uivlm.atomic import write_file
from uivlm.reports.draw import caption, data_url, draw_action
from uivlm.reports.html import render
from uivlm.rollout.trace_reader import RecordedRun, read_trace
from uivlm.rollout.trace_schema import FILE_MODE, PAGE_FILE, RUN_FILE, TraceStep

ACTION_COLOR = "#e8175d"
MAX_IMAGE_WIDTH, MAX_IMAGE_HEIGHT = 360, 800  # pixels of a screen on the page
COLUMNS = ("goal", "actor", "status", "task success", "steps", "started")
TASK_SUCCESS = {None: "", True: "yes", False: "no"}


def write_page(folder: Path) -> Path:
    """Write the trace's own `index.html`: each screen with its tap or swipe drawn on it. Returns its path."""
    run = read_trace(folder)
    info = run.info
    facts = {
        "actor": info.actor,
        "status": info.status,
        "message": info.message,
        "task success": TASK_SUCCESS[info.task_success],
        "steps": len(run.steps),
        "started": info.started,
        "ended": info.ended or "",
        **info.metadata,
    }
    versions = ", ".join(f"{name} {version}" for name, version in info.versions.items())
    page = render(
        "trace",
        title=info.goal,
        facts=facts,
        steps=[_step_values(run, step) for step in run.steps],
        versions=versions,
    )
    return write_file(folder / PAGE_FILE, page, FILE_MODE)


def write_index(folder: Path) -> Path:
    """Write the `index.html` of a folder with traces at any depth. Returns its path.

    A trace that cannot be read has a row with the reason. Raises ValueError if `folder` does not exist or is
    a trace.
    """
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}: name a folder that contains traces")
    if (folder / RUN_FILE).exists():
        raise ValueError(f"{folder} is itself a trace: name the folder that contains it")
    traces = sorted(path.parent for path in folder.rglob(RUN_FILE))
    rows = [_index_row(trace, trace.relative_to(folder).as_posix()) for trace in traces]
    page = render("trace_index", title=f"{len(traces)} traces", columns=COLUMNS, rows=rows)
    return write_file(folder / PAGE_FILE, page, FILE_MODE)


def draw_step(run: RecordedRun, step: TraceStep) -> Image.Image:
    """The step's screen in its full size, with the action drawn on it."""
    if step.action is None or isinstance(step.action, InvalidAction):
        return Image.fromarray(run.pixels(step))
    return draw_action(run.pixels(step), step.action, ACTION_COLOR)


def _index_row(trace: Path, name: str) -> dict[str, Any]:
    try:
        run = read_trace(trace)
    except (ValueError, OSError) as error:
        return {"name": _utf8(name), "error": _utf8(str(error))}
    info = run.info
    has_page = (trace / PAGE_FILE).is_file()
    status = info.status if info.finished or not info.message else f"{info.status}: {info.message}"
    return {
        "error": "",
        "link": quote(os.fsencode(f"{name}/{PAGE_FILE}")) if has_page else "",
        "goal": info.goal or "no goal",
        "cells": (info.actor, status, TASK_SUCCESS[info.task_success], len(run.steps), info.started),
    }


def _utf8(path: str) -> str:
    """A page is UTF-8; the name of a folder need not be."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")


def _step_values(run: RecordedRun, step: TraceStep) -> dict[str, Any]:
    image = draw_step(run, step)
    image.thumbnail((MAX_IMAGE_WIDTH, MAX_IMAGE_HEIGHT))
    notes = []
    if isinstance(step.action, InvalidAction):
        notes.append(step.action.reason)
    if step.proposed is not None:
        notes.append(f"instead of {_action_text(step.proposed.action)}")
    if step.actor != run.info.actor:
        notes.append(f"by a {step.actor}")
    text = "no decision" if step.action is None else step.text or _action_text(step.action)
    return {
        "t": step.t,
        "image": Markup(data_url(image)),  # base64: nothing to escape
        "text": text,
        "notes": ", ".join(notes),
        "timing": _timing(step),
    }


def _action_text(action: Action | InvalidAction) -> str:
    return action.text if isinstance(action, InvalidAction) else caption(action)


def _timing(step: TraceStep) -> str:
    """Milliseconds of each phase, and the agent's confidence."""
    times = {"screenshot": step.screenshot_ms, "inference": step.inference_ms, "execute": step.execute_ms}
    texts = [f"{name} {ms:.0f} ms" for name, ms in times.items() if ms is not None]
    return " · ".join(texts + ([] if step.confidence is None else [f"confidence {step.confidence:.2f}"]))
