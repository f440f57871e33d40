"""Actions drawn on screens, for people: a ring for a tap, an arrow for a swipe, a caption for the rest.

In: pixels uint8 [H, W, 3] and an action. Out: a PIL image of the same size, or an image as a data URL.
"""

import base64
import io
import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from uivlm.actions.action import Action, Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.gesture import pixel

Pixels = tuple[int, int]  # (x, y)


def draw_action(pixels: NDArray[np.uint8], action: Action, colour: str) -> Image.Image:
    """The screen with the action drawn on it; `colour` is one of Pillow's names or "#rrggbb"."""
    image = Image.fromarray(np.ascontiguousarray(pixels)).convert("RGB")
    draw = ImageDraw.Draw(image)
    height, width = image.height, image.width
    thick = max(2, min(height, width) // 90)
    match action:
        case Tap(at) if _finite(at):
            _ring(draw, pixel(at, height, width), 5 * thick, thick, colour)
        case Swipe(start, end) if _finite(start) and _finite(end):
            _arrow(draw, pixel(start, height, width), pixel(end, height, width), thick, colour)
        case _:
            _bar(draw, caption(action), height, width, colour)
    return image


def caption(action: Action) -> str:
    """An action in a few words for people, with its exact coordinates to 3 places (y before x)."""
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
    """The image as a JPEG inside a URL, so that a page needs no other file."""
    packed = io.BytesIO()
    image.convert("RGB").save(packed, "JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(packed.getvalue()).decode("ascii")


def _finite(point: Point) -> bool:
    return math.isfinite(point.y) and math.isfinite(point.x)


def _ring(draw: ImageDraw.ImageDraw, at: Pixels, radius: int, thick: int, colour: str) -> None:
    x, y = at
    for r, ink, line in (
        (radius + 1, "white", thick + 2),
        (radius, colour, thick),
    ):  # white shows on any screen
        draw.ellipse((x - r, y - r, x + r, y + r), outline=ink, width=line)
    draw.ellipse((x - thick, y - thick, x + thick, y + thick), fill=colour, outline="white")


def _arrow(draw: ImageDraw.ImageDraw, start: Pixels, end: Pixels, thick: int, colour: str) -> None:
    (x0, y0), (x1, y1) = start, end
    angle = math.atan2(y1 - y0, x1 - x0)
    size = 4 * thick
    head = [(x1 - size * math.cos(angle + turn), y1 - size * math.sin(angle + turn)) for turn in (-0.5, 0.5)]
    for ink, line in (("white", thick + 2), (colour, thick)):
        draw.line((x0, y0, x1, y1), fill=ink, width=line)
        for corner in head:
            draw.line((*corner, x1, y1), fill=ink, width=line)
    draw.ellipse((x0 - thick, y0 - thick, x0 + thick, y0 + thick), fill=colour, outline="white")


def _bar(draw: ImageDraw.ImageDraw, text: str, height: int, width: int, colour: str) -> None:
    size = max(8, min(height, width) // 18)
    shown = text if len(text) <= 60 else f"{text[:59]}..."
    plain = (
        shown.encode("latin-1", "backslashreplace").decode("latin-1").replace("\n", "\\n")
    )  # the font is Latin
    draw.rectangle((0, height - 2 * size, width, height), fill="black")
    draw.text((size // 2, height - 1.7 * size), plain, fill=colour, font=ImageFont.load_default(size))
