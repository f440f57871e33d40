"""Our neutral form: JSON Lines, one episode a line, pictures in files. `docs/formats.md` has an example.

In: {"subset", "episode_id", "goal", "split" (optional), "steps": [{"step_id", "image", "action_type", "touch_yx",
"lift_yx", "text", "boxes", "box_texts", "box_kinds"}]}. Points are (y, x), boxes (y, x, height, width), fractions of
the screen. An action type is AITW's number or name. Only what an action needs must be there.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from data_prep.formats.reading import (
    BAD_EPISODE,
    BAD_STEP,
    aitw_fields,
    annotated,
    cut,
    found,
    identity,
    picture,
    record,
    refusal,
)
from data_prep.record import Found, Part, Record
from data_prep.split import LABELS
from uivlm.actions.aitw import ACTION_TYPES


def find(source: str) -> list[Part]:
    """Parts of the `.jsonl` file named, or of those in the folder."""
    path = Path(source)
    if path.is_file():
        folder, files = path.parent, [path]
    elif path.is_dir():
        folder, files = path, sorted(file for file in path.glob("*.jsonl") if file.is_file())
    else:
        raise ValueError(f"there is no folder or file {source} to prepare")
    if not files:
        raise ValueError(f"no file of {source} ends in .jsonl: write one episode a line into such a file")
    parts = [part for file in files for part in cut(file.name, folder, list(_episodes(file)))]
    if not any(isinstance(item["episode"], dict) for part in parts for item in part.items):
        raise ValueError(
            f"no line of {', '.join(map(str, files))} is a JSON object: write one episode a line"
        )
    return parts


def read(part: Part) -> Iterator[Found]:
    """The steps of a part's lines. A line that is no episode is one step that cannot be loaded."""
    for item in part.items:
        yield from _steps(
            item["episode"], item["error"], f"line {item['line']} of {item['file']}", Path(part.where)
        )


def _episodes(file: Path) -> Iterator[dict[str, Any]]:
    """A plain item a line; one that is damaged has an error."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            item = {"file": file.name, "line": number, "episode": None, "error": ""}
            try:
                yield item | {"episode": json.loads(line)}
            except (ValueError, RecursionError) as error:
                yield item | {"error": f"it is no JSON ({error})"}


def _steps(episode: Any, error: str, place: str, folder: Path) -> Iterator[Found]:
    fault = error or _fault(episode)
    if fault:
        name = "" if not isinstance(episode, dict) else identity(episode.get("episode_id"))
        yield found("", name, 0, 0, None, refusal(BAD_EPISODE, place, fault))
        return
    subset, name, steps = episode["subset"], identity(episode["episode_id"]), episode["steps"]
    split = LABELS.get(episode.get("split") or "")
    for i, step in enumerate(steps):
        here = f"step {i} in {place}"
        if not isinstance(step, dict):
            yield found(subset, name, i, i, split, refusal(BAD_STEP, here, "it is no object"))
            continue
        load = partial(_load, step, name, episode.get("goal"), len(steps), folder, here)
        yield found(subset, name, step.get("step_id"), i, split, load)


def _fault(episode: Any) -> str:
    """What keeps a line from being an episode; "" for nothing."""
    if not isinstance(episode, dict):
        return "it is no object"
    if not isinstance(episode.get("subset"), str) or not identity(episode["subset"]):
        return "its subset is no text"
    if not identity(episode.get("episode_id")):
        return "its episode_id is no id"
    label = episode.get("split")
    if label is not None and (not isinstance(label, str) or label not in LABELS):
        return f"its split is none of {', '.join(LABELS)}"
    if not isinstance(episode.get("steps"), list) or not episode["steps"]:
        return "its steps are no list of any"
    return ""


def _load(step: dict[str, Any], name: str, goal: Any, length: int, folder: Path, place: str) -> Record:
    given = step.get("action_type")
    action_type = ACTION_TYPES.get(given, 0) if isinstance(given, str) else given  # 0 is no action of AITW
    fields = aitw_fields(action_type, step.get("touch_yx"), step.get("lift_yx"), step.get("text"), place)
    boxes = annotated(step.get("boxes"), step.get("box_texts"), step.get("box_kinds"), place)
    screen = picture(step.get("image"), [folder], place)
    return record(name, step.get("step_id"), length, goal, fields, screen, boxes, place)
