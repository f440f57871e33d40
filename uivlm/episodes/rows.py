"""One recorded step as one row of Parquet: the schema, its encoder, its decoder and the codec of screens.

A row keeps AITW's exact floats: they decide training and evaluation. The column `action_text` is for
people and for the hub's viewer. Training never reads it, because each recipe renders actions with its own
number of bins.
"""

import io
import json
import struct
import zlib
from dataclasses import asdict, fields
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

from uivlm.actions.aitw import AitwFields, from_aitw
from uivlm.episodes.episode import NO_NOTES, Annotations, Screen, Step, StepNotes
from uivlm.episodes.images import check_num_pixels, open_image

FORMAT = "uivlm prepared data"
VERSION = 3
READABLE_VERSIONS = (2, 3)  # 2 has no notes
ROW_GROUP_SIZE = 16  # rows; large groups make random reads many times slower
JPEG_MAGIC = b"\xff\xd8"
DECODING_ERRORS = (  # of simplejpeg and Pillow
    ValueError, OSError, SyntaxError, EOFError, struct.error, zlib.error, Image.DecompressionBombError,
)  # fmt: skip

ImageFormat = Literal["jpeg", "png"]

_IMAGE_TYPE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])  # the `datasets` Image feature
_FEATURES = {"info": {"features": {"image": {"_type": "Image"}}}}

STEP_COLUMNS = pa.schema([  # known from one recorded step alone
    ("subset", pa.string()),
    ("episode_id", pa.string()),
    ("step_id", pa.int64()),  # as recorded; differs from `t` where recorded steps are missing
    ("episode_length", pa.int64()),  # number of steps, as recorded
    ("goal", pa.string()),
    ("image", _IMAGE_TYPE),
    ("height", pa.int32()),  # pixels
    ("width", pa.int32()),
    ("action_text", pa.string()),  # with the number of bins in meta.json
    ("action_type", pa.int32()),  # AITW's enum
    ("touch_y", pa.float32()),  # fractions of the screen; -1 without a gesture
    ("touch_x", pa.float32()),
    ("lift_y", pa.float32()),
    ("lift_x", pa.float32()),
    ("text", pa.string()),  # typed text
    ("element_boxes", pa.list_(pa.float32())),  # flat (y, x, height, width), fractions
    ("element_texts", pa.list_(pa.string())),
    ("element_ui_types", pa.list_(pa.string())),
    ("screen_description", pa.string()),  # the annotators' notes; null where the data has none
    ("thought", pa.string()),
    ("instruction", pa.string()),
    ("result", pa.string()),
    ("device_type", pa.string()),
    ("activity", pa.string()),
    ("android_api_level", pa.int32()),
])  # fmt: skip
EPISODE_COLUMNS = pa.schema(
    [("split", pa.string()), ("t", pa.int32())]
)  # of the whole episode: t counts from 0
SCHEMA = pa.schema([*EPISODE_COLUMNS, *STEP_COLUMNS], {b"huggingface": json.dumps(_FEATURES).encode()})

NOTE_COLUMNS = tuple(field.name for field in fields(StepNotes))
ELEMENT_COLUMNS = ("element_boxes", "element_texts", "element_ui_types")
DECODED_COLUMNS = (
    "image", "height", "width", "action_type", "touch_y", "touch_x", "lift_y", "lift_x", "text",
    *ELEMENT_COLUMNS, *NOTE_COLUMNS,
)  # fmt: skip


class DamagedScreenError(ValueError):
    """An encoded screen that cannot be decoded."""


def to_row(
    aitw: AitwFields,
    action_text: str,
    pixels: NDArray[np.uint8],
    annotations: Annotations,
    image_format: ImageFormat = "jpeg",
    jpeg_quality: int = 90,
    notes: StepNotes = NO_NOTES,
) -> dict[str, Any]:
    """The columns of a step's screen and action. `from_row` returns the step again."""
    action_type, touch, lift, text = aitw
    image = encode_image(pixels, image_format, jpeg_quality)
    return {
        "image": {"bytes": image, "path": None},
        "height": pixels.shape[0],
        "width": pixels.shape[1],
        "action_text": action_text,
        "action_type": action_type,
        "touch_y": touch[0],
        "touch_x": touch[1],
        "lift_y": lift[0],
        "lift_x": lift[1],
        "text": text,
        "element_boxes": annotations.boxes,
        "element_texts": annotations.texts,
        "element_ui_types": annotations.ui_types,
        **asdict(notes),
    }


def from_row(row: dict[str, Any]) -> Step:
    """The step of a row: its action from the exact floats, its screen decoded.

    Without an image the screen is black and of the recorded size; it takes no memory. Without the columns of
    elements it has none.
    """
    annotations = Annotations(*(row.get(name, []) for name in ELEMENT_COLUMNS))
    touch, lift = (row["touch_y"], row["touch_x"]), (row["lift_y"], row["lift_x"])
    action = from_aitw(row["action_type"], touch, lift, row["text"])
    if "image" in row:
        pixels = decode_image((row["image"] or {}).get("bytes"))
    else:
        pixels = np.broadcast_to(np.uint8(0), (row["height"], row["width"], 3))
    notes = StepNotes(*(row.get(name) for name in NOTE_COLUMNS))
    return Step(Screen(pixels, annotations.elements), action, notes)


def encode_image(pixels: NDArray[np.uint8], image_format: ImageFormat, jpeg_quality: int = 90) -> bytes:
    """A screen as `jpeg` (quality 1 to 100, full color resolution) or `png` (lossless)."""
    match image_format:
        case "jpeg":
            encoded = simplejpeg.encode_jpeg(
                np.ascontiguousarray(pixels), jpeg_quality, colorsubsampling="444"
            )
            return bytes(encoded)
        case "png":
            file = io.BytesIO()
            Image.fromarray(pixels).save(file, "PNG", compress_level=1)
            return file.getvalue()
        case _:
            raise ValueError(f"image_format: got {image_format!r}; expected jpeg or png")


def decode_image(data: bytes | None) -> NDArray[np.uint8]:
    """Pixels uint8 [H, W, 3] of an encoded screen. Raises DamagedScreenError."""
    if data is None:
        raise DamagedScreenError("the image is null")
    try:
        if data.startswith(JPEG_MAGIC):
            height, width, *_ = simplejpeg.decode_jpeg_header(data)
            check_num_pixels(width, height)
            return np.asarray(simplejpeg.decode_jpeg(data), np.uint8)
        with open_image(data) as image:
            return np.asarray(image.convert("RGB"), np.uint8)
    except DECODING_ERRORS as error:
        raise DamagedScreenError(f"{type(error).__name__}: {error}") from error
