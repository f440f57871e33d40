"""The pre-training of the tiny base: lessons are right, and the command makes a base that loads."""

from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from uivlm.actions.action import Finish, Swipe, Tap, Type
from uivlm.actions.language import Language
from uivlm.devices.sim import finger
from uivlm.devices.sim.interface import interface
from uivlm.episode import Screen
from uivlm.lesson_words import RELATED, SIGNS, vocabulary
from uivlm.lessons import Answer, Ask, Lesson, Shelf, Show, by_hand, lesson
from uivlm.models.bridge_folder import load_base
from uivlm.models.llama_vit import TINY, LlamaVit, Reader
from uivlm.sentences.encode import IGNORE, encode
from uivlm.sentences.sentence import Picture, Words
from uivlm.training import pages, pretrain, untrained


@pytest.fixture(scope="module")
def reader() -> Reader:
    module, tokenizer = load_base(TINY)
    return Reader(tokenizer, module.config)


@pytest.fixture(scope="module")
def stocked(reader: Reader) -> tuple[Shelf, list[NDArray[np.int64]]]:
    rng, module = Random(6), load_base(TINY)[0].float()
    screens = [interface(rng) for _ in range(150)]
    drawn = [(one, torch.from_numpy(reader.pixels(Picture(one.screen)))) for one in screens]
    shelf, names, features = pretrain.stock(module, reader, drawn)
    assert [len(one) for one in features] == [len(one) for one in names]
    return shelf, names


@pytest.fixture(scope="module")
def shelf(stocked: tuple[Shelf, list[NDArray[np.int64]]]) -> Shelf:
    return stocked[0]


@pytest.fixture(scope="module")
def names(stocked: tuple[Shelf, list[NDArray[np.int64]]]) -> list[NDArray[np.int64]]:
    return stocked[1]


def some_lessons(shelf: Shelf, count: int = 80) -> list[Lesson]:
    rng = Random(3)
    return [lesson(rng, shelf, rng.choice((1, 2, 4, 8)), 10, 0.3) for _ in range(count)]


def texts(page: Screen) -> str:
    """The page's lines and signs."""
    return "".join(f" {element.text or SIGNS.get(element.kind)} |" for element in page.elements)


def test_answers_follow_from_what_is_asked_and_shown(shelf: Shelf) -> None:
    seen: dict[str, int] = {}
    for given in some_lessons(shelf, 120):
        goal, page = given[0], -1
        assert isinstance(goal, Ask)
        for piece, answer in pairwise(given):
            if isinstance(piece, Show):
                page = piece.page
            if not isinstance(answer, Answer):
                continue
            assert not isinstance(piece, Answer)
            action, spot, shown = answer.action, piece.spot, shelf.pages[page]
            seen[type(action).__name__] = seen.get(type(action).__name__, 0) + 1
            match action:
                case Tap(at):  # once on the page, where the finger goes
                    assert spot is not None
                    assert spot.box.holds(at.y, at.x)
                    assert texts(shown.screen).count(f" {' '.join(spot.words)} ") == 1
                case Type(text) if isinstance(piece, Ask):
                    assert piece.text == f"type {text}" or f" {text} " in texts(shown.screen)
                case Type(text):
                    assert shown.typing
                    assert f"type {text}" in goal.text or "says" in goal.text
                case Finish(status) if isinstance(piece, Ask):
                    assert spot is not None
                    assert spot.words == ("on" if status == "complete" else "off",)
                case Swipe():
                    assert spot is None
    assert min(seen[name] for name in ("Tap", "Type", "Finish", "Swipe", "Press")) > 10


def test_arrays_say_what_encode_says(shelf: Shelf, names: list[NDArray[np.int64]], reader: Reader) -> None:
    say = Language(pages.BINS).say
    for given in some_lessons(shelf, 20):
        pieces: list[Words | Picture] = []
        for piece in given:
            match piece:
                case Ask(text):
                    pieces.append(Words(f"{text}\n"))
                case Show(page):
                    pieces += (Picture(shelf.pages[page].screen), Words("\n"))
                case Answer(action):
                    pieces.append(Words(say(action), trained=True, closed=True))
        wanted = encode(tuple(pieces), reader, look=False)
        got = pages.sheet(given, names, reader)
        assert (got.input_ids == wanted.input_ids).all()
        assert (got.labels == wanted.labels).all()


def test_what_belongs_to_a_label_leads_to_it(shelf: Shelf) -> None:
    """Asked for an alarm alone, the lesson goes to the clock, and looks on where there is none."""
    rng, led = Random(2), 0
    for _ in range(100):
        goal, *rest = lesson(rng, shelf, 4, related=1.0)
        assert isinstance(goal, Ask)
        if " says" in goal.text:
            continue  # what is to be tapped stands on an earlier screen
        for shown, answer in pairwise(rest):
            if isinstance(shown, Show) and isinstance(answer, Answer) and isinstance(answer.action, Tap):
                label = " ".join(shown.spot.words) if shown.spot else ""
                if label in RELATED and f" {label} " not in f" {goal.text} ":
                    assert any(f" {one} " in f" {goal.text.replace(',', ' ')} " for one in said(label))
                    led += 1
    assert led > 50


def said(label: str) -> list[str]:
    return [form for one in RELATED[label] for form in (one, one.lower())]


def test_a_finger_hits_what_it_goes_for_never_twice_the_same(shelf: Shelf) -> None:
    rng, points = Random(1), set()
    for given in some_lessons(shelf, 40):
        for piece, touched in zip(given, by_hand(rng, given), strict=True):
            if isinstance(piece, Answer) and isinstance(piece.action, Tap):
                assert isinstance(touched, Answer)
                assert isinstance(touched.action, Tap)
                one, other = piece.action.at, touched.action.at
                assert abs(one.y - other.y) <= 3 * finger.JITTER
                assert abs(one.x - other.x) <= 3 * finger.JITTER
                points.add((other.y - one.y, other.x - one.x))
            elif isinstance(piece, Answer) and not isinstance(piece.action, Swipe):
                assert touched == piece
    assert len(points) > 40


def test_plain_words_are_one_token_and_any_text_returns(reader: Reader) -> None:
    related = (word for phrases in RELATED.values() for phrase in phrases for word in phrase.split())
    for word in (*vocabulary(), *related):
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


def test_patches_name_their_words_and_marks_lie_on_them(
    shelf: Shelf, names: list[NDArray[np.int64]], reader: Reader
) -> None:
    on_patches = on_words = 0
    for given in some_lessons(shelf):
        one = pages.sheet(given, names, reader)
        patches = one.input_ids == reader.placeholder
        marked = (one.marks[:, 0] != IGNORE) & (one.marks[:, 0] != reader.pad)
        assert ((one.marks[patches] == reader.pad).all(1) | marked[patches]).all()
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
        assert pages.shown_words(page.screen, reader)[1].sum(-1) == pytest.approx(1.0, abs=1e-5)


def test_attention_begins_with_a_look_for_the_same_word_elsewhere(reader: Reader) -> None:
    torch.manual_seed(0)
    model = LlamaVit(reader.config)
    untrained.look_alike(model)
    model.language.set_attn_implementation("eager")
    words = reader.words(" Clock")[0]
    ids = torch.randint(300, 2000, (1, 60))
    ids[0, [5, 55]] = words
    with torch.no_grad():
        seen = model.language.model(ids, output_attentions=True).attentions[0][0, :, 55].mean(0)  # over heads
    assert int(seen.argmax()) == 5
    assert seen[5] > 2 * seen[55]  # itself


def test_the_stages_run_to_the_end_and_the_base_loads(tmp_path: Path) -> None:
    plan = pretrain.Plan(
        reading=2, drilling=2, grounding=2, relating=2, settling=2, screens=8, shelf=60, tokens=600
    )
    told: list[str] = []
    pretrain.make_base(tmp_path / "base", plan, told.append)
    assert [line.split()[0] for line in told] == ["reading", "drilling", "grounding", "relating", "settling"]
    module, _ = load_base(tmp_path / "base")
    assert sum(value.numel() for value in module.parameters()) == 4_931_520  # what the card says
    with pytest.raises(ValueError, match="exists"):
        pretrain.make_base(tmp_path / "base", plan, told.append)


def test_the_shipped_base_is_small_enough() -> None:
    assert (TINY / "model.safetensors").stat().st_size <= 10_000_000
