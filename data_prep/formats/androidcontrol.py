"""AndroidControl: GZIP TFRecords, one Example an EPISODE, with PNG screens and actions in pixels.

In: files `android_control-00000-of-00020`, where an episode has one screen more than actions. Its last screen gets
the action `complete`: our reading, since every episode is a demonstration that succeeded. What AITW has no action for
(long press, open app, wait, and `type`, which is three actions) is refused, and so is `scroll`: it carries only a
direction word. The accessibility trees and step instructions are not read.
"""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from data_prep.example import Values, parse_example
from data_prep.files import list_shards, open_binary
from data_prep.formats.reading import (
    BAD_EPISODE,
    BAD_STEP,
    NO_ACTION,
    NO_POINTS,
    aitw_fields,
    found,
    fraction,
    listed,
    pixels,
    record,
    refusal,
    unusable,
)
from data_prep.record import Found, Part, Record
from data_prep.split import LABELS, Split
from data_prep.tfrecord import read_records
from uivlm.actions.aitw import ACTION_TYPES, DUAL_POINT, TYPE, Fields
from uivlm.episode import annotations

SUBSET = "android_control"
SPLITS_FILE = "splits.json"  # {train|validation|test: [episode ids]}, beside the files
# Google's files have no `swipe`; copies of them do, with two points (x, y) in pixels.
POSSIBLE = ("click", "swipe", "input_text", "navigate_back", "navigate_home")


def find(source: str) -> list[Part]:
    """Every file of episodes in the folder and its folders, in order of name; or the one file named."""
    parts = [Part(file.name, file.where, str(file.size)) for file in list_shards(source)]
    if not parts:
        raise ValueError(
            f"no file of {source} is named like android_control-00000-of-00020, without extension"
        )
    for folder in {_folder(part) for part in parts}:
        _splits(folder)  # a mistake in the list is told now, and once
    return parts


def read(part: Part) -> Iterator[Found]:
    """The steps of a file's episodes. Raises DamagedShard where the file stops making sense."""
    splits = _splits(_folder(part))
    for number, data in enumerate(read_records(part.where)):
        yield from _steps(data, splits, f"episode {number} of {part.name}")


def _folder(part: Part) -> str:
    return part.where.rpartition("/")[0] or "."


def _splits(folder: str) -> Mapping[str, Split]:
    """Episode id -> split, as the list beside the files says; nothing where there is none."""
    where = f"{folder}/{SPLITS_FILE}"
    splits: dict[str, Split] = {}
    try:
        with open_binary(where) as file:
            content = json.loads(file.read())
        for label, names in content.items():
            for name in [str(int(each)) for each in listed(names, label, where)]:
                if splits.setdefault(name, LABELS[label]) != LABELS[label]:
                    raise ValueError(f"episode {name} is under two labels")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        raise ValueError(
            f"{where} is no list of episodes: it must hold {', '.join(LABELS)}, each with ids that no other has, "
            "or not be there"
        ) from None
    return splits


def _steps(data: bytes, splits: Mapping[str, Split], place: str) -> Iterator[Found]:
    """The steps of one Example. Where its lists do not fit together, no screen can be given an action."""
    name: Any = ""
    try:
        features = parse_example(data)
        name, goal = _one(features, "episode_id", int), _one(features, "goal", bytes)
        screens, actions = (_many(features, key, bytes) for key in ("screenshots", "actions"))
        sizes = _sizes(features, len(screens))
        if len(screens) != len(actions) + 1:
            raise ValueError(f"{len(screens)} screenshots are not one more than {len(actions)} actions")
    except ValueError as error:
        yield found(SUBSET, name, 0, 0, splits.get(str(name)), refusal(BAD_EPISODE, place, str(error)))
        return
    length, split = len(screens), splits.get(str(name))
    for i, action in enumerate([*actions, None]):
        load = partial(_load, name, goal, i, length, screens[i], sizes[i], action, f"step {i} of {place}")
        yield found(SUBSET, name, i, i, split, load)


def _many(features: dict[str, Values], key: str, kind: type) -> list[Any]:
    values = features.get(key) or []
    if values and not isinstance(values[0], kind):
        raise ValueError(f"its {key} hold {type(values[0]).__name__}, not {kind.__name__}")
    return list(values)


def _one(features: dict[str, Values], key: str, kind: type) -> Any:
    values = _many(features, key, kind)
    if len(values) != 1:
        raise ValueError(f"it has {len(values)} values of {key}, not one")
    return values[0]


def _sizes(features: dict[str, Values], length: int) -> list[tuple[int, int] | None]:
    """(height, width) of each screen in pixels, where the file says it."""
    heights, widths = (_many(features, f"screenshot_{side}", int) for side in ("heights", "widths"))
    if not heights and not widths:
        return [None] * length
    if not len(heights) == len(widths) == length:
        raise ValueError(
            f"{len(heights)} heights and {len(widths)} widths are not those of {length} screenshots"
        )
    return list(zip(heights, widths, strict=True))


def _load(
    name: int, goal: bytes, number: int, length: int, png: bytes, size: tuple[int, int] | None,
    action: bytes | None, place: str,
) -> Record:  # fmt: skip
    given = None if action is None else _decoded(action, place)
    if given is not None:
        _refuse_impossible(given, place)
    screen = pixels(png, place)
    height, width, _ = screen.shape
    if size not in (None, (height, width)):
        raise unusable(BAD_STEP, place, f"its picture is {height} x {width} pixels, but {size} is stated")
    fields = _fields(given, height, width, place)
    try:
        words = goal.decode()
    except UnicodeDecodeError:
        raise unusable(BAD_EPISODE, place, "its goal is not UTF-8") from None
    return record(name, number, length, words, fields, screen, annotations(()), place)


def _decoded(action: bytes, place: str) -> dict[str, Any]:
    try:
        given = json.loads(action)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict) or not isinstance(given.get("action_type"), str):
        raise unusable(BAD_STEP, place, "its action is no JSON object with an action_type")
    return given


def _refuse_impossible(action: dict[str, Any], place: str) -> None:
    """Raises Unusable for what AITW has no action for. It is known before the picture is opened."""
    kind = action["action_type"]
    if kind == "scroll":
        raise unusable(
            NO_POINTS, place, "its scroll has a direction word only, and such words are not trusted"
        )
    if kind not in POSSIBLE:
        raise unusable(NO_ACTION, place, f"AITW has no action {kind[:40]!a}")


def _fields(action: dict[str, Any] | None, height: int, width: int, place: str) -> Fields:
    """AITW's fields of an action whose points are pixels of a screen; None is the end of an episode."""
    match action:
        case None:
            return aitw_fields(ACTION_TYPES["STATUS_TASK_COMPLETE"], None, None, "", place)
        case {"action_type": "click"}:
            at = _yx([action.get("x"), action.get("y")], height, width, place)
            return aitw_fields(DUAL_POINT, at, at, "", place)
        case {"action_type": "swipe"}:
            touch, lift = (
                _yx(action.get(end), height, width, place) for end in ("coordinate", "coordinate2")
            )
            return aitw_fields(DUAL_POINT, touch, lift, "", place)
        case {"action_type": "input_text"}:
            return aitw_fields(TYPE, None, None, action.get("text"), place)
        case {"action_type": "navigate_back"}:
            return aitw_fields(ACTION_TYPES["PRESS_BACK"], None, None, "", place)
    return aitw_fields(ACTION_TYPES["PRESS_HOME"], None, None, "", place)


def _yx(xy: Any, height: int, width: int, place: str) -> list[float]:
    """(x, y) pixels as (y, x) fractions."""
    if not isinstance(xy, list) or len(xy) != 2:
        raise unusable(NO_POINTS, place, "its swipe lacks one of its two points (x, y)")
    return [fraction(xy[1], height, "y", place), fraction(xy[0], width, "x", place)]
