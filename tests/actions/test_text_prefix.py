"""Beginnings of phrases: exactly those of the language, each of which can be ended."""

from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uivlm.actions.action import Action, Finish, InvalidAction, Point, Press, Swipe, Tap, Type
from uivlm.actions.text import FIXED_PHRASES, ActionText
from uivlm.actions.text_prefix import complete_action, is_prefix

SMALL = ActionText(11)
PIECES = [
    "tap at ",
    "swipe from ",
    " to ",
    "Input text ",
    '"',
    "\\",
    "\\u",
    "00",
    "1f",
    "d8",
    "press ",
    "back",
    " ",
    "0",
    "9",
    "10",
]
PIECES += ["complete", "impossible", "\n", "é", "🙂", "\x7f", "\ud800", "tap", "99", "100", "05", "a"]


@pytest.fixture(scope="module")
def phrases() -> set[str]:
    """All phrases of the small language but those that type."""
    taps = {f"tap at {y} {x}" for y, x in product(range(11), repeat=2)}
    swipes = {f"swipe from {a} {b} to {c} {d}" for a, b, c, d in product(range(11), repeat=4)}
    return {
        one for one in taps | swipes | set(FIXED_PHRASES) if not isinstance(SMALL.parse(one), InvalidAction)
    }


@pytest.fixture(scope="module")
def beginnings(phrases: set[str]) -> set[str]:
    return {one[:i] for one in phrases for i in range(len(one) + 1)}


def test_beginnings_are_those_of_all_phrases(phrases: set[str], beginnings: set[str]) -> None:
    """Each of them, and each with one character more, less or another."""
    random = Random(0)
    assert all(is_prefix(one, SMALL) for one in beginnings)
    tried = 0
    for one in random.sample(sorted(beginnings), 3000):
        for letter in '0159 atfso"':
            for near in (one + letter, one[:-1] + letter, letter + one):
                if near.startswith("Input"[: len(near)]):
                    continue
                tried += 1
                assert is_prefix(near, SMALL) == (near in beginnings), near
    assert tried > 50_000


def test_each_is_ended_in_its_own_way(phrases: set[str], beginnings: set[str]) -> None:
    for one in Random(1).sample(sorted(beginnings), 4000):
        whole = complete_action(one, SMALL)
        assert whole.startswith(one)
        assert whole in phrases
        if one in phrases:
            assert whole == one


def test_a_short_swipe_is_no_phrase() -> None:
    """100 bins: 0.03 is a tap, 0.05 is none. "4" may still become "40", and "50" nothing."""
    language = ActionText()
    assert is_prefix("swipe from 50 50 to 50 5", language)
    assert not is_prefix("swipe from 50 50 to 50 52", language)
    assert is_prefix("swipe from 50 50 to 50 55", language)
    assert not is_prefix("swipe from 50 5 to 50 5 ", language)
    assert is_prefix("swipe from 50 5 to 50 5", language)
    assert complete_action("swipe from 50 5 to 50 5", language) == "swipe from 50 5 to 50 50"
    assert not is_prefix("tap at 05", language)
    assert not is_prefix("tap at 100", language)
    assert is_prefix("tap at 99 ", language)


def some_action(random: Random) -> Action:
    def point() -> Point:
        return Point(random.random(), random.random())

    letters = "".join(
        random.choice(
            ['"', "\\", "\n", "\x00", "\x1f", "\b", "a", " ", "é", "🙂", "\ud83d", "\udfff", "tap at 1 2"]
        )
        for _ in range(random.randrange(12))
    )
    return random.choice(
        [
            Tap(point()),
            Swipe(point(), point()),
            Type(letters),
            Press("back"),
            Press("home"),
            Press("enter"),
            Finish("complete"),
        ]
    )


@pytest.mark.parametrize("bins", [2, 10, 100, 1000])
def test_every_beginning_of_an_action_begins_one(bins: int) -> None:
    random, language = Random(bins), ActionText(bins)
    tried = 0
    while tried < 20_000:
        words = language.format(some_action(random))
        for i in range(len(words) + 1):
            tried += 1
            assert is_prefix(words[:i], language), words[:i]
            whole = complete_action(words[:i], language)
            assert whole.startswith(words[:i])
            assert not isinstance(language.parse(whole), InvalidAction), whole


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=2)), max_size=10))
def test_what_begins_an_action_can_be_ended(pieces: list[str]) -> None:
    """And what begins none is not a whole action, nor the beginning of one."""
    words, language = "".join(pieces), ActionText()
    if is_prefix(words, language):
        whole = complete_action(words, language)
        assert whole.startswith(words)
        assert not isinstance(language.parse(whole), InvalidAction)
        assert all(is_prefix(words[:i], language) for i in range(len(words)))
    else:
        assert isinstance(language.parse(words), InvalidAction)
        with pytest.raises(ValueError, match="no action begins with"):
            complete_action(words, language)


@pytest.mark.parametrize(
    ("body", "yes"),
    [
        ("", True), ("milk", True), ('milk"', True), ('milk" ', False), ("\\", True), ("\\n", True),
        ("\\x", False), ("\n", False),
        ("\\u", True), ("\\u0", True), ("\\u00", True), ("\\u000", True), ("\\u0008", False),
        ("\\u0007", True), ("\\u001F", False),
        ("\\u0041", False), ("\\ud", True), ("\\ud8", True), ("\\ud83d\\ude00", True), ("\\ue", False),
        ("\ud83d", False), ("🙂", True),
        ("\\/", False), ("\x7f", True),
    ],
)  # fmt: skip
def test_typed_texts(body: str, yes: bool) -> None:
    assert is_prefix(f'Input text "{body}', ActionText()) is yes
