"""Traces of our own rollouts (`uivlm.rollout`): folders with run.json, trace.jsonl and screens.

In: one such folder, or a folder of them at any depth. A run that ended as `complete` or `impossible` is a
demonstration; the steps of any other run are rejected. An episode is named by its content, not by its
folder. A run whose `task_success` is false is marked as failed and has its own subset, so that its steps
stay recognizable if they are kept. Unlike `uivlm.rollout.trace_reader`, which rejects a damaged trace as a
whole, this reader counts the damaged steps.
"""

import hashlib
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from data_prep.formats.image_files import find_image
from data_prep.formats.validation import (
    BAD_EPISODE,
    BAD_STEP,
    UNSUPPORTED_ACTION,
    RecordedAction,
    check_action,
    check_text,
    failing_load,
    make_record,
    read_json,
    select_keys,
    split_into_parts,
    step_handle,
    unusable_step,
)
from data_prep.source import SourcePart, StepHandle, StepRecord
from data_prep.source_files import walk_files
from uivlm.actions.action import InvalidAction
from uivlm.actions.schema import SchemaError, action_from_json
from uivlm.episodes.episode import to_annotations
from uivlm.rollout.trace_schema import FINISHED_STATUSES, RUN_FILE, STEPS_FILE, check_version

SUBSET, FAILED_SUBSET = "trace", "failed_trace"
BAD_RUN = "unfinished run"


def find(source: str) -> list[SourcePart]:
    """Parts of the traces at any depth of the folder, sorted by name."""
    path = Path(source)
    if not path.is_dir():
        raise ValueError(f"there is no folder {source} to prepare")
    files = sorted(file for file in walk_files(path) if file.name == STEPS_FILE and not file.is_symlink())
    if not files:
        raise ValueError(
            f"{source} has no trace: a trace is a folder with {RUN_FILE}, {STEPS_FILE} and screens"
        )
    return split_into_parts("traces", path, [_read_trace(path, file) for file in files])


def read(part: SourcePart) -> Iterator[StepHandle]:
    """The steps of a part's traces, in order."""
    for trace in part.items:
        rows, episode_id, location = trace["rows"], trace["id"], f"trace {trace['folder']}"
        run, subset = trace["run"], trace["subset"]
        failed_run = f"{location}: task_success: got false" if subset == FAILED_SUBSET else ""
        if trace["error"] or not rows:
            failure = failing_load(BAD_EPISODE, location, trace["error"] or "it has no rows")
            yield step_handle(subset, episode_id, 0, 0, None, failure, location)
            continue
        folder = Path(part.path) / trace["folder"]
        for i, row in enumerate(rows):
            row_location = f"row {i} of {location}"
            if not isinstance(row, dict):
                failure = failing_load(BAD_STEP, row_location, "it must be a complete JSON object")
                yield step_handle(subset, episode_id, i, i, None, failure, location)
                continue
            load = partial(_load, row, episode_id, run, len(rows), folder, row_location)
            step = step_handle(subset, episode_id, row.get("t"), i, None, load, location)
            yield step._replace(failed_run=failed_run)


def _read_trace(source: Path, file: Path) -> dict[str, Any]:
    """A JSON item; for an unreadable trace, with its error."""
    folder = file.parent
    name = folder.relative_to(source).as_posix()
    item = {"folder": name, "subset": SUBSET, "id": "", "run": {}, "rows": [], "error": ""}
    try:
        if (folder / RUN_FILE).is_symlink():
            raise ValueError(f"{folder / RUN_FILE} is a link")
        run, rows = read_json(folder / RUN_FILE), file.read_bytes()
        check_version(run, folder / RUN_FILE)
    except (ValueError, OSError) as error:
        return item | {"error": str(error)}
    if not isinstance(run, dict):
        return item | {"error": f"{RUN_FILE}: expected an object"}
    if type(run.get("task_success")) not in (bool, type(None)):
        return item | {"error": f"{RUN_FILE}: task_success: expected true, false or null"}
    run = select_keys(run, ("goal", "status", "started", "task_success"))
    header = json.dumps([run.get("started"), run.get("goal")]).encode()
    episode_id = hashlib.sha256(header + rows).hexdigest()[:16]
    parsed = [_parse_row(line) for line in rows.split(b"\n") if line.strip()]
    failed = run.get("task_success") is False and run.get("status") in FINISHED_STATUSES
    subset = FAILED_SUBSET if failed else SUBSET
    return item | {"subset": subset, "id": episode_id, "run": run, "rows": parsed}


def _parse_row(line: bytes) -> Any:
    """The used keys of a row; None for an incomplete row, such as the last one of a killed run."""
    try:
        return select_keys(json.loads(line), ("t", "screen", "action"))
    except (ValueError, RecursionError):
        return None


def _load(
    row: dict[str, Any], episode_id: str, run: dict[str, Any], length: int, folder: Path, location: str
) -> StepRecord:
    if run.get("status") not in FINISHED_STATUSES:
        status = check_text(run.get("status"), "status of the run", location)
        raise unusable_step(
            BAD_RUN, location, f"status of the run: got {status[:40]!a}; expected complete or impossible"
        )
    recorded = _check_action(row.get("action"), location)
    pixels = find_image(row.get("screen"), [folder], location)
    ids, goal = (episode_id, row.get("t")), run.get("goal")
    return make_record(*ids, length, goal, recorded, pixels, to_annotations(()), location)


def _check_action(content: Any, location: str) -> RecordedAction:
    if content is None:
        raise unusable_step(UNSUPPORTED_ACTION, location, "the agent made no decision")
    try:
        action = action_from_json(content)
    except SchemaError as error:
        raise unusable_step(UNSUPPORTED_ACTION, location, str(error)) from None
    if isinstance(action, InvalidAction):
        raise unusable_step(UNSUPPORTED_ACTION, location, "the output of the agent is not an action")
    return check_action(action, location)
