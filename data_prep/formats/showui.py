"""ShowUI's AITW: `hf_{train,val,test}.json` and a folder of pictures.

In: one flat list of steps, made of SeeClick's and with its conventions (see `seeclick`). `step` is SeeClick's whole
step or its number; `step_id` counts the listed steps of an episode, which are fewer where a picture was missing.
"""

from collections.abc import Iterator
from typing import Any

from data_prep.formats import seeclick
from data_prep.formats.reading import cut, identity, read_json
from data_prep.record import Found, Part

OURS = {
    "ep_id": "ep_id", "img_url": "img_filename", "task": "goal", "action_type_id": "action_type_id",
    "touch": "touch", "lift": "lift", "type_text": "type_text", "annot_position": "annot_position",
}  # fmt: skip


def find(source: str) -> list[Part]:
    """Parts of every annotation file in the folder or one below it, or of the file named."""
    folder, files = seeclick.annotations(source, "hf", "ShowUI's")
    parts: list[Part] = []
    for path, label in files:
        rows = read_json(path)
        if not isinstance(rows, list):
            raise ValueError(f"{path} is no list of steps: it is not ShowUI's")
        name = path.relative_to(folder).as_posix()
        parts += cut(name, folder, list(_episodes(rows, name, label)))
    if not parts:
        raise ValueError(f"no step is in {', '.join(str(path) for path, _ in files)}")
    return parts


def read(part: Part) -> Iterator[Found]:
    """The steps of a part's episodes, in order."""
    return seeclick.read(part)


def _episodes(rows: list[Any], name: str, label: str) -> Iterator[dict[str, Any]]:
    """SeeClick's items: the rows of an episode together, in the order of their numbers."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        fields = row if isinstance(row, dict) else {}
        groups.setdefault((identity(fields.get("domain")), identity(fields.get("ep_id"))), []).append(
            _step(row)
        )
    for i, ((subset, _), steps) in enumerate(groups.items()):
        subset = seeclick.SUBSETS.get(subset, subset)
        yield {
            "file": name,
            "label": label,
            "subset": subset,
            "index": i,
            "steps": sorted(steps, key=_number),
        }


def _step(row: Any) -> Any:
    if not isinstance(row, dict):
        return row
    number = row.get("step")
    if isinstance(number, dict):
        number = number.get("step")
    return {ours: row[theirs] for theirs, ours in OURS.items() if theirs in row} | {"step": number}


def _number(step: Any) -> int:
    number = step.get("step") if isinstance(step, dict) else None
    return number if type(number) is int else -1
