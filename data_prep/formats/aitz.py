"""AITZ, Chain-of-Action-Thought on AITW: one folder per episode, with `<SUBSET>-<id>.json` and its images.

In: a list of steps. `ui_*` and `result_*_yx` are JSON in strings. Points are (y, x) fractions, but boxes
(y, x, height, width) are PIXELS of the image. The folders train and test are the split. The `coat_*` texts
are notes: a language model that knew the answer wrote them, so they are fit to be trained, never to be shown.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from data_prep.formats.image_files import find_image
from data_prep.formats.validation import (
    BAD_EPISODE,
    BAD_STEP,
    check_aitw,
    check_nonnegative_int,
    check_note,
    check_text,
    failing_load,
    make_annotations,
    make_record,
    read_json,
    select_keys,
    split_into_parts,
    step_handle,
    unusable_step,
)
from data_prep.source import SourcePart, StepHandle, StepRecord
from data_prep.source_files import to_text, walk_files
from data_prep.split import LABELS
from uivlm.actions.aitw import DUAL_POINT
from uivlm.episodes.episode import StepNotes

USED_KEYS = (
    "episode_id", "episode_length", "step_id", "instruction", "ui_positions", "ui_text", "ui_types",
    "result_touch_yx", "result_lift_yx", "result_action_type", "result_action_text", "image_path",
)  # fmt: skip
NOTE_KEYS = (
    "coat_screen_desc",
    "coat_action_think",
    "coat_action_desc",
    "coat_action_result",
)  # of StepNotes


def find(source: str) -> list[SourcePart]:
    """Parts of the episodes at any depth of the folder, sorted by name; or of one episode file."""
    path = Path(source)
    if path.is_file():
        folder, files = path.parent, [path]
    elif path.is_dir():
        folder = path
        files = sorted(
            file
            for file in walk_files(path)
            if file.suffix == ".json" and file.stem == file.absolute().parent.name
        )
    else:
        raise ValueError(f"there is no folder or file {source} to prepare")
    if not files:
        raise ValueError(
            f"{source} has no AITZ episode: an episode is a file <SUBSET>-<id>/<SUBSET>-<id>.json"
        )
    return split_into_parts("episodes", folder, [_read_episode(folder, file) for file in files])


def read(part: SourcePart) -> Iterator[StepHandle]:
    """The steps of a part's episodes, in the order of the files."""
    for episode in part.items:
        steps, file, subset = episode["steps"], episode["file"], episode["subset"]
        split = LABELS.get(episode["label"])
        if not isinstance(steps, list) or not steps:
            detail = episode["error"] or "it must be a list of steps"
            yield step_handle(subset, "", 0, 0, split, failing_load(BAD_EPISODE, file, detail), file)
            continue
        for i, step in enumerate(steps):
            location = f"step {i} of {file}"
            if not isinstance(step, dict):
                failure = failing_load(BAD_STEP, location, "it must be an object")
                yield step_handle(subset, "", i, i, split, failure, file)
                continue
            load = partial(_load, step, Path(part.path), PurePosixPath(file), location)
            yield step_handle(subset, step.get("episode_id"), step.get("step_id"), i, split, load, file)


def _read_episode(folder: Path, file: Path) -> dict[str, Any]:
    """A JSON item; for an unreadable file, with its error."""
    name = file.relative_to(folder)
    parents = [*reversed(name.parts[:-1]), folder.absolute().name]
    item = {
        "file": name.as_posix(),
        "subset": to_text(file.stem.partition("-")[0].lower()) if "-" in file.stem else "aitz",
        "label": next((parent for parent in parents if parent in LABELS), ""),
        "steps": None,
        "error": "",
    }
    try:
        steps = read_json(file)
    except ValueError as error:
        return item | {"error": str(error)}
    used = (
        [select_keys(step, (*USED_KEYS, *NOTE_KEYS)) for step in steps] if isinstance(steps, list) else None
    )
    return item | {"steps": used}


def _load(step: dict[str, Any], source: Path, file: PurePosixPath, location: str) -> StepRecord:
    action_type, text = step.get("result_action_type"), step.get("result_action_text")
    touch, lift = (
        _decode_json(step, f"result_{end}_yx", location) if action_type == DUAL_POINT else None
        for end in ("touch", "lift")
    )
    recorded = check_aitw(action_type, touch, lift, text, location)
    length = check_nonnegative_int(step.get("episode_length"), "episode length", location)
    folders = [source / parent for parent in file.parents]  # image_path begins with the subset's folder
    pixels = find_image(step.get("image_path"), folders, location, basename_folders=folders[:1])
    boxes, texts, ui_types = (
        _decode_json(step, f"ui_{name}", location) for name in ("positions", "text", "types")
    )
    annotations = make_annotations(boxes, texts, ui_types, location, size=(pixels.shape[0], pixels.shape[1]))
    notes = StepNotes(*(check_note(step.get(key), key, location) for key in NOTE_KEYS))
    ids = step.get("episode_id"), step.get("step_id")
    return make_record(*ids, length, step.get("instruction"), recorded, pixels, annotations, location, notes)


def _decode_json(step: dict[str, Any], key: str, location: str) -> Any:
    """The value of JSON in a string; None for a missing key."""
    if step.get(key) is None:
        return None
    text = check_text(step[key], key, location)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise unusable_step(BAD_STEP, location, f"{key}: expected JSON in a string") from None
