"""AITW's record of one step: the bytes of a tf.train.Example in, a typed Record out, and the other way round.

Points are (y, x) fractions of the screen, boxes (y, x, height, width). Scalars are lists of one; a list that may
vary in length (the annotations) may be empty or absent. `image/encoded` is raw RGB, not a picture file.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from data_prep.example import Values, make_example, parse_example
from data_prep.record import Found, Record, Unusable
from uivlm.episode import Annotations

SCREEN = "image/encoded"


class BadRecord(Unusable):
    """A record whose frame is whole but whose content is not AITW's: which file, record (0-based) and key."""

    def __init__(self, path: str, record: int, key: str, detail: str) -> None:
        super().__init__("bad record", f"bad record {record} of {path}: {key}: {detail}")
        self.args = (path, record, key, detail)  # so that it crosses process borders
        self.path, self.record, self.key, self.detail = path, record, key, detail


def parse_record(data: bytes, path: str = "memory", number: int = 0) -> Record:
    """The step in one Example. Raises BadRecord, naming `path` and `number`, where it is not AITW's."""
    return _record(_fields(data, path, number))


def find_step(data: bytes, subset: str, path: str, number: int) -> Found:
    """Whose step an Example is; its fields are checked when it is loaded."""
    try:
        fields = _fields(data, path, number)
        key = fields.text("episode_id"), fields.integer("step_id")
    except BadRecord as bad:
        return Found(subset, "", 0, None, partial(_refuse, bad))
    return Found(subset, *key, None, partial(_record, fields))


def _refuse(bad: BadRecord) -> Record:
    raise bad


def _fields(data: bytes, path: str, number: int) -> "_Fields":
    try:
        return _Fields(parse_example(data, large=SCREEN), path, number)
    except ValueError as error:
        raise BadRecord(path, number, "the whole record", str(error)) from None


def _record(fields: "_Fields") -> Record:
    record = Record(
        episode_id=fields.text("episode_id"),
        step_id=fields.integer("step_id"),
        episode_length=fields.integer("episode_length"),
        goal=fields.text("goal_info"),
        android_api_level=fields.integer("android_api_level"),
        device_type=fields.text("device_type"),
        activity=fields.text("current_activity"),
        pixels=_pixels(fields),
        annotations=_annotations(fields),
        action_type=fields.integer("results/action_type"),
        touch=fields.point("results/yx_touch"),
        lift=fields.point("results/yx_lift"),
        text=fields.text("results/type_action"),
    )
    if record.step_id < 0:
        raise fields.bad("step_id", f"it is {record.step_id}: steps count from 0")
    try:
        _ = record.action
    except ValueError as error:
        raise fields.bad("results/action_type", str(error)) from None
    return record


def to_example(record: Record) -> bytes:
    """The record as a tf.train.Example that TensorFlow reads; parse_record gives the record again."""
    height, width, channels = record.pixels.shape
    return make_example({
        "episode_id": [record.episode_id.encode()],
        "step_id": [record.step_id],
        "episode_length": [record.episode_length],
        "goal_info": [record.goal.encode()],
        "android_api_level": [record.android_api_level],
        "device_type": [record.device_type.encode()],
        "current_activity": [record.activity.encode()],
        "image/height": [height],
        "image/width": [width],
        "image/channels": [channels],
        SCREEN: [np.ascontiguousarray(record.pixels, np.uint8).tobytes()],
        "image/ui_annotations_positions": [float(number) for number in record.annotations.boxes],
        "image/ui_annotations_text": [text.encode() for text in record.annotations.texts],
        "image/ui_annotations_ui_types": [kind.encode() for kind in record.annotations.kinds],
        "results/action_type": [record.action_type],
        "results/type_action": [record.text.encode()],
        "results/yx_touch": [float(number) for number in record.touch],
        "results/yx_lift": [float(number) for number in record.lift],
    })  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Fields:
    """The features of one record, read by key and kind; what is missing or of another kind raises BadRecord."""

    features: dict[str, Values]
    path: str
    number: int

    def bad(self, key: str, detail: str) -> BadRecord:
        return BadRecord(self.path, self.number, key, detail)

    def values(self, key: str, kind: type, size: int) -> Values:
        values = self.features.get(key)
        if values is None:
            raise self.bad(key, "the key is missing")
        if len(values) != size:
            raise self.bad(key, f"it holds {len(values)} values, not {size}")
        if not isinstance(values[0], kind):
            raise self.bad(key, f"it holds {type(values[0]).__name__}, not {kind.__name__}")
        return values

    def integer(self, key: str) -> int:
        return int(self.values(key, int, 1)[0])

    def blob(self, key: str) -> bytes:
        return bytes(self.values(key, bytes, 1)[0])  # type: ignore[arg-type]

    def large(self, key: str) -> bytes | memoryview:
        match self.features.get(key):
            case [memoryview() as view]:
                return view
            case _:
                return self.blob(key)

    def text(self, key: str) -> str:
        return self.decode(key, [self.blob(key)])[0]

    def point(self, key: str) -> tuple[float, float]:
        y, x = self.values(key, float, 2)
        return float(y), float(x)

    def many(self, key: str, kind: type) -> Values:
        values = self.features.get(key) or []
        if values and not isinstance(values[0], kind):
            raise self.bad(key, f"it holds {type(values[0]).__name__}, not {kind.__name__}")
        return values

    def texts(self, key: str) -> list[str]:
        return self.decode(key, self.many(key, bytes))

    def decode(self, key: str, raw: Values) -> list[str]:
        try:
            return [str(one, "utf-8") for one in raw]  # type: ignore[arg-type]
        except UnicodeDecodeError as error:
            raise self.bad(key, f"its text is not UTF-8 ({error.reason} at byte {error.start})") from None


def _pixels(fields: _Fields) -> NDArray[np.uint8]:
    height, width, channels = (fields.integer(f"image/{name}") for name in ("height", "width", "channels"))
    if height < 1 or width < 1 or channels != 3:
        raise fields.bad("image/channels", f"a screen of {height} x {width} x {channels} is no RGB picture")
    raw = fields.large(SCREEN)
    if len(raw) != height * width * channels:
        need = f"{height} x {width} x {channels} = {height * width * channels}"
        raise fields.bad(SCREEN, f"it holds {len(raw)} bytes where {need} are needed")
    return np.frombuffer(raw, np.uint8).reshape(height, width, channels)


def _annotations(fields: _Fields) -> Annotations:
    where, what, which = (f"image/ui_annotations_{name}" for name in ("positions", "text", "ui_types"))
    numbers, texts, kinds = fields.many(where, float), fields.texts(what), fields.texts(which)
    if len(numbers) != 4 * len(texts) or len(texts) != len(kinds):
        raise fields.bad(
            where,
            f"{len(numbers)} numbers, {len(texts)} texts and {len(kinds)} types are not 4, 1 and 1 a box",
        )
    return Annotations(numbers, texts, kinds)  # type: ignore[arg-type]
