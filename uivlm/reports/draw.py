"""Draws actions on screens: a ring for a tap, an arrow for a swipe, a caption for the rest.

In: pixels uint8 [H, W, 3] and an action. Out: a PIL image of the same size, or an image as a data URL.
"""

import base64
import io
import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from uivlm.actions.action import Action, Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.gesture import to_pixel

PixelXY = tuple[int, int]  # (x, y)


def draw_action(pixels: NDArray[np.uint8], action: Action, color: str) -> Image.Image:
    """The screen with the action drawn on it. `color` is one of Pillow's names or "#rrggbb"."""
    image = Image.fromarray(np.ascontiguousarray(pixels)).convert("RGB")
    draw = ImageDraw.Draw(image)
    height, width = image.height, image.width
    thickness = max(2, min(height, width) // 90)
    match action:
        case Tap(at) if _is_finite(at):
            _ring(draw, to_pixel(at, height, width), 5 * thickness, thickness, color)
        case Swipe(start, end) if _is_finite(start) and _is_finite(end):
            _arrow(draw, to_pixel(start, height, width), to_pixel(end, height, width), thickness, color)
        case _:
            _caption_bar(draw, caption(action), height, width, color)
    return image


def caption(action: Action) -> str:
    """A short description of the action, with coordinates to 3 decimals (y before x)."""
    match action:
        case Tap(at):
            return f"tap at {at.y:.3f} {at.x:.3f}"
        case Swipe(start, end):
            return f"swipe from {start.y:.3f} {start.x:.3f} to {end.y:.3f} {end.x:.3f}"
        case Type(text):
            return f'type "{text}"'
        case Press(key):
            return f"press {key}"
        case Finish(status):
            return status
        case _:
            return repr(action)


def data_url(image: Image.Image) -> str:
    """The image as a JPEG data URL, so that a page needs no other file."""
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _is_finite(point: Point) -> bool:
    return math.isfinite(point.y) and math.isfinite(point.x)


def _ring(draw: ImageDraw.ImageDraw, at: PixelXY, radius: int, thickness: int, color: str) -> None:
    x, y = at
    # A white outline keeps the ring visible on any screen.
    for r, stroke, line in ((radius + 1, "white", thickness + 2), (radius, color, thickness)):
        draw.ellipse((x - r, y - r, x + r, y + r), outline=stroke, width=line)
    draw.ellipse((x - thickness, y - thickness, x + thickness, y + thickness), fill=color, outline="white")


def _arrow(draw: ImageDraw.ImageDraw, start: PixelXY, end: PixelXY, thickness: int, color: str) -> None:
    (x0, y0), (x1, y1) = start, end
    angle = math.atan2(y1 - y0, x1 - x0)
    size = 4 * thickness
    head = [(x1 - size * math.cos(angle + turn), y1 - size * math.sin(angle + turn)) for turn in (-0.5, 0.5)]
    for stroke, line in (("white", thickness + 2), (color, thickness)):
        draw.line((x0, y0, x1, y1), fill=stroke, width=line)
        for corner in head:
            draw.line((*corner, x1, y1), fill=stroke, width=line)
    start_dot = (x0 - thickness, y0 - thickness, x0 + thickness, y0 + thickness)
    draw.ellipse(start_dot, fill=color, outline="white")


def _caption_bar(draw: ImageDraw.ImageDraw, text: str, height: int, width: int, color: str) -> None:
    size = max(8, min(height, width) // 18)
    short = text if len(text) <= 60 else f"{text[:59]}..."
    latin = short.encode("latin-1", "backslashreplace").decode("latin-1")  # the font has no other letters
    line = latin.replace("\n", "\\n")
    draw.rectangle((0, height - 2 * size, width, height), fill="black")
    draw.text((size // 2, height - 1.7 * size), line, fill=color, font=ImageFont.load_default(size))
