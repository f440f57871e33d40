"""The pre-training of the tiny base: lessons are right, and the command makes a base that loads."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from uivlm.actions.action import Finish, Swipe, Tap, Type
from uivlm.actions.language import Language
from uivlm.devices.sim import finger
from uivlm.devices.sim.interface import interface
from uivlm.episode import Screen
from uivlm.lessons import kinds
from uivlm.lessons.kinds import Target, turn
from uivlm.lessons.lesson import by_hand, lesson
from uivlm.lessons.pieces import Answer, Ask, Lesson, Show
from uivlm.lessons.shelf import Shelf, count, page_without
from uivlm.lessons.words import CATEGORIES, FILLING, RELATED, SERIES, SIGNS, THINGS, TYPING, vocabulary
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


def typing(text: str) -> list[str]:
    return [form.format(text) for form in TYPING]


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
                    assert piece.text in typing(text) or f" {text} " in texts(shown.screen)
                case Type(text):
                    assert shown.field
                    filled = [form.format(shown.field, text) for form in FILLING]
                    assert any(f" {one}" in f" {goal.text}" for one in (*typing(text), *filled)) or (
                        "says" in goal.text
                    )
                case Finish(status) if isinstance(piece, Ask):
                    assert spot is not None
                    assert spot.words == ("on" if status == "complete" else "off",)
                case Swipe():  # nothing that was asked for is there, or what comes before or after it in a series
                    assert spot is None or any(spot.words[0] in series for series in SERIES)
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
    labels = {label: cues for group in RELATED for label, cues in group.items()}
    for _ in range(150):
        goal, *rest = lesson(rng, shelf, 4, related=1.0)
        assert isinstance(goal, Ask)
        words = f" {goal.text.lower().replace(',', ' ')} "
        for shown, answer in pairwise(rest):
            if isinstance(shown, Show) and isinstance(answer, Answer) and isinstance(answer.action, Tap):
                label = " ".join(shown.spot.words) if shown.spot else ""
                if label in labels and " says " not in words and f" {label.lower()} " not in words:
                    belongs = (*labels[label], *THINGS.get(label, ()))
                    assert any(f" {one.lower()} " in words for one in belongs)
                    led += 1
    assert led > 50


def test_of_a_series_the_later_ones_lie_to_the_right(shelf: Shelf) -> None:
    """Another one is passed by in the right direction; on the wanted one what was named with it is tapped."""
    rng, seen = Random(4), set()
    series = {one: i for some in SERIES for i, one in enumerate(some)}
    for _ in range(60):
        steps = turn(rng, shelf)
        goal = next(steps)
        assert isinstance(goal, Ask)
        asked = goal.text.split()
        for _ in range(4):
            shown, answer = next(steps), next(steps)
            assert isinstance(shown, Show)
            assert isinstance(answer, Answer)
            assert shown.spot is not None
            here = [one for one in series if one in asked and count(shelf.pages[shown.page], one)]
            match answer.action:
                case Swipe(start, end):
                    wanted = next(word for word in asked if word in series)
                    later = series[wanted] > series[shown.spot.words[0]]
                    assert (end.x < start.x) == later
                    seen.add(later)
                case Finish("complete"):
                    assert here
                    assert shown.spot.words == (here[0],)
                    seen.add("there")
                case Tap(at):
                    assert here
                    assert at == shown.spot.at
                    assert " ".join(shown.spot.words) in goal.text
                    seen.add("beside")
    assert seen == {True, False, "there", "beside"}


def test_no_screen_shows_two_labels_that_may_be_meant(shelf: Shelf) -> None:
    rng, done = Random(6), []
    label = next(one for one in CATEGORIES if one in shelf.places)
    target = Target(label, (THINGS[label][0],))
    assert target.answering == {label, THINGS[label][0], "Settings"}
    for _ in range(80):
        shown, answer = kinds._next(rng, shelf, [target], "")
        assert isinstance(shown, Show)
        assert isinstance(answer, Answer)
        text = texts(shelf.pages[shown.page].screen)
        meant = [one for one in sorted(target.answering) if f" {one} " in text]
        assert meant == ([label] if isinstance(answer.action, Tap) else [])
        done.append(type(answer.action))
    assert {Tap, Swipe} == set(done)


def test_pages_without_what_is_named_show_none_of_it(shelf: Shelf) -> None:
    rng = Random(5)
    for _ in range(200):
        named = rng.sample(sorted(shelf.places), 4)
        page = shelf.pages[page_without(rng, shelf, named, range(len(shelf.pages)))]
        assert not any(f" {one} " in texts(page.screen) for one in named)


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
    phrases = [phrase for group in (*RELATED, THINGS) for phrases in group.values() for phrase in phrases]
    related = (word for phrase in phrases for word in phrase.split())
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


PLAN = pretrain.Plan(
    reading=2, drilling=2, grounding=2, relating=(2, 2), settling=2, screens=8, shelf=90, tokens=600
)


def test_the_stages_run_to_the_end_and_the_base_loads(tmp_path: Path) -> None:
    told: list[str] = []
    pretrain.make_base(tmp_path / "base", PLAN, told.append)
    assert [line.split()[0] for line in told] == [
        "reading",
        "drilling",
        "grounding",
        "relating-0",
        "relating-1",
        "settling",
    ]
    module, _ = load_base(tmp_path / "base")
    assert sum(value.numel() for value in module.parameters()) == 4_931_520  # what the card says
    with pytest.raises(ValueError, match="exists"):
        pretrain.make_base(tmp_path / "base", PLAN, told.append)
    assert [folder.name for folder in tmp_path.iterdir()] == ["base"]


def test_a_stopped_pre_training_goes_on_to_the_same_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretrain.make_base(tmp_path / "whole", PLAN, lambda line: None)
    train = pretrain._train
    with monkeypatch.context() as patched:

        def stopped(stage: pretrain.Stage, *rest: Any) -> None:
            if stage.name == "relating-1":
                raise KeyboardInterrupt
            train(stage, *rest)

        patched.setattr(pretrain, "_train", stopped)
        with pytest.raises(KeyboardInterrupt):
            pretrain.make_base(tmp_path / "again", PLAN, lambda line: None)
    assert not (tmp_path / "again").exists()
    with pytest.raises(ValueError, match="another plan"):
        pretrain.make_base(tmp_path / "again", replace(PLAN, seed=1), lambda line: None)
    told: list[str] = []
    pretrain.make_base(tmp_path / "again", PLAN, told.append)
    assert told[0] == "reading and drilling and grounding and relating-0 done before"
    whole, again = (tmp_path / name / "model.safetensors" for name in ("whole", "again"))
    assert whole.read_bytes() == again.read_bytes()


def test_the_shipped_base_is_small_enough() -> None:
    assert (TINY / "model.safetensors").stat().st_size <= 10_000_000
