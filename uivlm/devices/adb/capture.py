"""Screenshots of a phone behind adb: bytes in, screens out, by the method that is faster on this phone.

`screencap` sends the raw display: no compression, but ten times the bytes. `screencap -p` sends a PNG. The
faster method depends on phone and cable, so the first frame is captured with both. Android does not report a
failed capture, so the received bytes are checked to the last one.
"""

import struct
import time
from typing import Literal

import numpy as np
from PIL import Image

from uivlm.devices.adb.link import Link
from uivlm.devices.device import DeviceError
from uivlm.episodes.episode import Screen
from uivlm.episodes.images import open_image

CaptureMethod = Literal["raw", "png"]
SCREENCAP_COMMANDS: dict[CaptureMethod, tuple[str, ...]] = {"png": ("screencap", "-p"), "raw": ("screencap",)}
PNG_SIGNATURE, PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"
MAX_PRELUDE_BYTES = 1000  # phones with several displays print a warning before the PNG
RGBA_8888 = 1
RAW_HEADERS = (16, 12)  # bytes: since Android 9, before
MAX_SIDE_PIXELS = 20_000  # of a screen's width or height


class InvalidFrameError(ValueError):
    """The received bytes are not a complete screenshot."""


class ScreenCapture:
    """Captures the screen of one phone; `method` and `durations_ms` are set by the first frame."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.method: CaptureMethod | None = None
        self.durations_ms: dict[CaptureMethod, float] = {}  # of the first frame, by each method that works

    def frame(self) -> Screen:
        """Return the display. A bad frame is captured again, then by the other method. Raises DeviceError."""
        if self.method is None:
            return self._choose_method()
        other: CaptureMethod = "png" if self.method == "raw" else "raw"
        problem = ""
        for method in (self.method, self.method, other):
            try:
                frame = self._capture(method)
            except InvalidFrameError as error:
                problem = problem or str(error)
            else:
                self.method = method
                return frame
        raise DeviceError(self._error_message(problem))

    def _choose_method(self) -> Screen:
        problem = ""
        for _ in range(2):
            frames: dict[CaptureMethod, Screen] = {}
            for method in SCREENCAP_COMMANDS:
                start_time = time.perf_counter()
                try:
                    frames[method] = self._capture(method)
                except InvalidFrameError as error:
                    problem = str(error)
                else:
                    self.durations_ms[method] = (time.perf_counter() - start_time) * 1000
            if frames:
                faster = min(frames, key=self.durations_ms.__getitem__)
                self.method = faster
                return frames[faster]
        raise DeviceError(self._error_message(problem))

    def _capture(self, method: CaptureMethod) -> Screen:
        data = self.link.query_bytes(*SCREENCAP_COMMANDS[method])
        return decode_raw(data) if method == "raw" else decode_png(data)

    def _error_message(self, problem: str) -> str:
        return (
            f"phone {self.link.serial} did not send a complete screenshot: {problem}. Wake the phone and run "
            "`uivlm doctor`."
        )


def decode_png(data: bytes) -> Screen:
    """Decode a PNG, with or without text around it. The screen keeps the phone's own PNG bytes."""
    start = data.find(PNG_SIGNATURE, 0, MAX_PRELUDE_BYTES)
    png = data[start:].rstrip(b"\r\n")
    if start < 0 or not png.endswith(PNG_END):
        raise InvalidFrameError(f"{len(data)} bytes are not a complete PNG ({_preview(data)})")
    try:
        pixels = np.array(open_image(png, ("PNG",)).convert("RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InvalidFrameError(f"the PNG is damaged: {error}") from error
    return Screen(pixels, _png=png)


def decode_raw(data: bytes) -> Screen:
    """Decode a header (width, height, pixel format and, since Android 9, color space) and unpadded rows."""
    if len(data) < max(RAW_HEADERS):
        raise InvalidFrameError(f"{len(data)} bytes are not a raw screen ({_preview(data)})")
    width, height, pixel_format = struct.unpack_from("<III", data)
    if not (0 < width <= MAX_SIDE_PIXELS and 0 < height <= MAX_SIDE_PIXELS and pixel_format == RGBA_8888):
        raise InvalidFrameError(f"the data is not a raw screen of RGBA pixels ({_preview(data)})")
    header = len(data) - 4 * width * height
    if header not in RAW_HEADERS:
        raise InvalidFrameError(f"{len(data)} bytes do not fit a raw screen of {width} x {height} pixels")
    rgba = np.frombuffer(data, np.uint8, offset=header).reshape(height, width, 4)
    return Screen(np.ascontiguousarray(rgba[..., :3]))


def _preview(data: bytes) -> str:
    return f"they start with {data[:60]!r}" if data else "nothing was received"
