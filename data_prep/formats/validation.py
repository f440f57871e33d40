"""Checks that the formats share: untrusted JSON values, actions, images; and episodes grouped into parts.

In: any JSON values. Out: parts of a source, and complete step records. Anything else raises
`UnusableStepError`.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from math import nan
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from data_prep.source import SourcePart, StepHandle, StepRecord, UnusableStepError
from data_prep.split import Split
from uivlm.actions.action import Action, Swipe, Tap, Type, dual_point
from uivlm.actions.aitw import DUAL_POINT, KEYS, NO_POINT, STATUSES, TYPE, AitwFields, from_aitw, to_aitw
from uivlm.episodes.episode import NO_NOTES, Annotations, StepNotes

EPISODES_PER_PART = 64  # maximum

SURROGATE = re.compile(r"[\ud800-\udfff]")
# Reasons that the report counts.
UNSUPPORTED_ACTION = "unsupported action"
NO_POINTS = "swipe without points"
OFF_SCREEN = "point off the screen"
MISSING_IMAGE = "image missing"
BAD_IMAGE = "image damaged"
OUTSIDE_SOURCE = "image outside the source"
BAD_STEP = "damaged step"
BAD_EPISODE = "damaged episode"

RecordedAction = tuple[Action, AitwFields]  # the action, and the same in AITW's encoding, exactly as recorded


def unusable_step(reason: str, location: str, detail: str) -> UnusableStepError:
    """The error for a step at `location`. Lone surrogates are escaped, because reports are UTF-8."""
    return UnusableStepError(reason, f"{location}: {detail}".encode(errors="backslashreplace").decode())


def failing_load(reason: str, location: str, detail: str) -> Callable[[], StepRecord]:
    """A `load` function for a step that is already known to be unusable."""
    return partial(_refuse, unusable_step(reason, location, detail))


def _refuse(error: UnusableStepError) -> NoReturn:
    raise error


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises ValueError."""
    if not path.is_file():  # reading a pipe would wait for a writer
        raise ValueError(f"there is no file {path}")
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}): download it again") from None


def split_into_parts(name: str, folder: Path, episodes: Sequence[Any]) -> list[SourcePart]:
    """Parts of at most EPISODES_PER_PART episodes, in order. `name` must be unique in the source.

    An episode is a JSON object with its "subset", which is "" for an invalid one.
    """
    groups = [tuple(episodes[i : i + EPISODES_PER_PART]) for i in range(0, len(episodes), EPISODES_PER_PART)]
    subsets = [tuple(sorted({episode["subset"] for episode in group} - {""})) for group in groups]
    return [
        SourcePart(f"{name}/{i:05d}", str(folder), stamp(group), group, subsets[i])
        for i, group in enumerate(groups)
    ]


def stamp(items: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(items, sort_keys=True).encode()).hexdigest()[:16]


def select_keys(value: Any, keys: Iterable[str]) -> Any:
    """An object reduced to the keys that are read; any other value unchanged."""
    return {key: value[key] for key in keys if key in value} if isinstance(value, dict) else value


def id_text(value: Any) -> str:
    """An id as text: a text or an integer; "" for any other value."""
    if type(value) is int:
        return str(value)
    return value if isinstance(value, str) and _is_unicode(value) else ""


def step_handle(
    subset: str,
    episode_id: Any,
    step_id: Any,
    index: int,
    split: Split | None,
    load: Callable[[], StepRecord],
    recording: str,
) -> StepHandle:
    """A step with untrusted ids. An invalid step id is replaced by the step's `index` in the file."""
    valid_id = step_id if type(step_id) is int and 0 <= step_id < 2**63 else index
    return StepHandle(subset, id_text(episode_id), valid_id, split, load, recording)


def check_nonnegative_int(value: Any, name: str, location: str) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise unusable_step(BAD_STEP, location, f"{name}: got {quote(value)}; expected an integer from 0")
    return value


def check_text(value: Any, name: str, location: str) -> str:
    if not isinstance(value, str) or not _is_unicode(value):
        raise unusable_step(BAD_STEP, location, f"{name}: got {quote(value)}; expected text")
    return value


def check_list(value: Any, name: str, location: str) -> list[Any]:
    if not isinstance(value, list):
        raise unusable_step(BAD_STEP, location, f"{name}: got {quote(value)}; expected a list")
    return value


def check_fraction(value: Any, size: float, name: str, location: str) -> float:
    """A coordinate from 0 to `size`, as a fraction of `size`."""
    if type(value) not in (int, float):
        raise unusable_step(BAD_STEP, location, f"{name}: got {quote(value)}; expected a number")
    if not 0 <= value <= size:  # also true of a NaN
        raise unusable_step(OFF_SCREEN, location, f"{name}: got {quote(value)}; expected 0 to {size:g}")
    return float(value / size)


def check_point(value: Any, name: str, location: str) -> tuple[float, float]:
    """A point of two fractions, in the given order."""
    values = check_list(value, name, location)
    if len(values) != 2:
        raise unusable_step(BAD_STEP, location, f"{name}: got {len(values)} values; expected 2")
    return check_fraction(values[0], 1, name, location), check_fraction(values[1], 1, name, location)


def xy_to_yx(xy: Any) -> Any:
    """(x, y) as (y, x). Any other value is returned unchanged, for `check_point` to reject."""
    return xy[::-1] if isinstance(xy, list) else xy


def check_aitw(action_type: Any, touch: Any, lift: Any, text: Any, location: str) -> RecordedAction:
    """The action in AITW's encoding. Points (y, x) are read for DUAL_POINT alone, text for TYPE alone."""
    number = check_nonnegative_int(action_type, "action type", location)
    if number not in (DUAL_POINT, TYPE, *KEYS, *STATUSES):
        raise unusable_step(
            UNSUPPORTED_ACTION, location, f"action type: got {quote(number)}; expected one of AITW's"
        )
    fields: AitwFields = (number, NO_POINT, NO_POINT, "")
    if number == DUAL_POINT:
        touch, lift = check_point(touch, "touch point", location), check_point(lift, "lift point", location)
        fields = (number, touch, lift, "")
    elif number == TYPE:
        fields = (number, NO_POINT, NO_POINT, check_text(text, "typed text", location))
    return from_aitw(*fields), fields


def check_action(action: Action, location: str) -> RecordedAction:
    """An action with untrusted values: its points must be on the screen, and its text must be Unicode."""
    match action:
        case Tap(at):
            check_point([at.y, at.x], "tap", location)
        case Swipe(start, end):
            check_point([start.y, start.x], "start of the swipe", location)
            check_point([end.y, end.x], "end of the swipe", location)
            return dual_point(start, end), to_aitw(action)  # a short swipe is a tap; AITW keeps both points
        case Type(text):
            check_text(text, "typed text", location)
    return action, to_aitw(action)


def make_annotations(
    boxes: Any, texts: Any, ui_types: Any, location: str, size: tuple[int, int] = (1, 1)
) -> Annotations:
    """Boxes (y, x, height, width) on a screen of `size` (height, width). Default text "", UI type TEXT.

    A box that is none becomes NaN, which `clip_boxes` leaves out: a box is no reason to lose a step.
    """
    boxes = check_list([] if boxes is None else boxes, "boxes", location)
    texts = check_list([""] * len(boxes) if texts is None else texts, "box texts", location)
    ui_types = check_list(["TEXT"] * len(boxes) if ui_types is None else ui_types, "box UI types", location)
    if not len(boxes) == len(texts) == len(ui_types):
        raise unusable_step(
            BAD_STEP, location, f"{len(boxes)} boxes have {len(texts)} texts and {len(ui_types)} UI types"
        )
    labels = [
        isinstance(text, str) and isinstance(ui_type, str) and _is_unicode(text + ui_type)
        for text, ui_type in zip(texts, ui_types, strict=True)
    ]
    return Annotations(
        [
            side
            for box, valid in zip(boxes, labels, strict=True)
            for side in _box(box if valid else None, size)
        ],
        [text if valid else "" for text, valid in zip(texts, labels, strict=True)],
        [ui_type if valid else "" for ui_type, valid in zip(ui_types, labels, strict=True)],
    )


def _box(value: Any, size: tuple[int, int]) -> list[float]:
    """A box as fractions of `size`; NaNs for a value that is not a box."""
    match value:
        case [_, _, _, _] if all(type(side) in (int, float) for side in value):
            with suppress(OverflowError):
                return [float(side / length) for side, length in zip(value, size * 2, strict=True)]
    return [nan] * 4


def make_record(
    episode_id: Any, step_id: Any, length: int, goal: Any, recorded: RecordedAction,
    pixels: NDArray[np.uint8], annotations: Annotations, location: str, notes: StepNotes = NO_NOTES,
) -> StepRecord:  # fmt: skip
    """The record of a step. Fields that the format does not have are 0 or empty."""
    valid_id = id_text(episode_id)
    if not valid_id:
        detail = f"got {quote(episode_id)}; expected text or an integer"
        raise unusable_step(BAD_STEP, location, f"episode id: {detail}")
    action, aitw = recorded
    return StepRecord(
        episode_id=valid_id,
        step_id=check_nonnegative_int(step_id, "step number", location),
        episode_length=length,
        goal=check_text(goal, "goal", location),
        android_api_level=0,
        device_type="",
        activity="",
        pixels=pixels,
        annotations=annotations,
        action=action,
        aitw=aitw,
        notes=notes,
    )


def check_note(value: Any, name: str, location: str) -> str | None:
    """An annotator's text about a step; None where it is missing or blank."""
    return None if value is None else check_text(value, name, location).strip() or None


def quote(value: Any) -> str:
    """A foreign value for an error message, truncated."""
    match value:
        case str():
            return ascii(value) if len(value) <= 60 else f"{value[:60]!a}..."
        case list() | dict():  # may be nested too deep for repr
            return "a list" if isinstance(value, list) else "an object"
        case int() if value.bit_length() > 64:
            return "a huge number"
    return repr(value)


def _is_unicode(value: str) -> bool:
    return value.isascii() or not SURROGATE.search(value)
