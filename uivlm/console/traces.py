"""The folder of traces, for the page: names in, runs out. Only files of the folder itself are opened."""

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from uivlm.actions.action import InvalidAction
from uivlm.actions.schema import action_to_json
from uivlm.console.state import describe_action
from uivlm.rollout.trace_reader import RecordedRun, read_trace
from uivlm.rollout.trace_schema import RUN_FILE, STEPS_FILE, TraceStep

PAGE_SIZE = 50  # traces of one response
MAX_BYTES = 32 * 1024 * 1024  # of one trace.jsonl


def list_traces(trace_dir: Path, start: int, running: str = "") -> dict[str, Any]:
    """One page of the list, newest first.

    A damaged trace is listed with its error. `running`: the current trace.
    """
    names = _trace_names(trace_dir)
    return {
        "traces": [_summary(trace_dir / name, running) for name in names[start : start + PAGE_SIZE]],
        "more": len(names) > start + PAGE_SIZE,
    }


def open_trace(trace_dir: Path, name: str) -> RecordedRun:
    """The trace of that name. Raises FileNotFoundError, or ValueError if it is damaged."""
    if name not in _trace_names(trace_dir):
        raise FileNotFoundError(f"there is no trace {name[:80]!a}: refresh the list")
    return _read_trace(trace_dir / name)


def run_to_json(run: RecordedRun) -> dict[str, Any]:
    return {
        "goal": run.info.goal,
        "status": run.info.status,
        "message": run.info.message,
        "steps": [_step_to_json(step) for step in run.steps],
    }


def _trace_names(trace_dir: Path) -> list[str]:
    """Folders of traces, without links; the last written comes first."""
    if not trace_dir.is_dir():
        return []
    with os.scandir(trace_dir) as entries:
        folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    modified = {name: _modified_ns(trace_dir / name) for name in folders}
    traces = [name for name in folders if modified[name] >= 0]
    return sorted(traces, key=lambda name: (modified[name], name), reverse=True)


def _modified_ns(folder: Path) -> int:
    """Nanoseconds since the epoch; -1 if the folder is not a trace."""
    return max(_file_stamp(folder / name)[0] for name in (RUN_FILE, STEPS_FILE))


def _file_stamp(path: Path) -> tuple[int, int]:
    """Time (ns) and size (bytes) of the last write; -1, -1 if there is no such file."""
    try:
        status = path.lstat()
    except OSError:
        return -1, -1
    return status.st_mtime_ns, status.st_size


def _summary(folder: Path, running: str) -> dict[str, Any]:
    try:
        run = _read_trace(folder)
    except (ValueError, OSError) as error:
        return {"name": folder.name, "error": str(error)}
    info = run.info
    killed = info.status == "running" and folder.name != running
    return {
        "name": folder.name,
        "goal": info.goal,
        "actor": info.actor,
        "status": "killed" if killed else info.status,
        "num_steps": len(run.steps),
        "started": info.started,
    }


def _read_trace(folder: Path) -> RecordedRun:
    stamp = _file_stamp(folder / STEPS_FILE)
    if stamp[1] > MAX_BYTES:
        raise ValueError(f"{folder / STEPS_FILE} has {stamp[1]} bytes; the page shows at most {MAX_BYTES}")
    return _read_trace_cached(folder, _file_stamp(folder / RUN_FILE), stamp)


@lru_cache(maxsize=4 * PAGE_SIZE)
def _read_trace_cached(folder: Path, *stamps: tuple[int, int]) -> RecordedRun:
    """Reading checks all images, so a whole trace is read once. A damaged one is read again each time."""
    return read_trace(folder)


def _step_to_json(step: TraceStep) -> dict[str, Any]:
    action = None if isinstance(step.action, InvalidAction) else step.action
    return {
        "description": "no decision" if step.action is None else describe_action(step.action),
        "text": step.text,
        "actor": step.actor,
        "executed": step.executed,
        "proposed": None if step.proposed is None else describe_action(step.proposed.action),
        "confidence": step.confidence,
        "action_type_confidence": step.action_type_confidence,
        "action": None if action is None else action_to_json(action),
        "gesture": None if step.gesture is None else action_to_json(step.gesture),
        "height": step.height,
        "width": step.width,
    }
