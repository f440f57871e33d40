"""The pre-training of the tiny base: lessons are right, and the command makes a base that loads."""

from pathlib import Path
from random import Random

import numpy as np
import pytest

from uivlm.actions.action import Tap
from uivlm.actions.language import Language, NotAnAction
from uivlm.devices.sim.words import lexicon
from uivlm.lessons import lesson, vocabulary
from uivlm.models.bridge_folder import load_base
from uivlm.models.llama_vit import TINY, Reader
from uivlm.sentences.encode import IGNORE
from uivlm.sentences.sentence import Picture, Words
from uivlm.training import drills, pages, pretrain


@pytest.fixture(scope="module")
def reader() -> Reader:
    module, tokenizer = load_base(TINY)
    return Reader(tokenizer, module.config)


def test_answers_are_actions_and_taps_land_in_the_asked_label() -> None:
    rng, language, taps = Random(3), Language(pages.BINS), 0
    for _ in range(60):
        given = lesson(rng, pages.BINS)
        said = [piece.text for piece in given.sentence if isinstance(piece, Words) and piece.trained]
        assert len(said) == len(given.asked) == sum(isinstance(piece, Picture) for piece in given.sentence)
        for words, asked in zip(said, given.asked, strict=True):
            action = language.parse(words)
            assert not isinstance(action, NotAnAction)
            if isinstance(action, Tap):
                assert asked[0].box.holds(action.at.y, action.at.x)
                taps += 1
    assert taps > 40


def test_plain_words_are_one_token_and_any_text_returns(reader: Reader) -> None:
    for word in vocabulary():
        assert len(reader.words(f" {word}")) == 1, word
    for text in (
        "naïve 😀\n\t\\",
        'Input text "a"',
        'Input text " a"',
        'Input text ""',
        '"7:30"',
        "<0x41> </s>",
        "tap at 0 99",
    ):
        assert reader.text(reader.words(text)) == text


def test_patches_name_their_words_and_marks_lie_on_them(reader: Reader) -> None:
    rng, marked, first = Random(4), 0, 0
    for _ in range(20):
        one = pages.page(lesson(rng, pages.BINS), reader)
        assert one.word_share.sum(-1) == pytest.approx(1.0, abs=1e-5)
        patches = one.example.input_ids == reader.config.picture_id
        assert ((one.marks[:, 0] != IGNORE) == patches).all()
        marks = one.marks[patches]
        asked = marks[:, 0] != reader.pad
        places = one.word_ids.reshape(-1, 4)[:, 2:]
        assert (marks[asked, 0] == places[asked, 0]).all()  # a mark's y is the patch's own
        marked, first = marked + int(asked.sum()), first + int((marks[asked] == places[asked]).all(1).sum())
    assert marked >= first > 10  # a mark's x is that of the first word, on every word of the label


def test_drills_ask_for_what_the_table_shows(reader: Reader) -> None:
    spots = pages.places(reader)
    at, asked = reader.words("tap at")[-1], 0
    names = {reader.words(f" {word}")[0] for word in lexicon()}
    for seed in range(20):
        one = drills.drill(Random(seed), reader, lexicon(), spots)
        for i in np.flatnonzero(one.labels == at):
            y, x = one.input_ids[i + 1 : i + 3]
            word = one.input_ids[i - 3]  # word, newline, "tap", " at"
            cell = int(np.flatnonzero((spots == (y, x)).all(1))[0])
            first = (
                reader.config.picture_id in one.input_ids[i - 4 : i]
            )  # the question stands before the table
            if not first and word in names:
                assert word in one.names[cell, :2]
                asked += 1
    assert asked > 60


def test_the_stages_run_to_the_end_and_the_base_loads(tmp_path: Path) -> None:
    plan = pretrain.Plan(reading=2, drilling=2, grounding=2, screens=8, drills=2)
    told: list[str] = []
    pretrain.make_base(tmp_path / "base", plan, told.append)
    assert [line.split()[0] for line in told] == ["reading", "drilling", "grounding"]
    module, _ = load_base(tmp_path / "base")
    assert sum(value.numel() for value in module.parameters()) == 4_931_520  # what the card says
    with pytest.raises(ValueError, match="exists"):
        pretrain.make_base(tmp_path / "base", plan, told.append)


def test_the_shipped_base_is_small_enough() -> None:
    assert (TINY / "model.safetensors").stat().st_size <= 10_000_000
