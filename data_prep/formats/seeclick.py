"""SeeClick's AITW: `aitw_data_{train,val,test}.json` and a folder of pictures.

In: an object of five subsets, each a list of episodes, each a list of steps. Points are (x, y) but boxes (y, x,
height, width), all as fractions; `img_filename` lacks ".png". The words of an action ("scroll down" is a finger that
moves up) and `action_addition`, which names the target, are never read.
"""

from collections.abc import Iterator, Sequence
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
    listed,
    only,
    picture,
    read_json,
    record,
    refusal,
    roots,
    text,
    turned,
    unusable,
)
from data_prep.record import Found, Part, Record
from data_prep.split import LABELS

SUBSETS = {"webshopping": "web_shopping", "googleapps": "google_apps"}  # to AITW's names; the rest have them
USED = (
    "ep_id", "step", "img_filename", "goal", "action_type_id", "touch", "lift", "type_text", "annot_position",
)  # fmt: skip


def find(source: str) -> list[Part]:
    """Parts of every annotation file in the folder or one below it, or of the file named."""
    folder, files = annotations(source, "aitw_data", "SeeClick's")
    parts: list[Part] = []
    for path, label in files:
        name = path.relative_to(folder).as_posix()
        parts += cut(name, folder, list(_episodes(read_json(path), path, name, label)))
    if not parts:
        raise ValueError(f"no episode is in {', '.join(str(path) for path, _ in files)}")
    return parts


def read(part: Part) -> Iterator[Found]:
    """The steps of a part's episodes, as they are listed."""
    folders = roots(Path(part.where))
    for episode in part.items:
        steps, place = episode["steps"], f"episode {episode['index']} of {episode['file']}"
        subset, split = episode["subset"], LABELS.get(episode["label"])
        if not isinstance(steps, list) or not steps:
            yield found(subset, "", 0, 0, split, refusal(BAD_EPISODE, place, "it is no list of steps"))
            continue
        for i, step in enumerate(steps):
            here = f"step {i} of {place}"
            if not isinstance(step, dict):
                yield found(subset, "", i, i, split, refusal(BAD_STEP, here, "it is no object"))
                continue
            load = partial(_load, step, len(steps), folders, here)
            yield found(subset, step.get("ep_id"), step.get("step"), i, split, load)


def annotations(source: str, name: str, whose: str) -> tuple[Path, list[tuple[Path, str]]]:
    """The source's folder, and its files `<name>_{train,val,test}.json` with their labels."""
    path = Path(source)
    if not path.exists():
        raise ValueError(f"there is no folder or file {source} to prepare")
    names = {f"{name}_{label}.json": label for label in ("train", "val", "test")}
    if path.is_file():
        if path.name not in names:
            raise ValueError(
                f"{source} is none of {whose} files, whose names say the split: {', '.join(names)}"
            )
        return path.parent, [(path, names[path.name])]
    files = [
        (folder / name, label)
        for folder in roots(path)
        for name, label in names.items()
        if (folder / name).is_file()
    ]
    if not files:
        raise ValueError(
            f"none of {whose} files {', '.join(names)} is in {source} or a folder in it: name the folder that "
            "holds them and the folder of pictures"
        )
    return path, files


def _episodes(content: Any, path: Path, name: str, label: str) -> Iterator[dict[str, Any]]:
    """Plain items, without what is never read."""
    if not isinstance(content, dict) or not all(isinstance(each, list) for each in content.values()):
        raise ValueError(f"{path} is no object of subsets, each a list of episodes: it is not SeeClick's")
    listed_ones = [(subset, episode) for subset, episodes in content.items() for episode in episodes]
    for i, (subset, episode) in enumerate(listed_ones):
        if not subset or not subset.isprintable():
            raise ValueError(
                f"{path} has a subset without a printable name, {subset!a}: it is not SeeClick's"
            )
        steps = [only(step, USED) for step in episode] if isinstance(episode, list) else None
        yield {
            "file": name,
            "label": label,
            "subset": SUBSETS.get(subset, subset),
            "index": i,
            "steps": steps,
        }


def _load(step: dict[str, Any], length: int, folders: Sequence[Path], place: str) -> Record:
    touch, lift = turned(step.get("touch")), turned(step.get("lift"))
    fields = aitw_fields(step.get("action_type_id"), touch, lift, step.get("type_text"), place)
    given = step.get("annot_position")
    flat = listed([] if given is None else given, "annot_position", place)
    if len(flat) % 4:
        raise unusable(BAD_STEP, place, f"its annot_position holds {len(flat)} values, not 4 a box")
    boxes = annotated([flat[i : i + 4] for i in range(0, len(flat), 4)], None, None, place)
    name = text(step.get("img_filename"), "picture's name", place)
    screen = picture(name if name.endswith(".png") else f"{name}.png", folders, place)
    return record(step.get("ep_id"), step.get("step"), length, step.get("goal"), fields, screen, boxes, place)
