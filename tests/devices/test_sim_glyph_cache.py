"""Cached word masks have the pixels that Pillow draws."""

from random import Random

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from uivlm.devices.sim import labels
from uivlm.devices.sim.glyph_cache import MIN_FONT_PIXELS, fit_word, word_mask


@pytest.mark.parametrize("word", ["Settings", "23:45", "jgpq", "'", "…", "Äpfel", "日本", "A" * 60, " "])
@pytest.mark.parametrize("pixels", [6, 11, 17, 40])
def test_a_mask_is_drawn_as_pillow_draws_text(word: str, pixels: int) -> None:
    ink, paper, at = (13, 130, 250), (250, 240, 10), (7, 31)
    ours, theirs = (Image.new("RGB", (400, 70), paper) for _ in range(2))
    mask, right, down = word_mask(word, pixels)
    ImageDraw.Draw(ours).bitmap((at[0] + right, at[1] + down), mask, fill=ink)
    ImageDraw.Draw(theirs).text(at, word, fill=ink, font=ImageFont.load_default(pixels), anchor="lm")
    assert np.array_equal(np.asarray(ours), np.asarray(theirs))
    assert word.strip() == "" or (np.asarray(ours) != paper).any()


def test_a_word_fits_its_width() -> None:
    rng = Random(0)
    for word in [*rng.sample(labels.lexicon(), 60), "W" * 200, "WWWWWWWW" + 12 * "i"]:
        for max_width in (12.0, 40.5, 70.4, 126.7):
            shown, pixels, length = fit_word(word, 18, max_width)
            assert MIN_FONT_PIXELS <= pixels <= 18
            assert length <= max_width or shown == word[0] + "…"
            assert length == ImageFont.load_default(pixels).getlength(shown)
            assert shown == word or (shown.endswith("…") and word.startswith(shown[:-1]))
