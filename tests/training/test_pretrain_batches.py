"""Lessons of the pre-training as arrays: token ids, labels, and the words on each patch."""

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers.pretraining_lessons import some_lessons
from uivlm.actions.text import ActionText
from uivlm.episodes.encode import IGNORE, encode
from uivlm.episodes.sentence import ScreenPiece, TextPiece
from uivlm.models.bridge.processor import BridgeProcessor
from uivlm.training.tiny_base import batches
from uivlm.training.tiny_base.screen_index import Ask, ExpertAction, ScreenIndex, Show
from uivlm.training.tiny_base.vocabulary import CUE_GROUPS, RELATED_ITEMS, vocabulary


def test_arrays_say_what_encode_says(
    shelf: ScreenIndex, names: list[NDArray[np.int64]], reader: BridgeProcessor
) -> None:
    say = ActionText(batches.NUM_BINS).format
    for given in some_lessons(shelf, 20):
        pieces: list[TextPiece | ScreenPiece] = []
        for piece in given:
            match piece:
                case Ask(text):
                    pieces.append(TextPiece(f"{text}\n"))
                case Show(page):
                    pieces += (ScreenPiece(shelf.pages[page].screen), TextPiece("\n"))
                case ExpertAction(action):
                    pieces.append(TextPiece(say(action), trained=True, action=action))
        wanted = encode(tuple(pieces), reader, with_pixels=False)
        got = batches.encode_lesson(given, names, reader)
        assert (got.input_ids == wanted.input_ids).all()
        assert (got.labels == wanted.labels).all()


def test_plain_words_are_one_token_and_any_text_returns(reader: BridgeProcessor) -> None:
    phrases = [
        phrase for group in (*CUE_GROUPS, RELATED_ITEMS) for phrases in group.values() for phrase in phrases
    ]
    related = (word for phrase in phrases for word in phrase.split())
    for word in (*vocabulary(), *related):
        assert len(reader.encode(f" {word}")) == 1, word
    for text in (
        "naïve 😀\n\t\\",
        'Input text "a"',
        'Input text " a"',
        'Input text ""',
        '"7:30"',
        "<0x41> </s>",
        "tap at 0 99",
    ):
        assert reader.decode(reader.encode(text)) == text


def test_patches_name_their_words_and_marks_lie_on_them(
    shelf: ScreenIndex, names: list[NDArray[np.int64]], reader: BridgeProcessor
) -> None:
    on_patches = on_words = 0
    for given in some_lessons(shelf):
        one = batches.encode_lesson(given, names, reader)
        patches = one.input_ids == reader.image_token_id
        marked = (one.marks[:, 0] != IGNORE) & (one.marks[:, 0] != reader.pad_id)
        assert ((one.marks[patches] == reader.pad_id).all(1) | marked[patches]).all()
        shown = np.concatenate([names[page] for page in one.pages])
        assert (one.marks[patches][marked[patches], 0] == shown[marked[patches], 2]).all()  # its own row
        on_patches += int(marked[patches].sum())
        ends = np.cumsum([len(names[page]) for page in one.pages])
        for place in np.flatnonzero(marked & ~patches):  # a question: its last word is on the page before it
            page = one.pages[int(np.searchsorted(ends, patches[:place].sum()))]
            assert one.marks[place, 0] in names[page][:, 2]
            on_words += 1
    assert min(on_patches, on_words) > 50
    for page in shelf.pages[:20]:
        assert batches.patch_targets(page.screen, reader)[1].sum(-1) == pytest.approx(1.0, abs=1e-5)
