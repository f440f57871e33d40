"""SeeClick's AITW: `aitw_data_{train,val,test}.json` and a folder of images.

In: an object of five subsets, each a list of episodes, each a list of steps. Points are (x, y), but boxes
are (y, x, height, width), all as fractions. `img_filename` lacks ".png". The text of an action ("scroll
down" is a finger that moves up) and `action_addition`, which names the target, are never read.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from data_prep.formats.image_files import find_image, image_folders
from data_prep.formats.validation import (
    BAD_EPISODE,
    BAD_STEP,
    check_aitw,
    check_list,
    check_text,
    failing_load,
    make_annotations,
    make_record,
    read_json,
    select_keys,
    split_into_parts,
    step_handle,
    unusable_step,
    xy_to_yx,
)
from data_prep.source import SourcePart, StepHandle, StepRecord
from data_prep.split import LABELS

SUBSET_NAMES = {"webshopping": "web_shopping", "googleapps": "google_apps"}  # to AITW's; the others are equal
USED_KEYS = (
    "ep_id", "step", "img_filename", "goal", "action_type_id", "touch", "lift", "type_text", "annot_position",
)  # fmt: skip


def find(source: str) -> list[SourcePart]:
    """Parts of every annotation file in the folder or its subfolders, or of one such file."""
    folder, files = annotation_files(source, "aitw_data", "SeeClick's")
    parts: list[SourcePart] = []
    for path, label in files:
        name = path.relative_to(folder).as_posix()
        parts += split_into_parts(name, folder, list(_episodes(read_json(path), path, name, label)))
    if not parts:
        raise ValueError(f"{', '.join(str(path) for path, _ in files)} has no episode")
    return parts


def read(part: SourcePart) -> Iterator[StepHandle]:
    """The steps of a part's episodes, in the order of the file."""
    folders = image_folders(Path(part.path))
    for episode in part.items:
        steps, location = episode["steps"], f"episode {episode['index']} of {episode['file']}"
        subset, split = episode["subset"], LABELS.get(episode["label"])
        if not isinstance(steps, list) or not steps:
            failure = failing_load(BAD_EPISODE, location, episode["error"] or "it must be a list of steps")
            yield step_handle(subset, "", 0, 0, split, failure, location)
            continue
        for i, step in enumerate(steps):
            step_location = f"step {i} of {location}"
            if not isinstance(step, dict):
                failure = failing_load(BAD_STEP, step_location, "it must be an object")
                yield step_handle(subset, "", i, i, split, failure, location)
                continue
            load = partial(_load, step, len(steps), folders, step_location)
            yield step_handle(subset, step.get("ep_id"), step.get("step"), i, split, load, location)


def annotation_files(source: str, name: str, dataset: str) -> tuple[Path, list[tuple[Path, str]]]:
    """The source's folder, and its files `<name>_{train,val,test}.json` with their labels."""
    path = Path(source)
    if not path.exists():
        raise ValueError(f"there is no folder or file {source} to prepare")
    names = {f"{name}_{label}.json": label for label in ("train", "val", "test")}
    if path.is_file():
        if path.name not in names:
            raise ValueError(
                f"{source} is not one of {dataset} files, which are named by split: {', '.join(names)}"
            )
        return path.parent, [(path, names[path.name])]
    files = [
        (folder / name, label)
        for folder in image_folders(path)
        for name, label in names.items()
        if (folder / name).is_file()
    ]
    if not files:
        raise ValueError(
            f"{source} and its subfolders have none of {dataset} files {', '.join(names)}: pass the folder "
            "that holds them and the folder of images"
        )
    return path, files


def _episodes(content: Any, path: Path, name: str, label: str) -> Iterator[dict[str, Any]]:
    """JSON items, reduced to the keys that are read."""
    if not isinstance(content, dict) or not all(isinstance(episodes, list) for episodes in content.values()):
        raise ValueError(f"{path} is not SeeClick's: expected an object of subsets, each a list of episodes")
    pairs = [(subset, episode) for subset, episodes in content.items() for episode in episodes]
    for i, (subset, episode) in enumerate(pairs):
        if not subset or not subset.isprintable():
            raise ValueError(
                f"{path} is not SeeClick's: got the subset {subset!a}; expected a printable name"
            )
        steps = [select_keys(step, USED_KEYS) for step in episode] if isinstance(episode, list) else None
        yield {
            "file": name,
            "label": label,
            "subset": SUBSET_NAMES.get(subset, subset),
            "index": i,
            "steps": steps,
            "error": "",
        }


def _load(step: dict[str, Any], length: int, folders: Sequence[Path], location: str) -> StepRecord:
    touch, lift = xy_to_yx(step.get("touch")), xy_to_yx(step.get("lift"))
    recorded = check_aitw(step.get("action_type_id"), touch, lift, step.get("type_text"), location)
    positions = step.get("annot_position")
    flat = check_list([] if positions is None else positions, "annot_position", location)
    if len(flat) % 4:
        raise unusable_step(BAD_STEP, location, f"annot_position: got {len(flat)} values; expected 4 per box")
    annotations = make_annotations([flat[i : i + 4] for i in range(0, len(flat), 4)], None, None, location)
    name = check_text(step.get("img_filename"), "img_filename", location)
    pixels = find_image(name if name.endswith(".png") else f"{name}.png", folders, location)
    ids = step.get("ep_id"), step.get("step")
    return make_record(*ids, length, step.get("goal"), recorded, pixels, annotations, location)
