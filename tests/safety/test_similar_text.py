"""A secret is recognized however an app writes it, in texts and on screens."""

import re

import numpy as np
import pytest

from tests.helpers.guarded_run import Phone
from uivlm.episodes.episode import Element
from uivlm.safety.redaction import COVER_GRAY, cover_secrets
from uivlm.safety.secrets import Secrets

VALUES = {
    "card": "4111111111111111",
    "word": "p@ss Word9",
    "short": "12",
    "long": "1234",
    "name": "Zürich-Geheim",
    "token": "Xy7-abcdefghij-klmnopqrst-uvwxyz",
    "dashes": "--",
    "odd": 'a"b\\c%41',
}
SECRETS = Secrets(VALUES, {}, (re.compile(r"\b\d{3} \d{3}\b"),))
SPELLINGS = [
    ("4111 1111 1111 1111", "{secret:card}"),
    ("4111-1111\u20131111\u00a01111", "{secret:card}"),
    ("P@SS WORD9", "{secret:word}"),
    ("?q=p%40ss%20word9&x", "?q={secret:word}&x"),
    ("?q=p%40ss+word9", "?q={secret:word}"),
    ("p@ss\u00a0word9, p@ss  word9", "{secret:word}, {secret:word}"),
    ("\uff50@\uff53\uff53 w\u200bo\u00adrd9", "{secret:word}"),
    ("Zu\u0308rich geheim", "{secret:name}"),
    ("z%C3%BCrich", "z%C3%BCrich"),
    ("1234 and 12", "{secret:long} and {secret:short}"),
    ("1212", "{secret:short}{secret:short}"),
    ("50%ab12", "50%ab{secret:short}"),
    ("Xy7-abcdefghij-kl...", "{secret:token}..."),
    ("...klmnopqrst-uvwx", "...{secret:token}"),
    ("Xy7-abcdef", "Xy7-abcdef"),
    ("a--b", "a{secret:dashes}b"),
    (r"Input text \"a\\\"b\\\\c%41\"", r"Input text \"{secret:odd}\""),
    ("call 555 555", "call [redacted]"),
    ("{secret:card}{secret:card} [redacted]", "{secret:card}{secret:card} [redacted]"),
    ("{secret:12}", "{secret:{secret:short}}"),
    ("nothing", "nothing"),
]


@pytest.mark.parametrize(("text", "masked"), SPELLINGS)
def test_every_spelling_is_masked(text: str, masked: str) -> None:
    assert SECRETS.mask(text) == masked
    assert SECRETS.mask(masked) == masked


@pytest.mark.parametrize(("text", "masked"), SPELLINGS)
def test_every_spelling_is_covered_on_the_screen(text: str, masked: str) -> None:
    screen = Phone().screen()
    shown = cover_secrets(screen, [Element(0.5, 0.2, 0.1, 0.6, text)], SECRETS)
    expected = screen.pixels.copy()
    if masked != text:
        expected[100:120, 20:80] = COVER_GRAY
    assert (shown.pixels == expected).all()


def test_a_value_in_several_elements_is_covered() -> None:
    screen = Phone().screen()
    groups = [
        Element(0.5, 0.2 * i, 0.1, 0.2, text) for i, text in enumerate(("Card", "4111", "1111", "11111111"))
    ]
    pixels = cover_secrets(screen, groups, SECRETS).pixels
    assert (pixels[100:120, 20:80] == COVER_GRAY).all()
    assert (pixels[100:120, :20] == screen.pixels[100:120, :20]).all()
    assert np.array_equal(pixels[:100], screen.pixels[:100])
