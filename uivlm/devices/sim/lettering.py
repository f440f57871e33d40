"""The simulated phone's type: a word and the room it has in, its shape out. The same pixels on every machine: the typeface
is the one inside Pillow.

What was made once is kept: the phone has few words, and letters take longest of all that is drawn.
"""

from functools import lru_cache

from PIL import Image, ImageDraw, ImageFont

SMALLEST = 6  # pixels of type


@lru_cache(maxsize=64)
def _font(pixels: int) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(pixels)
    assert isinstance(font, ImageFont.FreeTypeFont), "Pillow was built without FreeType"
    return font


@lru_cache(maxsize=4096)
def fitted(word: str, pixels: int, room: float) -> tuple[str, int, float]:
    """The word, cut where it must be, the height of its type and its length, in pixels: at most `room` long, but one
    letter always stays."""
    length = _font(pixels).getlength(word)
    while length > room and pixels > SMALLEST:
        pixels = max(SMALLEST, min(pixels - 1, int(pixels * room / length)))
        length = _font(pixels).getlength(word)
    if length > room:
        kept = max(1, int(len(word) * room / length) - 1)
        while kept > 1 and _font(pixels).getlength(word[:kept] + "…") > room:
            kept -= 1
        word = word[:kept] + "…"
        length = _font(pixels).getlength(word)
    return word, pixels, length


@lru_cache(maxsize=4096)
def shape(word: str, pixels: int) -> tuple[Image.Image, int, int]:
    """A word as a mask, and where the corner of this lies from the middle of the word's left side, in pixels."""
    left, top, right, bottom = map(round, _font(pixels).getbbox(word, anchor="lm"))
    mask = Image.new("L", (max(1, right - left), max(1, bottom - top)))
    ImageDraw.Draw(mask).text((-left, -top), word, fill=255, font=_font(pixels), anchor="lm")
    return mask, left, top
