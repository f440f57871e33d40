"""Cached masks of words: a word and its maximum width in, its pixels out.

The font is Pillow's built-in one, so the pixels are equal on all machines. The phone draws few words, and
text is the slowest part of drawing.
"""

from functools import lru_cache

from PIL import Image, ImageDraw, ImageFont

MIN_FONT_PIXELS = 6


@lru_cache(maxsize=64)
def _font(pixels: int) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(pixels)
    assert isinstance(font, ImageFont.FreeTypeFont), "Pillow was built without FreeType"
    return font


@lru_cache(maxsize=4096)
def fit_word(word: str, pixels: int, max_width: float) -> tuple[str, int, float]:
    """Fit a word into `max_width` pixels by a smaller font, then by cutting it; one letter always stays.

    Returns the word, its font size and its length in pixels.
    """
    length = _font(pixels).getlength(word)
    while length > max_width and pixels > MIN_FONT_PIXELS:
        pixels = max(MIN_FONT_PIXELS, min(pixels - 1, int(pixels * max_width / length)))
        length = _font(pixels).getlength(word)
    if length > max_width:
        num_chars = max(1, int(len(word) * max_width / length) - 1)
        while num_chars > 1 and _font(pixels).getlength(word[:num_chars] + "…") > max_width:
            num_chars -= 1
        word = word[:num_chars] + "…"
        length = _font(pixels).getlength(word)
    return word, pixels, length


@lru_cache(maxsize=4096)
def word_mask(word: str, pixels: int) -> tuple[Image.Image, int, int]:
    """Return a word's mask and its corner's offset from the middle of the word's left side, in pixels."""
    left, top, right, bottom = map(round, _font(pixels).getbbox(word, anchor="lm"))
    mask = Image.new("L", (max(1, right - left), max(1, bottom - top)))
    ImageDraw.Draw(mask).text((-left, -top), word, fill=255, font=_font(pixels), anchor="lm")
    return mask, left, top
