"""AndroidControl: GZIP TFRecords, one Example per EPISODE, with PNG screens and actions in pixels.

In: files `android_control-00000-of-00020`. An episode has one screen more than actions. The last screen
gets the action `complete`: our interpretation, because every episode is a successful demonstration.
Actions that AITW does not have are rejected (long press, open app, wait, and `type`, which is three
actions). So is `scroll`, which has only a direction word. Accessibility trees are not read.
A step instruction becomes the step's note `instruction`; the last screen has none.
"""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from data_prep.formats.image_files import read_pixels
from data_prep.formats.validation import (
    BAD_EPISODE,
    BAD_STEP,
    NO_POINTS,
    UNSUPPORTED_ACTION,
    RecordedAction,
    check_action,
    check_fraction,
    check_list,
    check_note,
    check_text,
    failing_load,
    make_record,
    step_handle,
    unusable_step,
)
from data_prep.source import SourcePart, StepHandle, StepRecord
from data_prep.source_files import list_shards, open_binary
from data_prep.split import LABELS, Split
from data_prep.tf_example import Values, parse_example
from data_prep.tfrecord import read_records
from uivlm.actions.action import Finish, Point, Press, Swipe, Tap, Type
from uivlm.episodes.episode import StepNotes, to_annotations

SUBSET = "android_control"
SPLITS_FILE = "splits.json"  # {train|validation|test: [episode ids]}, in the folder of the files
# Google's files have no `swipe`. Copies of them do, with two points (x, y) in pixels.
SUPPORTED_ACTIONS = ("click", "swipe", "input_text", "navigate_back", "navigate_home")


def find(source: str) -> list[SourcePart]:
    """Every file of episodes at any depth of the folder, sorted by name; or one such file."""
    parts = [
        SourcePart(file.name, file.path, str(file.size), subsets=(SUBSET,)) for file in list_shards(source)
    ]
    if not parts:
        raise ValueError(f"{source} has no file named like android_control-00000-of-00020, without extension")
    for folder in {_folder(part) for part in parts}:
        _read_splits(folder)  # report a mistake in the list now, and once
    return parts


def read(part: SourcePart) -> Iterator[StepHandle]:
    """The steps of a file's episodes. Raises CorruptShardError at the first corrupt record."""
    splits = _read_splits(_folder(part))
    for index, data in enumerate(read_records(part.path, part.name)):
        yield from _steps(data, splits, f"episode {index} of {part.name}")


def _folder(part: SourcePart) -> str:
    return part.path.rpartition("/")[0] or "."


def _read_splits(folder: str) -> Mapping[str, Split]:
    """Episode id -> split, from the list in the folder; empty without a list."""
    path = f"{folder}/{SPLITS_FILE}"
    splits: dict[str, Split] = {}
    try:
        with open_binary(path) as file:
            content = json.loads(file.read())
        for label, ids in content.items():
            for episode_id in [str(int(value)) for value in check_list(ids, label, path)]:
                if splits.setdefault(episode_id, LABELS[label]) != LABELS[label]:
                    raise ValueError(f"episode {episode_id} is under two labels")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        raise ValueError(
            f"{path} is not a split: expected {', '.join(LABELS)}, each with ids that no other label has. "
            "Correct or remove it"
        ) from None
    return splits


def _steps(data: bytes, splits: Mapping[str, Split], location: str) -> Iterator[StepHandle]:
    """The steps of one Example. If its lists do not match, screens and actions cannot be paired."""
    episode_id: Any = ""
    try:
        features = parse_example(data)
        episode_id, goal = _single_value(features, "episode_id", int), _single_value(features, "goal", bytes)
        screens, actions = (_values(features, key, bytes) for key in ("screenshots", "actions"))
        sizes = _sizes(features, len(screens))
        instructions = _values(features, "step_instructions", bytes) or [None] * len(actions)
        if len(screens) != len(actions) + 1:
            raise ValueError(
                f"{len(screens)} screenshots for {len(actions)} actions; expected {len(actions) + 1}"
            )
        if len(instructions) != len(actions):
            raise ValueError(f"{len(instructions)} step instructions for {len(actions)} actions")
    except ValueError as error:
        failure, split = failing_load(BAD_EPISODE, location, str(error)), splits.get(str(episode_id))
        yield step_handle(SUBSET, episode_id, 0, 0, split, failure, location)
        return
    split, ids = splits.get(str(episode_id)), (episode_id, goal, len(screens))
    for i, (action, note) in enumerate(zip([*actions, None], [*instructions, None], strict=True)):
        load = partial(_load, *ids, i, screens[i], sizes[i], action, note, f"step {i} of {location}")
        yield step_handle(SUBSET, episode_id, i, i, split, load, location)


def _values(features: dict[str, Values], key: str, value_type: type) -> list[Any]:
    values = features.get(key) or []
    if values and not isinstance(values[0], value_type):
        raise ValueError(f"{key}: got {type(values[0]).__name__}; expected {value_type.__name__}")
    return list(values)


def _single_value(features: dict[str, Values], key: str, value_type: type) -> Any:
    values = _values(features, key, value_type)
    if len(values) != 1:
        raise ValueError(f"{key}: got {len(values)} values; expected 1")
    return values[0]


def _sizes(features: dict[str, Values], length: int) -> list[tuple[int, int] | None]:
    """(height, width) of each screen in pixels; None if the file does not have them."""
    heights, widths = (_values(features, f"screenshot_{side}", int) for side in ("heights", "widths"))
    if not heights and not widths:
        return [None] * length
    if not len(heights) == len(widths) == length:
        raise ValueError(f"{length} screenshots have {len(heights)} heights and {len(widths)} widths")
    return list(zip(heights, widths, strict=True))


def _load(
    episode_id: int, goal: bytes, length: int, step_id: int, png: bytes, size: tuple[int, int] | None,
    encoded_action: bytes | None, encoded_note: bytes | None, location: str,
) -> StepRecord:  # fmt: skip
    action = None if encoded_action is None else _decode_json(encoded_action, location)
    if action is not None:
        _reject_unsupported(action, location)
    pixels = read_pixels(png, location)
    height, width, _ = pixels.shape
    if size not in (None, (height, width)):
        raise unusable_step(BAD_STEP, location, f"screenshot: got {(height, width)} pixels; expected {size}")
    recorded = _decode_action(action, height, width, location)
    try:
        goal_text = goal.decode()
    except UnicodeDecodeError:
        raise unusable_step(BAD_EPISODE, location, "goal: expected UTF-8") from None
    note = None if encoded_note is None else encoded_note.decode(errors="replace")
    notes = StepNotes(instruction=check_note(note, "step instruction", location))
    annotations = to_annotations(())
    return make_record(episode_id, step_id, length, goal_text, recorded, pixels, annotations, location, notes)


def _decode_json(encoded_action: bytes, location: str) -> dict[str, Any]:
    try:
        action = json.loads(encoded_action)
    except (ValueError, RecursionError):
        action = None
    if not isinstance(action, dict) or not isinstance(action.get("action_type"), str):
        raise unusable_step(BAD_STEP, location, "action: expected a JSON object with an action_type")
    return action


def _reject_unsupported(action: dict[str, Any], location: str) -> None:
    """Raise UnusableStepError for an action that AITW does not have, before the image is decoded."""
    name = action["action_type"]
    if name == "scroll":
        raise unusable_step(NO_POINTS, location, "a scroll has only a direction word, which is ambiguous")
    if name not in SUPPORTED_ACTIONS:
        raise unusable_step(UNSUPPORTED_ACTION, location, f"AITW has no action {name[:40]!a}")


def _decode_action(action: dict[str, Any] | None, height: int, width: int, location: str) -> RecordedAction:
    """An action with points in pixels of the screen; None is the end of an episode."""
    match action:
        case None:
            return check_action(Finish("complete"), location)
        case {"action_type": "click"}:
            at = _point([action.get("x"), action.get("y")], height, width, location)
            return check_action(Tap(at), location)
        case {"action_type": "swipe"}:
            start, end = (
                _point(action.get(key), height, width, location) for key in ("coordinate", "coordinate2")
            )
            return check_action(Swipe(start, end), location)
        case {"action_type": "input_text"}:
            return check_action(Type(check_text(action.get("text"), "typed text", location)), location)
        case {"action_type": "navigate_back"}:
            return check_action(Press("back"), location)
    return check_action(Press("home"), location)


def _point(xy: Any, height: int, width: int, location: str) -> Point:
    """(x, y) pixels as a point in fractions."""
    if not isinstance(xy, list) or len(xy) != 2:
        raise unusable_step(NO_POINTS, location, "a swipe needs two points (x, y)")
    return Point(check_fraction(xy[1], height, "y", location), check_fraction(xy[0], width, "x", location))
