"""The neutral format: JSON Lines, one episode per line, images in files. `docs/formats.md` has an example.

In: {"subset", "episode_id", "goal", "split" (optional), "steps": [{"step_id", "image", "action_type",
"touch_yx", "lift_yx", "text", "boxes", "box_texts", "box_ui_types"}]}. Points are (y, x), boxes (y, x,
height, width), fractions of the screen. An action type is AITW's number or name. Only the fields of that
action type are required. A step may have the notes "screen_description", "thought", "instruction", "result".
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from data_prep.formats.image_files import find_image
from data_prep.formats.validation import (
    BAD_EPISODE,
    BAD_STEP,
    check_aitw,
    check_note,
    failing_load,
    id_text,
    make_annotations,
    make_record,
    split_into_parts,
    step_handle,
    unusable_step,
)
from data_prep.source import SourcePart, StepHandle, StepRecord
from data_prep.split import LABELS
from uivlm.actions.aitw import ACTION_TYPE_IDS
from uivlm.episodes.episode import StepNotes
from uivlm.episodes.rows import NOTE_COLUMNS


def find(source: str) -> list[SourcePart]:
    """Parts of one `.jsonl` file, or of those in the folder."""
    path = Path(source)
    if path.is_file():
        folder, files = path.parent, [path]
    elif path.is_dir():
        folder, files = path, sorted(file for file in path.glob("*.jsonl") if file.is_file())
    else:
        raise ValueError(f"there is no folder or file {source} to prepare")
    if not files:
        raise ValueError(f"{source} has no .jsonl file: write one, with one episode per line")
    parts = [part for file in files for part in split_into_parts(file.name, folder, list(_episodes(file)))]
    if not any(isinstance(item["episode"], dict) for part in parts for item in part.items):
        raise ValueError(
            f"no line of {', '.join(map(str, files))} is a JSON object: write one episode per line"
        )
    return parts


def read(part: SourcePart) -> Iterator[StepHandle]:
    """The steps of a part's lines. A line without an episode is one unusable step."""
    for item in part.items:
        yield from _steps(
            item["episode"], item["error"], f"line {item['line']} of {item['file']}", Path(part.path)
        )


def _episodes(file: Path) -> Iterator[dict[str, Any]]:
    """A JSON item per line; for a damaged line, with its error."""
    with file.open("rb") as lines:
        for line_number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            item = {"file": file.name, "line": line_number, "subset": "", "episode": None, "error": ""}
            try:
                episode = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield item | {"error": f"it is not JSON ({error})"}
            else:
                valid = not _episode_error(episode)
                yield item | {"episode": episode, "subset": episode["subset"] if valid else ""}


def _steps(episode: Any, error: str, location: str, folder: Path) -> Iterator[StepHandle]:
    problem = error or _episode_error(episode)
    if problem:
        episode_id = "" if not isinstance(episode, dict) else id_text(episode.get("episode_id"))
        yield step_handle("", episode_id, 0, 0, None, failing_load(BAD_EPISODE, location, problem), location)
        return
    subset, episode_id, steps = episode["subset"], id_text(episode["episode_id"]), episode["steps"]
    split = LABELS.get(episode.get("split") or "")
    for i, step in enumerate(steps):
        step_location = f"step {i} in {location}"
        if not isinstance(step, dict):
            failure = failing_load(BAD_STEP, step_location, "it must be an object")
            yield step_handle(subset, episode_id, i, i, split, failure, location)
            continue
        load = partial(_load, step, episode_id, episode.get("goal"), len(steps), folder, step_location)
        yield step_handle(subset, episode_id, step.get("step_id"), i, split, load, location)


def _episode_error(episode: Any) -> str:
    """Why a line is not an episode; "" if it is one."""
    if not isinstance(episode, dict):
        return "it must be an object"
    subset = episode.get("subset")
    if not isinstance(subset, str) or not subset or not subset.isprintable():
        return "subset: expected printable text"
    if not id_text(episode.get("episode_id")):
        return "episode_id: expected text or an integer"
    label = episode.get("split")
    if label is not None and (not isinstance(label, str) or label not in LABELS):
        return f"split: expected one of {', '.join(LABELS)}"
    if not isinstance(episode.get("steps"), list) or not episode["steps"]:
        return "steps: expected a list that is not empty"
    return ""


def _load(
    step: dict[str, Any], episode_id: str, goal: Any, length: int, folder: Path, location: str
) -> StepRecord:
    if "box_kinds" in step:
        raise unusable_step(BAD_STEP, location, "box_kinds: renamed to box_ui_types in release 0.2")
    name = step.get("action_type")
    action_type = ACTION_TYPE_IDS.get(name, 0) if isinstance(name, str) else name  # AITW has no action type 0
    recorded = check_aitw(action_type, step.get("touch_yx"), step.get("lift_yx"), step.get("text"), location)
    boxes = step.get("boxes"), step.get("box_texts"), step.get("box_ui_types")
    annotations = make_annotations(*boxes, location)
    pixels = find_image(step.get("image"), [folder], location)
    notes = StepNotes(*(check_note(step.get(name), name, location) for name in NOTE_COLUMNS))
    ids = episode_id, step.get("step_id")
    return make_record(*ids, length, goal, recorded, pixels, annotations, location, notes)
