"""Screenshots of a phone behind adb: bytes in, pixels out, by the way that is the faster one on this phone.

`screencap` sends the raw display: nothing to compress, but ten times the bytes. `screencap -p` sends a PNG. Which is
faster depends on phone and cable, so the first frame is taken both ways. Android says nothing of a failure here: what
came is checked to the last byte.
"""

import io
import struct
import time
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from uivlm.devices.adb_link import Link
from uivlm.devices.device import DeviceError

Way = Literal["raw", "png"]
COMMANDS: dict[Way, tuple[str, ...]] = {"png": ("screencap", "-p"), "raw": ("screencap",)}
PNG_SIGNATURE, PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"
PRELUDE = 1000  # bytes that a phone with several displays may say before its PNG
RGBA_8888 = 1
RAW_HEADERS = (16, 12)  # bytes: since Android 9, before
MOST_PIXELS = 20_000  # of a side


class BadFrameError(ValueError):
    """What came is no whole screenshot."""


class Camera:
    """Takes the screenshots of one phone; `way` and `ms` say how, once the first one was taken."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.way: Way | None = None
        self.ms: dict[Way, float] = {}  # what the first frame took, by each way that works

    def frame(self) -> NDArray[np.uint8]:
        """The display, uint8 [H, W, 3] RGB. A bad frame is taken again, then the other way. Raises DeviceError."""
        if self.way is None:
            return self._first()
        other: Way = "png" if self.way == "raw" else "raw"
        wrong = ""
        for way in (self.way, self.way, other):
            try:
                frame = self._take(way)
            except BadFrameError as error:
                wrong = wrong or str(error)
            else:
                self.way = way
                return frame
        raise DeviceError(self._sorry(wrong))

    def _first(self) -> NDArray[np.uint8]:
        wrong = ""
        for _ in range(2):
            frames: dict[Way, NDArray[np.uint8]] = {}
            for way in COMMANDS:
                began = time.perf_counter()
                try:
                    frames[way] = self._take(way)
                except BadFrameError as error:
                    wrong = str(error)
                else:
                    self.ms[way] = (time.perf_counter() - began) * 1000
            if frames:
                faster = min(frames, key=self.ms.__getitem__)
                self.way = faster
                return frames[faster]
        raise DeviceError(self._sorry(wrong))

    def _take(self, way: Way) -> NDArray[np.uint8]:
        data = self.link.ask_bytes(*COMMANDS[way])
        return from_raw(data) if way == "raw" else from_png(data)

    def _sorry(self, wrong: str) -> str:
        return f"phone {self.link.serial} sent no whole screenshot: {wrong}; is it awake, and does `uivlm doctor` see it?"


def from_png(data: bytes) -> NDArray[np.uint8]:
    start = data.find(PNG_SIGNATURE, 0, PRELUDE)
    if start < 0 or not data.rstrip(b"\r\n").endswith(PNG_END):
        raise BadFrameError(f"{len(data)} bytes are no whole PNG ({_beginning(data)})")
    try:
        return np.array(Image.open(io.BytesIO(data[start:]), formats=["PNG"]).convert("RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise BadFrameError(f"a damaged PNG: {error}") from error


def from_raw(data: bytes) -> NDArray[np.uint8]:
    """Header of width, height, pixel format and, since Android 9, colour space; then rows without padding."""
    if len(data) < max(RAW_HEADERS):
        raise BadFrameError(f"{len(data)} bytes are no raw screen ({_beginning(data)})")
    width, height, kind = struct.unpack_from("<III", data)
    if not (0 < width <= MOST_PIXELS and 0 < height <= MOST_PIXELS and kind == RGBA_8888):
        raise BadFrameError(f"no raw screen of RGBA pixels ({_beginning(data)})")
    header = len(data) - 4 * width * height
    if header not in RAW_HEADERS:
        raise BadFrameError(f"{len(data)} bytes are not those of a raw screen of {width} x {height} pixels")
    rgba = np.frombuffer(data, np.uint8, offset=header).reshape(height, width, 4)
    return np.ascontiguousarray(rgba[..., :3])


def _beginning(data: bytes) -> str:
    return f"they begin {data[:60]!r}" if data else "nothing came"
