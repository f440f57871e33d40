"""AITW as published: shards of GZIP TFRecords, one Example per step. A shard's name has the subset."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from data_prep.source import SourcePart, StepHandle, StepRecord, UnusableStepError
from data_prep.source_files import SHARD, list_files, list_shards
from data_prep.tf_example import Values, make_example, parse_example
from data_prep.tfrecord import read_records
from uivlm.actions.aitw import from_aitw
from uivlm.episodes.episode import Annotations

IMAGE_KEY = "image/encoded"


class CorruptRecordError(UnusableStepError):
    """A record with valid checksums and invalid content: file, index of the record (0-based) and key."""

    def __init__(self, path: str, record_index: int, key: str, detail: str) -> None:
        super().__init__("corrupt record", f"corrupt record {record_index} of {path}: {key}: {detail}")
        self.args = (path, record_index, key, detail)  # all of __init__'s, so that it can be pickled
        self.path, self.record_index, self.key, self.detail = path, record_index, key, detail


def parse_record(data: bytes, path: str = "memory", record_index: int = 0) -> StepRecord:
    """The step of one Example. Raises CorruptRecordError with `path` and `record_index`."""
    return _record(_fields(data, path, record_index))


def find_step(data: bytes, subset: str, path: str, record_index: int) -> StepHandle:
    """The handle of an Example's step. The other fields are checked when it is loaded."""
    try:
        fields = _fields(data, path, record_index)
        key = fields.text("episode_id"), fields.integer("step_id")
    except CorruptRecordError as error:
        return StepHandle(subset, "", 0, None, partial(_refuse, error))
    return StepHandle(subset, *key, None, partial(_record, fields))


def _refuse(error: CorruptRecordError) -> StepRecord:
    raise error


def _fields(data: bytes, path: str, record_index: int) -> "_ExampleFields":
    try:
        return _ExampleFields(parse_example(data, large_feature=IMAGE_KEY), path, record_index)
    except ValueError as error:
        raise CorruptRecordError(path, record_index, "the whole record", str(error)) from None


def _record(fields: "_ExampleFields") -> StepRecord:
    step_id = fields.integer("step_id")
    if step_id < 0:
        raise fields.error("step_id", f"got {step_id}; expected an integer from 0")
    aitw = (
        fields.integer("results/action_type"),
        fields.point("results/yx_touch"),
        fields.point("results/yx_lift"),
        fields.text("results/type_action"),
    )
    try:
        action = from_aitw(*aitw)
    except ValueError as error:
        raise fields.error("results/action_type", str(error)) from None
    return StepRecord(
        episode_id=fields.text("episode_id"),
        step_id=step_id,
        episode_length=fields.integer("episode_length"),
        goal=fields.text("goal_info"),
        android_api_level=fields.integer("android_api_level"),
        device_type=fields.text("device_type"),
        activity=fields.text("current_activity"),
        pixels=_pixels(fields),
        annotations=_annotations(fields),
        action=action,
        aitw=aitw,
    )


def to_example(record: StepRecord) -> bytes:
    """The record as a tf.train.Example that TensorFlow reads. `parse_record` returns the record again."""
    height, width, channels = record.pixels.shape
    action_type, touch, lift, text = record.aitw
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
        IMAGE_KEY: [np.ascontiguousarray(record.pixels, np.uint8).tobytes()],
        "image/ui_annotations_positions": [float(coordinate) for coordinate in record.annotations.boxes],
        "image/ui_annotations_text": [label.encode() for label in record.annotations.texts],
        "image/ui_annotations_ui_types": [ui_type.encode() for ui_type in record.annotations.ui_types],
        "results/action_type": [action_type],
        "results/type_action": [text.encode()],
        "results/yx_touch": [*map(float, touch)],
        "results/yx_lift": [*map(float, lift)],
    })  # fmt: skip


@dataclass(frozen=True, slots=True)
class _ExampleFields:
    """The features of one record by key and type. A missing key or another type raises CorruptRecordError."""

    features: dict[str, Values]
    path: str
    record_index: int

    def error(self, key: str, detail: str) -> CorruptRecordError:
        return CorruptRecordError(self.path, self.record_index, key, detail)

    def values(self, key: str, value_type: type, size: int) -> Values:
        values = self.features.get(key)
        if values is None:
            raise self.error(key, "the key is missing")
        if len(values) != size:
            raise self.error(key, f"got {len(values)} values; expected {size}")
        if not isinstance(values[0], value_type):
            raise self.error(key, f"got {type(values[0]).__name__}; expected {value_type.__name__}")
        return values

    def integer(self, key: str) -> int:
        return int(self.values(key, int, 1)[0])

    def blob(self, key: str) -> bytes:
        return bytes(self.values(key, bytes, 1)[0])  # type: ignore[arg-type]

    def raw_bytes(self, key: str) -> bytes | memoryview:
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

    def list_values(self, key: str, value_type: type) -> Values:
        values = self.features.get(key) or []
        if values and not isinstance(values[0], value_type):
            raise self.error(key, f"got {type(values[0]).__name__}; expected {value_type.__name__}")
        return values

    def texts(self, key: str) -> list[str]:
        return self.decode(key, self.list_values(key, bytes))

    def decode(self, key: str, raw: Values) -> list[str]:
        try:
            return [str(value, "utf-8") for value in raw]  # type: ignore[arg-type]
        except UnicodeDecodeError as error:
            raise self.error(key, f"expected UTF-8 ({error.reason} at byte {error.start})") from None


def _pixels(fields: _ExampleFields) -> NDArray[np.uint8]:
    height, width, channels = (fields.integer(f"image/{name}") for name in ("height", "width", "channels"))
    if height < 1 or width < 1 or channels != 3:
        raise fields.error("image/channels", f"got {height} x {width} x {channels}; expected an RGB image")
    raw = fields.raw_bytes(IMAGE_KEY)
    if len(raw) != height * width * channels:
        expected = f"{height} x {width} x {channels} = {height * width * channels}"
        raise fields.error(IMAGE_KEY, f"got {len(raw)} bytes; expected {expected}")
    return np.frombuffer(raw, np.uint8).reshape(height, width, channels)


def _annotations(fields: _ExampleFields) -> Annotations:
    keys = [f"image/ui_annotations_{name}" for name in ("positions", "text", "ui_types")]
    boxes, texts, ui_types = fields.list_values(keys[0], float), fields.texts(keys[1]), fields.texts(keys[2])
    if len(boxes) != 4 * len(texts) or len(texts) != len(ui_types):
        counts = f"{len(boxes)} numbers, {len(texts)} texts and {len(ui_types)} UI types"
        raise fields.error(keys[0], f"got {counts}; expected 4, 1 and 1 per box")
    return Annotations(boxes, texts, ui_types)  # type: ignore[arg-type]


def refuse_autoui(source: str) -> NoReturn:
    """Raise ValueError: opening a pickle may run any program."""
    raise ValueError(
        f"{source}: Auto-UI's pickles are not supported. They have BLIP-2 features without pixels and "
        "altered actions, and opening a pickle may run any program. Prepare the original AITW shards with "
        "Auto-UI's lists of ids as --split"
    )


SUBSETS = ("google_apps", "install", "web_shopping", "general", "single")

_COPY = "android-in-the-wild_"  # some copies have names that begin with <this><folder>_


def find(source: str) -> list[SourcePart]:
    """Every shard at any depth of a folder, sorted by name; or one shard. Raises ValueError."""
    shards = list_shards(source)
    if not shards and any(file.name.endswith(".obj") for file in list_files(source)):
        refuse_autoui(source)
    if not shards:
        raise ValueError(
            f"{source} has no shard: a shard's name ends like -00000-of-00321, without extension"
        )
    return [
        SourcePart(file.name, file.path, str(file.size), subsets=(subset_of(_base_name(file.name)),))
        for file in shards
    ]


def read(part: SourcePart) -> Iterator[StepHandle]:
    """The steps of a shard. Raises CorruptShardError at the first corrupt record."""
    subset = subset_of(_base_name(part.name))
    for record_index, data in enumerate(read_records(part.path, part.name)):
        yield find_step(data, subset, part.name, record_index)


def subset_of(name: str) -> str:
    """The subset in a shard's name: `general-00000-of-00321`, `android-in-the-wild_general_general-...`."""
    match = SHARD.fullmatch(name)
    prefix = match[1] if match else name.split("-")[0]
    for subset in SUBSETS:
        if prefix == subset or prefix.endswith(f"_{subset}"):
            return subset
    return prefix.removeprefix(_COPY)


def missing_shards(names: Iterable[str]) -> dict[str, int]:
    """The number of missing shards by subset. Preparing a part of the data is not an error."""
    shards = [(subset_of(base), match) for base in map(_base_name, names) if (match := SHARD.fullmatch(base))]
    stated: dict[str, int] = {}
    for subset, match in shards:
        stated[subset] = max(stated.get(subset, 0), int(match[3]))
    present = Counter(subset for subset, _ in {(subset, match[2]) for subset, match in shards})
    return {subset: count - present[subset] for subset, count in stated.items() if count > present[subset]}


def _base_name(name: str) -> str:
    return name.rsplit("/", 1)[-1]
