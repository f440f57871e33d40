"""ShowUI's AITW: `hf_{train,val,test}.json` and a folder of images.

In: one flat list of steps, derived from SeeClick's, with the same conventions (see `seeclick`). `step` is
SeeClick's whole step or its number. `step_id` counts the listed steps of an episode, which are fewer if an
image was missing.
"""

from collections.abc import Iterator
from typing import Any

from data_prep.formats import seeclick
from data_prep.formats.validation import id_text, read_json, split_into_parts
from data_prep.source import SourcePart, StepHandle

KEY_NAMES = {
    "ep_id": "ep_id", "img_url": "img_filename", "task": "goal", "action_type_id": "action_type_id",
    "touch": "touch", "lift": "lift", "type_text": "type_text", "annot_position": "annot_position",
}  # fmt: skip


def find(source: str) -> list[SourcePart]:
    """Parts of every annotation file in the folder or its subfolders, or of one such file."""
    folder, files = seeclick.annotation_files(source, "hf", "ShowUI's")
    parts: list[SourcePart] = []
    for path, label in files:
        rows = read_json(path)
        if not isinstance(rows, list):
            raise ValueError(f"{path} is not ShowUI's: expected a list of steps")
        name = path.relative_to(folder).as_posix()
        parts += split_into_parts(name, folder, list(_episodes(rows, name, label)))
    if not parts:
        raise ValueError(f"{', '.join(str(path) for path, _ in files)} has no step")
    return parts


def read(part: SourcePart) -> Iterator[StepHandle]:
    """The steps of a part's episodes, in order."""
    return seeclick.read(part)


def _episodes(rows: list[Any], name: str, label: str) -> Iterator[dict[str, Any]]:
    """SeeClick's items: the rows grouped by episode, sorted by step number."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        fields = row if isinstance(row, dict) else {}
        key = id_text(fields.get("domain")), id_text(fields.get("ep_id"))
        groups.setdefault(key, []).append(_step(row))
    for i, ((subset, _), steps) in enumerate(groups.items()):
        valid = subset.isprintable() and subset
        yield {
            "file": name,
            "label": label,
            "subset": seeclick.SUBSET_NAMES.get(subset, subset) if valid else "",
            "index": i,
            "steps": sorted(steps, key=_step_number) if valid else None,
            "error": "" if valid else "domain: expected the printable name of a subset",
        }


def _step(row: Any) -> Any:
    if not isinstance(row, dict):
        return row
    step = row.get("step")
    step_number = step.get("step") if isinstance(step, dict) else step
    renamed = {ours: row[theirs] for theirs, ours in KEY_NAMES.items() if theirs in row}
    return renamed | {"step": step_number}


def _step_number(step: Any) -> int:
    step_number = step.get("step") if isinstance(step, dict) else None
    return step_number if type(step_number) is int else -1
