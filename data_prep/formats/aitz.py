"""AITZ, Chain-of-Action-Thought on AITW: a folder an episode, `<SUBSET>-<id>/<SUBSET>-<id>.json` and its pictures.

In: a list of steps. `ui_*` and `result_*_yx` are JSON in strings; points are (y, x) fractions, but boxes (y, x,
height, width) PIXELS of the picture. The folders train and test say the split. The `coat_*` texts, written by a
language model that saw the answer, are never read.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from data_prep.formats.reading import (
    BAD_EPISODE,
    BAD_STEP,
    aitw_fields,
    annotated,
    cut,
    found,
    only,
    picture,
    read_json,
    record,
    refusal,
    text,
    unusable,
    whole,
)
from data_prep.record import Found, Part, Record
from data_prep.split import LABELS
from uivlm.actions.aitw import DUAL_POINT

USED = (
    "episode_id", "episode_length", "step_id", "instruction", "ui_positions", "ui_text", "ui_types",
    "result_touch_yx", "result_lift_yx", "result_action_type", "result_action_text", "image_path",
)  # fmt: skip


def find(source: str) -> list[Part]:
    """Parts of the episodes at any depth of the folder, in order of name; or of the one file named."""
    path = Path(source)
    if path.is_file():
        folder, files = path.parent, [path]
    elif path.is_dir():
        folder, files = (
            path,
            sorted(file for file in path.rglob("*.json") if file.stem == file.absolute().parent.name),
        )
    else:
        raise ValueError(f"there is no folder or file {source} to prepare")
    if not files:
        raise ValueError(
            f"no episode of AITZ is in {source}: each is a file <SUBSET>-<id>/<SUBSET>-<id>.json"
        )
    return cut("episodes", folder, [_episode(folder, file) for file in files])


def read(part: Part) -> Iterator[Found]:
    """The steps of a part's episodes, as they are listed."""
    for episode in part.items:
        steps, place, subset = episode["steps"], episode["file"], episode["subset"]
        split = LABELS.get(episode["label"])
        if not isinstance(steps, list) or not steps:
            detail = episode["error"] or "it is no list of steps"
            yield found(subset, "", 0, 0, split, refusal(BAD_EPISODE, place, detail))
            continue
        for i, step in enumerate(steps):
            here = f"step {i} of {place}"
            if not isinstance(step, dict):
                yield found(subset, "", i, i, split, refusal(BAD_STEP, here, "it is no object"))
                continue
            load = partial(_load, step, Path(part.where), PurePosixPath(episode["file"]), here)
            yield found(subset, step.get("episode_id"), step.get("step_id"), i, split, load)


def _episode(folder: Path, file: Path) -> dict[str, Any]:
    """A plain item; a file that cannot be read is one, too, with its error."""
    name = file.relative_to(folder)
    above = [*reversed(name.parts[:-1]), folder.absolute().name]
    item = {
        "file": name.as_posix(),
        "subset": file.stem.partition("-")[0].lower() if "-" in file.stem else "aitz",
        "label": next((part for part in above if part in LABELS), ""),
        "steps": None,
        "error": "",
    }
    try:
        steps = read_json(file)
    except ValueError as error:
        return item | {"error": str(error)}
    return item | {"steps": [only(step, USED) for step in steps] if isinstance(steps, list) else None}


def _load(step: dict[str, Any], source: Path, file: PurePosixPath, place: str) -> Record:
    gesture = step.get("result_action_type") == DUAL_POINT
    touch, lift = (
        _decoded(step, f"result_{end}_yx", place) if gesture else None for end in ("touch", "lift")
    )
    fields = aitw_fields(step.get("result_action_type"), touch, lift, step.get("result_action_text"), place)
    length = whole(step.get("episode_length"), "episode length", place)
    folders = [source / above for above in file.parents]  # image_path begins with the subset's folder
    screen = picture(step.get("image_path"), folders, place, beside=folders[:1])
    positions, texts, kinds = (_decoded(step, f"ui_{what}", place) for what in ("positions", "text", "types"))
    boxes = annotated(positions, texts, kinds, place, size=(screen.shape[0], screen.shape[1]))
    names = step.get("episode_id"), step.get("step_id")
    return record(*names, length, step.get("instruction"), fields, screen, boxes, place)


def _decoded(step: dict[str, Any], key: str, place: str) -> Any:
    """The JSON in a string; None where there is none."""
    if step.get(key) is None:
        return None
    words = text(step[key], key, place)
    try:
        return json.loads(words)
    except (ValueError, RecursionError):
        raise unusable(BAD_STEP, place, f"its {key} is no JSON in a string") from None
