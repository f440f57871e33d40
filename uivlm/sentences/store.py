"""Prepared data on disk: a Step and where it belongs in, one Parquet row out, and episodes read back from a folder.

The folder holds `meta.json` and Parquet shards with one row per step. An episode's rows lie together in one shard,
in order. The recorded floats are kept exactly; the words are kept beside them for people and for other tools.
"""

import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

from uivlm.actions.aitw import from_aitw
from uivlm.episode import Annotations, Episode, Screen, Step

FORMAT = "uivlm prepared data"
VERSION = 1
META = "meta.json"
ROW_GROUP = 16  # rows; large groups make random reads many times slower
JPEG = b"\xff\xd8"

_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])  # the `datasets` Image feature
_FEATURES = {"info": {"features": {"image": {"_type": "Image"}}}}

RECORDED = pa.schema([  # what one recorded step says by itself
    ("subset", pa.string()),
    ("episode_id", pa.string()),
    ("step_id", pa.int64()),  # as recorded; differs from `t` where recorded steps are missing
    ("episode_length", pa.int64()),  # nominal, as recorded
    ("goal", pa.string()),
    ("image", _IMAGE),
    ("height", pa.int32()),  # pixels
    ("width", pa.int32()),
    ("words", pa.string()),
    ("action_type", pa.int32()),  # AITW's enum
    ("touch_y", pa.float32()),  # fractions of the screen; -1 for what is no gesture
    ("touch_x", pa.float32()),
    ("lift_y", pa.float32()),
    ("lift_x", pa.float32()),
    ("text", pa.string()),
    ("element_boxes", pa.list_(pa.float32())),  # flat (y, x, height, width), fractions
    ("element_texts", pa.list_(pa.string())),
    ("element_kinds", pa.list_(pa.string())),
    ("device_type", pa.string()),
    ("activity", pa.string()),
    ("android_api_level", pa.int32()),
])  # fmt: skip
PLACED = pa.schema(
    [("split", pa.string()), ("t", pa.int32())]
)  # what the whole episode adds: t counts from 0
SCHEMA = pa.schema([*PLACED, *RECORDED], {b"huggingface": json.dumps(_FEATURES).encode()})

UNSEEN = np.empty((0, 0, 3), np.uint8)
_INDEX = ["split", "subset", "episode_id", "t"]  # enough to find every episode
_STEP = [
    "image", "action_type", "touch_y", "touch_x", "lift_y", "lift_x", "text", "element_boxes", "element_texts",
    "element_kinds",
]  # fmt: skip


def read_step(row: dict[str, Any]) -> Step:
    """The step of one row: its screen decoded, or empty where the row has none, its action from the exact floats."""
    elements = Annotations(row["element_boxes"], row["element_texts"], row["element_kinds"]).elements
    touch, lift = (row["touch_y"], row["touch_x"]), (row["lift_y"], row["lift_x"])
    action = from_aitw(row["action_type"], touch, lift, row["text"])
    pixels = decode_image(row["image"]["bytes"]) if "image" in row else UNSEEN
    return Step(Screen(pixels, elements), action)


def encode_image(pixels: NDArray[np.uint8], codec: str, quality: int = 90) -> bytes:
    """A screen as `jpeg` (of a quality from 1 to 100, full colour resolution) or `png` (without loss)."""
    match codec:
        case "jpeg":
            packed = simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), quality, colorsubsampling="444")
            return bytes(packed)
        case "png":
            file = io.BytesIO()
            Image.fromarray(pixels).save(file, "PNG", compress_level=1)
            return file.getvalue()
        case _:
            raise ValueError(f"unknown codec {codec!r}: screens are kept as jpeg or png")


def decode_image(data: bytes) -> NDArray[np.uint8]:
    """Pixels uint8 [H, W, 3] of an encoded screen."""
    if data.startswith(JPEG):
        return np.asarray(simplejpeg.decode_jpeg(data), np.uint8)
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"), np.uint8)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an episode lies: `num_rows` rows from `row` on in a shard."""

    shard: str  # file name
    row: int
    num_rows: int
    id: str
    subset: str
    split: str


@dataclass(frozen=True, slots=True)
class Episodes(Sequence[Episode]):
    """Episodes of prepared data, read one at a time when asked for. Holds no open file: safe to pickle and fork."""

    folder: Path
    places: tuple[Place, ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, index: int) -> Episode: ...
    @overload
    def __getitem__(self, index: slice) -> "Episodes": ...
    def __getitem__(self, index: int | slice) -> "Episode | Episodes":
        if isinstance(index, slice):
            return Episodes(self.folder, self.places[index])
        return self._read(self.places[index], _STEP)

    def unseen(self, index: int) -> Episode:
        """The episode without its screens, in a small part of the time."""
        return self._read(self.places[index], [name for name in _STEP if name != "image"])

    def _read(self, place: Place, columns: list[str]) -> Episode:
        rows = _rows(self.folder / place.shard, place.row, place.num_rows, columns)
        return Episode(place.id, rows[0]["goal"], place.subset, tuple(map(read_step, rows)))

    def encoded(self, index: int) -> list[bytes]:
        """The screens of an episode as they lie on disk, jpeg or png."""
        place = self.places[index]
        rows = _rows(self.folder / place.shard, place.row, place.num_rows, ["image"])
        return [row["image"]["bytes"] for row in rows]


@dataclass(frozen=True, slots=True)
class Prepared:
    """One folder of prepared data: what it says of itself, and where its episodes lie."""

    folder: Path
    meta: dict[str, Any]
    places: tuple[Place, ...] = field(repr=False)

    @staticmethod
    def open(folder: str | os.PathLike[str]) -> "Prepared":
        """Read `meta.json` and find the episodes; no screen is read. ValueError where it is no prepared data."""
        root = Path(folder)
        meta = read_meta(root)
        return Prepared(
            root, meta, tuple(place for shard in meta["shards"] for place in _places(root, shard))
        )

    def episodes(self, split: str, subset: str | None = None, limit: int | None = None) -> Episodes:
        """The episodes of a split (and subset), at most `limit`, in the order of the data."""
        if split not in self.meta["splits"]:
            known = ", ".join(self.meta["splits"])
            raise ValueError(f"the prepared data in {self.folder} has no split {split!r}: it has {known}")
        if subset is not None and subset not in self.meta["subsets"]:
            known = ", ".join(self.meta["subsets"])
            raise ValueError(f"the prepared data in {self.folder} has no subset {subset!r}: it has {known}")
        wanted = (p for p in self.places if p.split == split and subset in (None, p.subset))
        return Episodes(self.folder, tuple(wanted)[:limit])


def read_meta(folder: Path) -> dict[str, Any]:
    """`meta.json` of a folder of prepared data of this format and version, else ValueError."""
    make = "make one with `python -m data_prep SOURCE OUT`"
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder} of prepared data: {make}")
    try:
        meta = json.loads((folder / META).read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError(f"the folder {folder} has no {META}, so it is no prepared data: {make}") from None
    except ValueError as error:
        raise ValueError(f"{folder / META} is no JSON ({error}): prepare the data again") from None
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise ValueError(f"{folder / META} does not describe {FORMAT}: {make}")
    if meta.get("version") != VERSION:
        raise ValueError(
            f"the prepared data in {folder} has format version {meta.get('version')}, this program reads "
            f"{VERSION}: prepare the data again"
        )
    return meta


def _places(folder: Path, shard: dict[str, Any]) -> list[Place]:
    path = folder / str(shard["file"])
    if not path.is_file():
        raise ValueError(f"{path} is named in {META} but missing: prepare the data again")
    with _file(path) as file:
        columns = file.read(_INDEX).to_pydict()
    t = columns["t"]
    if len(t) != shard["steps"]:
        raise ValueError(
            f"{path} holds {len(t)} steps where {META} says {shard['steps']}: prepare the data again"
        )
    starts = [row for row, number in enumerate(t) if number == 0]
    ends = [*starts[1:], len(t)]
    ids, subsets, splits = columns["episode_id"], columns["subset"], columns["split"]
    return [
        Place(path.name, a, b - a, ids[a], subsets[a], splits[a]) for a, b in zip(starts, ends, strict=True)
    ]


def _rows(path: Path, first: int, num_rows: int, columns: list[str]) -> list[dict[str, Any]]:
    file = _open(path, os.getpid(), path.stat().st_mtime_ns)
    groups = range(first // ROW_GROUP, (first + num_rows - 1) // ROW_GROUP + 1)
    table = file.read_row_groups(groups, columns=[*columns, "goal"], use_threads=False)
    rows: list[dict[str, Any]] = table.slice(first - groups[0] * ROW_GROUP, num_rows).to_pylist()
    return rows


@lru_cache(maxsize=16)
def _open(path: Path, process: int, changed: int) -> pq.ParquetFile:
    """An open shard of this process: a forked child opens its own, and a replaced file is opened again."""
    return _file(path)


def _file(path: Path) -> pq.ParquetFile:
    """Read where it lies: Arrow's own way is to order all reads first, by threads; of many small row groups it takes longer."""
    try:
        return pq.ParquetFile(path, pre_buffer=False)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} is damaged ({error}): prepare the data again") from None
