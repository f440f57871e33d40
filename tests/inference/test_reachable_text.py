"""Constrained decoding can write every action that the project writes, with the tokens of each kind of
tokenizer, and nothing else.
"""

from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from tests.helpers.readers import READERS, Reader, few_merges, qwen, tiny
from uivlm.actions.action import Action, InvalidAction, Point, Swipe, Tap, Type
from uivlm.actions.text import FIXED_PHRASES, ActionText
from uivlm.actions.text_automaton import Opening, State, TextAutomaton
from uivlm.actions.text_prefix import is_prefix
from uivlm.episodes.encode import Processor
from uivlm.inference.constrained import ActionConstraint, best_tokens
from uivlm.models.vocabulary import vocabulary

LANGUAGE = ActionText(100)


@cache
def constraint(kind: Reader) -> tuple[Processor, ActionConstraint, int]:
    reader, size = kind(Path(mkdtemp()))
    return reader, ActionConstraint(reader, LANGUAGE), size


def allowed(speech: ActionConstraint, said: list[int]) -> list[int]:
    return np.frombuffer(speech._allowed_tokens(said), np.int32).tolist()


def assert_reachable(kind: Reader, action: Action) -> None:
    reader, speech, _ = constraint(kind)
    ids = [*reader.encode(LANGUAGE.format(action)), reader.eos_id]
    for i, token in enumerate(ids):
        assert token in allowed(speech, ids[:i]), (LANGUAGE.format(action), reader.decode(ids[:i]), token)


@pytest.mark.slow
@pytest.mark.parametrize("kind", READERS)
@settings(max_examples=40, deadline=None)
@given(text=st.text(max_size=12))
@example(text="\U0001fae0")  # three tokens of Qwen's: after the second it still decodes to one U+FFFD
@example(text="zzz")  # the tiny base's first piece is a space that decoding drops
@example(text=' (x) \ud83d\x00\n"\\ \u65b0\u95fb')
def test_every_typed_text_is_reachable(kind: Reader, text: str) -> None:
    assert_reachable(kind, Type(text))


@pytest.mark.parametrize("kind", READERS)
def test_every_other_action_is_reachable(kind: Reader) -> None:
    random = Random(0)
    points = [Point(random.random(), random.random()) for _ in range(60)]
    for action in FIXED_PHRASES.values():
        assert_reachable(kind, action)
    for start, end in zip(points, points[1:], strict=False):
        assert_reachable(kind, Tap(start))
        assert_reachable(kind, Swipe(start, end))


def complete_characters(text: bytes) -> str | None:
    """The text without a character that is not finished; None if it is not UTF-8."""
    for missing in range(4):
        try:
            return text[: len(text) - missing].decode()
        except UnicodeDecodeError as error:
            if error.reason != "unexpected end of data" and missing == 0:
                return None
    return None


@pytest.mark.parametrize("kind", READERS)
def test_every_allowed_token_keeps_a_prefix_of_an_action(kind: Reader) -> None:
    """Judged by the rules on text, over random walks that prefer rare tokens of typed text."""
    reader, speech, _ = constraint(kind)
    bytes_of, random, ends = reader.vocabulary().token_bytes, Random(1), 0
    odd = {token for token, added in enumerate(bytes_of) if b"\\" in added or not added.isascii()}
    for _ in range(150):
        said: list[int] = []
        while len(said) < 12:
            may = allowed(speech, said)
            rare = [token for token in may if token in odd] if random.random() < 0.5 else []
            said.append(random.choice(rare or may))
            if said[-1] == reader.eos_id:
                ends += 1
                assert not isinstance(LANGUAGE.parse(reader.decode(said[:-1])), InvalidAction)
                break
            raw = complete_characters(b"".join(bytes_of[token] for token in said))
            assert raw is not None, said
            assert is_prefix(raw.removeprefix(" "), LANGUAGE), raw
            if raw.encode() == b"".join(bytes_of[token] for token in said):
                assert is_prefix(reader.decode(said), LANGUAGE), said
    assert ends


@pytest.mark.parametrize("kind", READERS)
def test_a_typed_text_is_closed_after_its_last_whole_character(kind: Reader) -> None:
    reader, speech, _ = constraint(kind)
    for text in ("a\U0001fae0", "b\u65b0", "c\ud83d"):
        ids = reader.encode(LANGUAGE.format(Type(text)))
        for end in range(len(ids)):
            closed = speech.closed_text(ids[:end])
            if closed is not None:
                action = LANGUAGE.parse(closed)
                assert isinstance(action, Type)
                assert "\ufffd" not in action.text
    assert speech.closed_text(reader.encode("tap at 1")) is None


@pytest.mark.slow
def test_a_language_of_few_bins_is_accepted_whole_and_nothing_else() -> None:
    """By brute force over all texts of the automaton outside typed text."""
    for num_bins in (2, 11, 26):
        language = ActionText(num_bins)
        automaton = TextAutomaton(language)
        found: set[str] = set()

        def explore(state: State, text: str, automaton: Any = automaton, found: set[str] = found) -> None:
            if automaton.is_complete(state):
                found.add(text)
            if text.startswith(("Input", "swipe from 1")):
                return
            for byte, after in automaton.next_states(state).items():
                explore(after, text + chr(byte), automaton, found)

        explore(Opening(), "")
        bins = range(num_bins)
        expected = {*FIXED_PHRASES, *(f"tap at {y} {x}" for y, x in product(bins, repeat=2))}
        starts = [y for y in bins if str(y)[0] != "1"][:3]
        swipes = (f"swipe from {y} {x} to {a} {b}" for y, x, a, b in product(starts, bins, bins, bins))
        expected |= {one for one in swipes if not isinstance(language.parse(one), InvalidAction)}
        starting = tuple(f"swipe from {y} " for y in starts)
        assert {one for one in found if not one.startswith("swipe") or one.startswith(starting)} == expected


def test_one_byte_that_may_follow_is_followed_by_its_own_text() -> None:
    """Typed text: each byte against the JSON writer, for every prefix of some texts."""
    automaton = TextAutomaton(LANGUAGE)
    for text in ("a\x00", "\x1f\n", "\ud83d\udfff", '"\\', "\x7f\u07ff\ud7ff\ue000\U0010ffff"):
        state: State = Opening()
        whole = LANGUAGE.format(Type(text))
        for i, byte in enumerate(whole.encode("utf-8", "surrogatepass")):
            plain = whole.encode("utf-8", "surrogatepass")[:i]
            if all(other < 128 for other in plain):
                prefix = plain.decode()
                ascii_bytes = {other for other in range(128) if is_prefix(prefix + chr(other), LANGUAGE)}
                assert {other for other in automaton.next_states(state) if other < 128} == ascii_bytes
            state = automaton.next_states(state)[byte]
        assert automaton.is_complete(state)
        assert not automaton.next_states(state)


def test_bytes_that_are_not_utf_8_may_not_follow() -> None:
    automaton = TextAutomaton(LANGUAGE)

    def accepts(text: bytes) -> bool:
        state: State = Opening()
        for byte in b'Input text "' + text + b'"':
            following = automaton.next_states(state)
            if byte not in following:
                return False
            state = following[byte]
        return automaton.is_complete(state)

    random, lengths = Random(2), [1, 2, 3, 4] * 4000
    tried = [bytes(random.choice(range(0x7F, 0x100)) for _ in range(length)) for length in lengths]
    tried += [chr(c).encode("utf-8", "surrogatepass") for c in range(0x80, 0x110000, 97)]
    tried += [b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80"]
    for text in tried:
        try:
            text.decode()
            expected = True
        except UnicodeDecodeError:
            expected = False
        assert accepts(text) is expected, text


def test_a_decoder_that_joins_words_is_refused() -> None:
    made = Tokenizer(models.WordPiece({"a": 0}, unk_token="a"))
    made.decoder = decoders.WordPiece()
    with pytest.raises(ValueError, match="WordPiece; expected a byte-level"):
        vocabulary(made, lambda token: True)


@pytest.mark.parametrize("kind", [tiny, few_merges, qwen])
def test_the_best_tokens_of_a_batch_are_those_of_each_row(kind: Reader) -> None:
    reader, speech, size = constraint(kind)
    probs = torch.rand(4, size, generator=torch.Generator().manual_seed(3))
    prefixes = [reader.encode(text) for text in ("", "tap at 1", 'Input text "a', "swipe from 50 50 to 50 5")]
    masks = [speech.forbidden_tokens(said, row) for said, row in zip(prefixes, probs, strict=True)]
    best = best_tokens(probs, masks).tolist()
    for token, said, row in zip(best, prefixes, probs, strict=True):
        assert token == max(allowed(speech, said), key=lambda one, row=row: float(row[one]))
