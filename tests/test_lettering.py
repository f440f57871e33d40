"""Words kept as shapes: the pixels that Pillow draws by itself."""

from random import Random

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from uivlm.devices.sim import words
from uivlm.devices.sim.lettering import SMALLEST, fitted, shape


@pytest.mark.parametrize("word", ["Settings", "23:45", "jgpq", "'", "…", "Äpfel", "日本", "A" * 60, " "])
@pytest.mark.parametrize("pixels", [6, 11, 17, 40])
def test_drawn_as_text_would_be(word: str, pixels: int) -> None:
    ink, paper, at = (13, 130, 250), (250, 240, 10), (7, 31)
    ours, theirs = (Image.new("RGB", (400, 70), paper) for _ in range(2))
    mask, right, down = shape(word, pixels)
    ImageDraw.Draw(ours).bitmap((at[0] + right, at[1] + down), mask, fill=ink)
    ImageDraw.Draw(theirs).text(at, word, fill=ink, font=ImageFont.load_default(pixels), anchor="lm")
    assert np.array_equal(np.asarray(ours), np.asarray(theirs))
    assert word.strip() == "" or (np.asarray(ours) != paper).any()


def test_a_word_never_leaves_its_room() -> None:
    rng = Random(0)
    for word in [*rng.sample(words.lexicon(), 60), "W" * 200, "WWWWWWWW" + 12 * "i"]:
        for room in (12.0, 40.5, 70.4, 126.7):
            shown, pixels, length = fitted(word, 18, room)
            assert SMALLEST <= pixels <= 18
            assert length <= room or shown == word[0] + "…"
            assert length == ImageFont.load_default(pixels).getlength(shown)
            assert shown == word or (shown.endswith("…") and word.startswith(shown[:-1]))
