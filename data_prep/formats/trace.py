"""Traces of our own device loop (`uivlm.trace`): folders with run.json, trace.jsonl and the screens.

In: one such folder, or a folder of them at any depth. What an agent or a person ended, `complete` or `impossible`, shows how it
is done; of other runs every step is refused. Folder names are no ids: an episode is named by its content. Unlike
`uivlm.trace_read`, which takes a trace whole or not at all, this counts what is damaged and goes on.
"""

import hashlib
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from data_prep.formats.reading import (
    BAD_EPISODE,
    BAD_STEP,
    NO_ACTION,
    aitw_fields,
    cut,
    found,
    only,
    picture,
    read_json,
    record,
    refusal,
    text,
    unusable,
)
from data_prep.record import Found, Part, Record
from uivlm.actions.aitw import Fields, to_aitw
from uivlm.actions.language import NotAnAction
from uivlm.actions.told import UnknownKindError, untold
from uivlm.episode import annotations
from uivlm.trace_read import ENDED_WELL, ROWS, RUN

BAD_RUN = "run did not end well"


def find(source: str) -> list[Part]:
    """Parts of the traces at any depth of the folder, in order of name."""
    path = Path(source)
    if not path.is_dir():
        raise ValueError(f"there is no folder {source} to prepare")
    files = sorted(file for file in path.rglob(ROWS) if file.is_file())
    if not files:
        raise ValueError(f"no trace is in {source}: one is a folder with {RUN}, {ROWS} and screens")
    return cut("traces", path, [_trace(path, file) for file in files])


def read(part: Part) -> Iterator[Found]:
    """The steps of a part's traces, in order."""
    for trace in part.items:
        rows, name, place = trace["rows"], trace["id"], f"trace {trace['folder']}"
        if trace["error"] or not rows:
            yield found(
                "trace", name, 0, 0, None, refusal(BAD_EPISODE, place, trace["error"] or "it has no rows")
            )
            continue
        folder = Path(part.where) / trace["folder"]
        for i, row in enumerate(rows):
            here = f"row {i} of {place}"
            if not isinstance(row, dict):
                yield found("trace", name, i, i, None, refusal(BAD_STEP, here, "it is no whole row"))
                continue
            load = partial(_load, row, name, trace["run"], len(rows), folder, here)
            yield found("trace", name, row.get("t"), i, None, load)


def _trace(source: Path, file: Path) -> dict[str, Any]:
    """A plain item; a trace that cannot be read is one, too, with its error."""
    folder = file.parent
    item = {"folder": folder.relative_to(source).as_posix(), "id": "", "run": {}, "rows": [], "error": ""}
    try:
        run, rows = read_json(folder / RUN), file.read_bytes()
    except (ValueError, OSError) as error:
        return item | {"error": str(error)}
    if not isinstance(run, dict):
        return item | {"error": f"its {RUN} is no object"}
    run = only(run, ("goal", "status", "started"))
    told = json.dumps([run.get("started"), run.get("goal")]).encode()
    name = hashlib.sha256(told + rows).hexdigest()[:16]
    return item | {"id": name, "run": run, "rows": [_row(line) for line in rows.split(b"\n") if line.strip()]}


def _row(line: bytes) -> Any:
    """What is read of a row; None for a broken one, as a killed run may leave at the end."""
    try:
        return only(json.loads(line), ("t", "screen", "action"))
    except (ValueError, RecursionError):
        return None


def _load(
    row: dict[str, Any], name: str, run: dict[str, Any], length: int, folder: Path, place: str
) -> Record:
    if run.get("status") not in ENDED_WELL:
        status = text(run.get("status"), "run's status", place)
        raise unusable(BAD_RUN, place, f"its run ended as {status[:40]!a}, not complete or impossible")
    fields = _fields(row.get("action"), place)
    screen = picture(row.get("screen"), [folder], place)
    return record(name, row.get("t"), length, run.get("goal"), fields, screen, annotations(()), place)


def _fields(told: Any, place: str) -> Fields:
    """AITW's fields of an action that a trace tells."""
    if told is None:
        raise unusable(NO_ACTION, place, "nothing was decided")
    try:
        action = untold(told)
    except UnknownKindError as error:
        raise unusable(NO_ACTION, place, str(error)) from None
    except ValueError as error:
        raise unusable(BAD_STEP, place, str(error)) from None
    if isinstance(action, NotAnAction):
        raise unusable(NO_ACTION, place, "what was said is no action")
    action_type, touch, lift, typed = to_aitw(action)
    return aitw_fields(action_type, [*touch], [*lift], typed, place)
