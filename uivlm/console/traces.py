"""The folder of traces, for the page: names in, runs out. Only what lies in the folder itself is ever opened."""

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from uivlm.actions.language import NotAnAction
from uivlm.actions.told import told
from uivlm.console.view import sure, what
from uivlm.trace_read import ROWS, RUN, Row, Run, read_trace

AT_ONCE = 50  # traces in one list
MOST_BYTES = 32 * 1024 * 1024  # of one trace's rows


def listed(traces: Path, start: int, running: str = "") -> dict[str, Any]:
    """A part of the list, the newest first. What cannot be read is there, with the reason. `running`: the trace of now."""
    names = _names(traces)
    return {
        "traces": [_line(traces / name, running) for name in names[start : start + AT_ONCE]],
        "more": len(names) > start + AT_ONCE,
    }


def opened(traces: Path, name: str) -> Run:
    """The trace of that name. FileNotFoundError where there is none, ValueError where it is damaged."""
    if name not in _names(traces):
        raise FileNotFoundError(f"there is no trace {name[:80]!a}: it may have been removed")
    return _read(traces / name)


def to_json(run: Run) -> dict[str, Any]:
    return {
        "goal": run.goal,
        "status": run.status,
        "message": run.message,
        "rows": [_row(row) for row in run.rows],
    }


def _names(traces: Path) -> list[str]:
    """Folders of traces, none of them a link; what was written last comes first."""
    if not traces.is_dir():
        return []
    with os.scandir(traces) as entries:
        folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    written = {name: _written(traces / name) for name in folders}
    found = [name for name in folders if written[name] >= 0]
    return sorted(found, key=lambda name: (written[name], name), reverse=True)


def _written(folder: Path) -> int:
    """When, in nanoseconds; -1 where the folder is no trace."""
    return max(_stamp(folder / name)[0] for name in (RUN, ROWS))


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.lstat()
    except OSError:
        return -1, -1
    return status.st_mtime_ns, status.st_size


def _line(folder: Path, running: str) -> dict[str, Any]:
    try:
        run = _read(folder)
    except (ValueError, OSError) as error:
        return {"name": folder.name, "broken": str(error)}
    status = "broken off" if run.status == "running" and folder.name != running else run.status
    return {
        "name": folder.name,
        "goal": run.goal,
        "by": run.by,
        "status": status,
        "steps": len(run.rows),
        "started": run.started,
    }


def _read(folder: Path) -> Run:
    rows = _stamp(folder / ROWS)
    if rows[1] > MOST_BYTES:
        raise ValueError(f"{folder} is too long to be shown: its {ROWS} has {rows[1]} bytes")
    return _kept(folder, _stamp(folder / RUN), rows)


@lru_cache(maxsize=4 * AT_ONCE)
def _kept(folder: Path, *stamps: tuple[int, int]) -> Run:
    """Read once: all pictures are checked. What is damaged is looked at again each time."""
    return read_trace(folder)


def _row(row: Row) -> dict[str, Any]:
    proposed = None if row.proposed is None else what(row.proposed)
    return {
        "what": "nothing was decided" if row.action is None else what(row.action),
        "words": row.words,
        "by": row.by,
        "done": row.done,
        "proposed": proposed,
        "confidence": sure(row.confidence),
        "kind_confidence": sure(row.kind_confidence),
        "action": None if row.action is None or isinstance(row.action, NotAnAction) else told(row.action),
        "gesture": None if row.gesture is None else told(row.gesture),
        "height": row.height,
        "width": row.width,
    }
