"""The words of actions: typed text of any content round-trips, everything outside the language is refused."""

import json
import random

import pytest

from uivlm.actions.action import Action, InvalidAction, Point, Swipe, Tap, Type
from uivlm.actions.text import ActionText

TEXTS = [
    "", " ", '"', "\\", '\\"', '"; drop', "\n", "\r\n\t\b\f", "\x00\x1f\x7f", "\u2028\u2029\x85",
    "é 漢字 עברית", "🧑🏽‍🚀🇨🇭", "\ud800",
    "\udfff\ud800", "\ud83d\ude00", "a\udc80b", "\\ud83d\\ude00", "\\u0041", "\\n", "tap at 5 5", "complete",
    'Input text "x"', '" tap at 1 1 "', "press back\ncomplete", "x" * 10_000, '\\"\n😀' * 2_500,
    "\\" * 9_999, '"' * 10_000,
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text[:12]))
def test_typed_text_round_trips(text: str) -> None:
    words = ActionText().format(Type(text))
    assert ActionText().parse(words) == Type(text)
    assert "\n" not in words
    words.encode("utf-8")  # no lone surrogate is left
    if "\ud83d\ude00" not in text:
        assert json.loads(words.removeprefix("Input text ")) == text  # plain JSON, too


def test_random_text_round_trips() -> None:
    rng = random.Random(5)
    ranges = ((0, 0x7F), (0x22, 0x22), (0x5C, 0x5C), (0xD7F0, 0xE00F), (0, 0x10FFFF))
    for _ in range(3000):
        text = "".join(chr(rng.randint(*rng.choice(ranges))) for _ in range(rng.randrange(20)))
        assert ActionText().parse(ActionText().format(Type(text))) == Type(text)


REFUSED = [
    "", " ", "\n", "tap", "tap at", "tap at 5", "tap at 5 5 5", "tap at 5,5", "tap at 05 5", "tap at +5 5",
    "tap at -1 5",
    "tap at 5 100", "tap at 5.0 5", "tap at  5 5", "tap  at 5 5", " tap at 5 5", "tap at 5 5 ",
    "tap at 5 5\n", "Tap at 5 5",
    "tap at \uff15 5", "tap at \u0665 5", "tap at 5\t5", "tap at 5\u00a05", "tap at 1e1 5", "tap at 5_0 5",
    "tap at " + "9" * 10_000 + " 5",
    "swipe from 5 5 to 5", "swipe from 5 5 to 5 5", "swipe from 5 5 to 8 5", "swipe from 1 2 to 300 4",
    "swipe 1 2 to 30 4",
    "press", "press Back", "press menu", "press back ", "Complete", "complete.", "complete\n",
    "completecomplete", "impossible!",
    "Input text", 'Input text "', "Input text x", 'Input text "a', "Input text 'a'", 'Input text "a" ',
    'Input text "a"b"',
    'Input text "a\\"', 'Input text "\\q"', 'Input text "\\u0041"', 'Input text "\\u00E9"',
    'Input text "\\/"', 'Input text "a\nb"',
    'Input text "\\u000a"', 'Input text "\ud800"', 'Input text "\\uD800"', 'input text "a"',
    'Input text  "a"', "[" * 100_000,
    'Input text "a"\ntap at 5 5', "x" * 5_000_000, 'Input text "' + "\\" * 1_000_001 + '"', "\ud800",
    "None", "{}",
]  # fmt: skip


@pytest.mark.parametrize("words", REFUSED, ids=lambda words: ascii(words[:30]))
def test_anything_else_is_not_an_action(words: str) -> None:
    answer = ActionText().parse(words)
    assert isinstance(answer, InvalidAction)
    assert answer.text == words
    assert 5 < len(answer.reason) < 100


FIXED = ["press back", "press home", "press enter", "complete", "impossible"]
BITS = [
    "tap at ", "swipe from ", " to ", "Input text ", '"', "\\", "\\u", "d83d", "press ", "back",
    "complete", "5", "99", "100",
    " ", "  ", "-", "0", "\u0663", "\n", "\x00", "\ud800", "😀", "é", "9" * 30, "impossible", "{",
    "$(x)", ";",
]  # fmt: skip


def gesture(rng: random.Random) -> Action:
    start, end = Point(rng.random(), rng.random()), Point(rng.random(), rng.random())
    return Tap(start) if rng.random() < 0.3 else Swipe(start, end)


def test_a_hundred_thousand_hostile_strings() -> None:
    rng, language = random.Random(7), ActionText()
    valid = [language.format(gesture(rng)) for _ in range(300)] + FIXED
    valid += [language.format(Type(text[:50])) for text in TEXTS]
    seen = {"action": 0, "refused": 0}
    for i in range(100_000):
        if i % 2:
            words = "".join(rng.choices(BITS, k=rng.randrange(7)))
        else:
            good = rng.choice(valid)
            at, cut = rng.randrange(len(good) + 1), rng.randrange(3)
            words = good[:at] + rng.choice(BITS)[: rng.randrange(4)] + good[at + cut :]
        answer = language.parse(words)
        if isinstance(answer, InvalidAction):
            seen["refused"] += 1
            assert answer.text == words
        else:
            seen["action"] += 1
            assert language.format(answer) == words  # one action, one form
    assert min(seen.values()) > 5_000, seen
