"""What the formats share: values of others' JSON checked one by one, picture files opened, episodes cut into parts.

In: whatever a JSON file holds. Out: parts of a source, and records with every field of AITW's schema. What cannot be
one raises Unusable, whatever it is: nothing here trusts a value's type.
"""

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from data_prep.record import Found, Part, Record, Unusable
from data_prep.split import Split
from uivlm.actions.aitw import DUAL_POINT, KEYS, NO_POINT, STATUSES, TYPE, Fields
from uivlm.episode import Annotations

EPISODES = 64  # of a part, at most
PICTURES = ("PNG", "JPEG", "WEBP")  # for some of its other formats Pillow starts a program
MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")  # of 8 bits or less; 16 would turn white

NO_ACTION = "no such action here"
NO_POINTS = "swipe without points"
OFF_SCREEN = "point off the screen"
NO_PICTURE = "picture missing"
BAD_PICTURE = "picture damaged"
OUTSIDE = "picture outside the source"
BAD_STEP = "damaged step"
BAD_EPISODE = "damaged episode"


def unusable(why: str, place: str, detail: str) -> Unusable:
    """`place` says where, `detail` what. Lone surrogates of foreign strings are escaped: reports are UTF-8."""
    return Unusable(why, f"{place}: {detail}".encode(errors="backslashreplace").decode())


def refusal(why: str, place: str, detail: str) -> Callable[[], Record]:
    """A `load` for a step that is known to be unusable."""
    return partial(_refuse, unusable(why, place, detail))


def _refuse(error: Unusable) -> NoReturn:
    raise error


def read_json(path: Path) -> Any:
    """The content of a JSON file. ValueError with one sentence."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read as JSON ({error}): fetch it again") from None


def cut(name: str, where: Path, episodes: Sequence[Any]) -> list[Part]:
    """Parts of at most EPISODES episodes, in order; `name` is of no other source of parts."""
    pieces = [tuple(episodes[i : i + EPISODES]) for i in range(0, len(episodes), EPISODES)]
    return [Part(f"{name}/{i:05d}", str(where), stamp(piece), piece) for i, piece in enumerate(pieces)]


def stamp(items: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(items, sort_keys=True).encode()).hexdigest()[:16]


def only(value: Any, keys: Iterable[str]) -> Any:
    """An object without what is never read; anything else as it is."""
    return {key: value[key] for key in keys if key in value} if isinstance(value, dict) else value


def identity(value: Any) -> str:
    """An id as text: any text but none, or an integer; "" for what is no id."""
    if type(value) is int:
        return str(value)
    return value if isinstance(value, str) and _is_unicode(value) else ""


def found(
    subset: str, episode_id: Any, step_id: Any, index: int, split: Split | None, load: Callable[[], Record]
) -> Found:
    """A step whose id and number may be anything: the `index` in the file stands for a number that is none."""
    number = step_id if type(step_id) is int and 0 <= step_id < 2**63 else index
    return Found(subset, identity(episode_id), number, split, load)


def whole(value: Any, name: str, place: str) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise unusable(BAD_STEP, place, f"its {name} is {_told(value)}, no whole number from 0")
    return value


def text(value: Any, name: str, place: str) -> str:
    if not isinstance(value, str) or not _is_unicode(value):
        raise unusable(BAD_STEP, place, f"its {name} is {_told(value)}, no text")
    return value


def listed(value: Any, name: str, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise unusable(BAD_STEP, place, f"its {name} is {_told(value)}, no list")
    return value


def fraction(value: Any, size: float, name: str, place: str) -> float:
    """A coordinate from 0 to `size` as a fraction of it."""
    if type(value) not in (int, float):
        raise unusable(BAD_STEP, place, f"its {name} holds {_told(value)}, no number")
    if not 0 <= value <= size:  # nor is a NaN
        raise unusable(OFF_SCREEN, place, f"its {name} holds {_told(value)}, not 0 to {size:g}")
    return float(value / size)


def point(value: Any, name: str, place: str) -> tuple[float, float]:
    """A point of two fractions, in the order in which they come."""
    numbers = listed(value, name, place)
    if len(numbers) != 2:
        raise unusable(BAD_STEP, place, f"its {name} holds {len(numbers)} values, not 2")
    return fraction(numbers[0], 1, name, place), fraction(numbers[1], 1, name, place)


def turned(xy: Any) -> Any:
    """(x, y) as (y, x); what is no list as it is, for `point` to refuse."""
    return xy[::-1] if isinstance(xy, list) else xy


def aitw_fields(action_type: Any, touch: Any, lift: Any, typed: Any, place: str) -> Fields:
    """AITW's fields of an action by AITW's number. Points (y, x) count for DUAL_POINT alone, text for TYPE alone."""
    number = whole(action_type, "action type", place)
    if number == DUAL_POINT:
        return number, point(touch, "touch point", place), point(lift, "lift point", place), ""
    if number == TYPE:
        return number, NO_POINT, NO_POINT, text(typed, "typed text", place)
    if number in KEYS or number in STATUSES:
        return number, NO_POINT, NO_POINT, ""
    raise unusable(NO_ACTION, place, f"action type {_told(number)} is none of AITW's")


def annotated(boxes: Any, texts: Any, kinds: Any, place: str, size: tuple[int, int] = (1, 1)) -> Annotations:
    """Boxes (y, x, height, width) on a screen of `size` (height, width); no texts are empty texts, no kinds TEXT."""
    boxes = listed([] if boxes is None else boxes, "boxes", place)
    texts = listed([""] * len(boxes) if texts is None else texts, "boxes' texts", place)
    kinds = listed(["TEXT"] * len(boxes) if kinds is None else kinds, "boxes' kinds", place)
    if not len(boxes) == len(texts) == len(kinds):
        raise unusable(
            BAD_STEP, place, f"it has {len(boxes)} boxes, {len(texts)} texts and {len(kinds)} kinds of them"
        )
    return Annotations(
        [number for box in boxes for number in _box(box, size, place)],
        [text(words, "box's text", place) for words in texts],
        [text(kind, "box's kind", place) for kind in kinds],
    )


def _box(value: Any, size: tuple[int, int], place: str) -> list[float]:
    numbers = listed(value, "box", place)
    if len(numbers) != 4:
        raise unusable(BAD_STEP, place, f"a box of it holds {len(numbers)} values, not 4")
    return [fraction(number, side, "box", place) for number, side in zip(numbers, size * 2, strict=True)]


def roots(folder: Path) -> list[Path]:
    """Where pictures may lie: the folder itself, and every folder in it."""
    return [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]


def picture(name: Any, folders: Iterable[Path], place: str, beside: Iterable[Path] = ()) -> NDArray[np.uint8]:
    """The picture file `name`, relative with "/", in the first of the folders that has it; in `beside` by its last
    name alone."""
    given = PurePosixPath(text(name, "picture's name", place).replace("\\", "/"))
    if given.is_absolute() or ".." in given.parts:
        raise unusable(OUTSIDE, place, f"the picture {_told(name)} would lie outside the source")
    for folder, words in [*((each, name) for each in folders), *((each, given.name) for each in beside)]:
        path = _file(folder, words, place)
        if path is not None:
            return pixels(path, place)
    raise unusable(NO_PICTURE, place, f"there is no picture {_told(name)}")


def _file(folder: Path, name: str, place: str) -> Path | None:
    try:
        path = (folder / name).resolve()
        if not path.is_file():
            return None
        inside = path.is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # a name too long or with a NUL, links in a ring
        return None
    if not inside:
        raise unusable(OUTSIDE, place, f"the picture {_told(name)} is a link that leads out of the source")
    return path


def pixels(source: Path | bytes, place: str) -> NDArray[np.uint8]:
    """A picture file, or its bytes, as RGB, uint8 [H, W, 3]."""
    try:
        with Image.open(
            io.BytesIO(source) if isinstance(source, bytes) else source, formats=PICTURES
        ) as file:
            if file.mode not in MODES:
                raise ValueError(f"mode {file.mode} is none of a screenshot")
            return np.array(file.convert("RGB"), np.uint8)
    except Exception as error:  # Pillow raises a dozen kinds on damaged files
        raise unusable(
            BAD_PICTURE, place, f"its picture cannot be read ({type(error).__name__}: {error})"
        ) from None


def record(
    episode_id: Any, step_id: Any, length: int, goal: Any, fields: Fields,
    screen: NDArray[np.uint8], boxes: Annotations, place: str,
) -> Record:  # fmt: skip
    """The record of a step; what the format says nothing of is 0 or empty."""
    name = identity(episode_id)
    if not name:
        raise unusable(BAD_STEP, place, f"its episode id is {_told(episode_id)}, no id")
    action_type, touch, lift, typed = fields
    return Record(
        episode_id=name,
        step_id=whole(step_id, "step number", place),
        episode_length=length,
        goal=text(goal, "goal", place),
        android_api_level=0,
        device_type="",
        activity="",
        pixels=screen,
        annotations=boxes,
        action_type=action_type,
        touch=touch,
        lift=lift,
        text=typed,
    )


def _told(value: Any) -> str:
    """A foreign value for a sentence, cut where it is long."""
    match value:
        case str():
            return ascii(value) if len(value) <= 60 else f"{value[:60]!a}..."
        case list() | dict():  # it may be nested without end
            return "a list" if isinstance(value, list) else "an object"
        case int() if value.bit_length() > 64:
            return "a huge number"
    return repr(value)


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
