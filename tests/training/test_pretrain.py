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
from uivlm.actions.text import ActionText
from uivlm.devices.sim import touch_jitter
from uivlm.episodes.encode import IGNORE, encode
from uivlm.episodes.episode import Screen
from uivlm.episodes.sentence import ScreenPiece, TextPiece
from uivlm.models.bridge.files import load_base
from uivlm.models.bridge.model import TINY_BASE, BridgeProcessor, LlamaVit
from uivlm.training.tiny_base import batches, exercises, init, pretrain
from uivlm.training.tiny_base.exercises import TapTarget, turn_pages
from uivlm.training.tiny_base.lesson import random_lesson, with_touch_jitter
from uivlm.training.tiny_base.random_screens import random_screen
from uivlm.training.tiny_base.screen_index import (
    Ask,
    ExpertAction,
    Lesson,
    ScreenIndex,
    Show,
    count_occurrences,
    page_without,
)
from uivlm.training.tiny_base.vocabulary import (
    CUE_GROUPS,
    FIELD_TEMPLATES,
    ICON_WORDS,
    RELATED_ITEMS,
    SERIES,
    SETTING_CUES,
    TYPE_TEMPLATES,
    vocabulary,
)


@pytest.fixture(scope="module")
def reader() -> BridgeProcessor:
    module, tokenizer = load_base(TINY_BASE)
    return BridgeProcessor(tokenizer, module.config)


@pytest.fixture(scope="module")
def stocked(reader: BridgeProcessor) -> tuple[ScreenIndex, list[NDArray[np.int64]]]:
    rng, module = Random(6), load_base(TINY_BASE)[0].float()
    screens = [random_screen(rng) for _ in range(150)]
    drawn = [(one, torch.from_numpy(reader.pixel_values(ScreenPiece(one.screen)))) for one in screens]
    shelf, names, features = pretrain.index_screens(module, reader, drawn)
    assert [len(one) for one in features] == [len(one) for one in names]
    return shelf, names


@pytest.fixture(scope="module")
def shelf(stocked: tuple[ScreenIndex, list[NDArray[np.int64]]]) -> ScreenIndex:
    return stocked[0]


@pytest.fixture(scope="module")
def names(stocked: tuple[ScreenIndex, list[NDArray[np.int64]]]) -> list[NDArray[np.int64]]:
    return stocked[1]


def some_lessons(shelf: ScreenIndex, count: int = 80) -> list[Lesson]:
    rng = Random(3)
    return [random_lesson(rng, shelf, rng.choice((1, 2, 4, 8)), 10, 0.3) for _ in range(count)]


def typing(text: str) -> list[str]:
    return [form.format(text) for form in TYPE_TEMPLATES]


def texts(page: Screen) -> str:
    """The page's lines and signs."""
    return "".join(f" {element.text or ICON_WORDS.get(element.ui_type)} |" for element in page.elements)


def test_answers_follow_from_what_is_asked_and_shown(shelf: ScreenIndex) -> None:
    seen: dict[str, int] = {}
    for given in some_lessons(shelf, 120):
        goal, page = given[0], -1
        assert isinstance(goal, Ask)
        for piece, answer in pairwise(given):
            if isinstance(piece, Show):
                page = piece.page
            if not isinstance(answer, ExpertAction):
                continue
            assert not isinstance(piece, ExpertAction)
            action, spot, shown = answer.action, piece.spot, shelf.pages[page]
            seen[type(action).__name__] = seen.get(type(action).__name__, 0) + 1
            match action:
                case Tap(at):  # once on the page, where the finger goes
                    assert spot is not None
                    assert spot.box.contains(at.y, at.x)
                    assert texts(shown.screen).count(f" {' '.join(spot.text_words)} ") == 1
                case Type(text) if isinstance(piece, Ask):
                    assert piece.text in typing(text) or f" {text} " in texts(shown.screen)
                case Type(text):
                    assert shown.focused_hint
                    filled = [form.format(shown.focused_hint, text) for form in FIELD_TEMPLATES]
                    assert any(f" {one}" in f" {goal.text}" for one in (*typing(text), *filled)) or (
                        "says" in goal.text
                    )
                case Finish(status) if isinstance(piece, Ask):
                    assert spot is not None
                    assert spot.text_words == ("on" if status == "complete" else "off",)
                case Swipe():  # the target is not on the page, or it is before or after it in a series
                    assert spot is None or any(spot.text_words[0] in series for series in SERIES)
    assert min(seen[name] for name in ("Tap", "Type", "Finish", "Swipe", "Press")) > 10


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


def test_what_belongs_to_a_label_leads_to_it(shelf: ScreenIndex) -> None:
    """Asked for an alarm alone, the lesson goes to the clock, and looks on where there is none."""
    rng, led = Random(2), 0
    labels = {label: cues for group in CUE_GROUPS for label, cues in group.items()}
    for _ in range(150):
        goal, *rest = random_lesson(rng, shelf, 4, related_fraction=1.0)
        assert isinstance(goal, Ask)
        words = f" {goal.text.lower().replace(',', ' ')} "
        for shown, answer in pairwise(rest):
            if (
                isinstance(shown, Show)
                and isinstance(answer, ExpertAction)
                and isinstance(answer.action, Tap)
            ):
                label = " ".join(shown.spot.text_words) if shown.spot else ""
                if label in labels and " says " not in words and f" {label.lower()} " not in words:
                    belongs = (*labels[label], *RELATED_ITEMS.get(label, ()))
                    assert any(f" {one.lower()} " in words for one in belongs)
                    led += 1
    assert led > 50


def test_of_a_series_the_later_ones_lie_to_the_right(shelf: ScreenIndex) -> None:
    """Another one is passed by in the right direction; on the wanted one what was named with it is tapped."""
    rng, seen = Random(4), set()
    series = {one: i for some in SERIES for i, one in enumerate(some)}
    for _ in range(60):
        steps = turn_pages(rng, shelf)
        goal = next(steps)
        assert isinstance(goal, Ask)
        asked = goal.text.split()
        for _ in range(4):
            shown, answer = next(steps), next(steps)
            assert isinstance(shown, Show)
            assert isinstance(answer, ExpertAction)
            assert shown.spot is not None
            here = [one for one in series if one in asked and count_occurrences(shelf.pages[shown.page], one)]
            match answer.action:
                case Swipe(start, end):
                    wanted = next(word for word in asked if word in series)
                    later = series[wanted] > series[shown.spot.text_words[0]]
                    assert (end.x < start.x) == later
                    seen.add(later)
                case Finish("complete"):
                    assert here
                    assert shown.spot.text_words == (here[0],)
                    seen.add("there")
                case Tap(at):
                    assert here
                    assert at == shown.spot.at
                    assert " ".join(shown.spot.text_words) in goal.text
                    seen.add("beside")
    assert seen == {True, False, "there", "beside"}


def test_no_screen_shows_two_labels_that_may_be_meant(shelf: ScreenIndex) -> None:
    rng, done = Random(6), []
    label = next(one for one in SETTING_CUES if one in shelf.pages_by_text)
    target = TapTarget(label, (RELATED_ITEMS[label][0],))
    assert target.matching_labels == {label, RELATED_ITEMS[label][0], "Settings"}
    for _ in range(80):
        shown, answer = exercises._next_exercise(rng, shelf, [target], "")
        assert isinstance(shown, Show)
        assert isinstance(answer, ExpertAction)
        text = texts(shelf.pages[shown.page].screen)
        meant = [one for one in sorted(target.matching_labels) if f" {one} " in text]
        assert meant == ([label] if isinstance(answer.action, Tap) else [])
        done.append(type(answer.action))
    assert {Tap, Swipe} == set(done)


def test_pages_without_what_is_named_show_none_of_it(shelf: ScreenIndex) -> None:
    rng = Random(5)
    for _ in range(200):
        named = rng.sample(sorted(shelf.pages_by_text), 4)
        page = shelf.pages[page_without(rng, shelf, named, range(len(shelf.pages)))]
        assert not any(f" {one} " in texts(page.screen) for one in named)


def test_a_finger_hits_what_it_goes_for_never_twice_the_same(shelf: ScreenIndex) -> None:
    rng, points = Random(1), set()
    for given in some_lessons(shelf, 40):
        for piece, touched in zip(given, with_touch_jitter(rng, given), strict=True):
            if isinstance(piece, ExpertAction) and isinstance(piece.action, Tap):
                assert isinstance(touched, ExpertAction)
                assert isinstance(touched.action, Tap)
                one, other = piece.action.at, touched.action.at
                assert abs(one.y - other.y) <= 3 * touch_jitter.TAP_JITTER
                assert abs(one.x - other.x) <= 3 * touch_jitter.TAP_JITTER
                points.add((other.y - one.y, other.x - one.x))
            elif isinstance(piece, ExpertAction) and not isinstance(piece.action, Swipe):
                assert touched == piece
    assert len(points) > 40


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


def test_attention_begins_with_a_look_for_the_same_word_elsewhere(reader: BridgeProcessor) -> None:
    torch.manual_seed(0)
    model = LlamaVit(reader.config)
    init.init_matching_attention(model)
    model.language.set_attn_implementation("eager")
    words = reader.encode(" Clock")[0]
    ids = torch.randint(300, 2000, (1, 60))
    ids[0, [5, 55]] = words
    with torch.no_grad():
        seen = model.language.model(ids, output_attentions=True).attentions[0][0, :, 55].mean(0)  # over heads
    assert int(seen.argmax()) == 5
    assert seen[5] > 2 * seen[55]  # itself


PLAN = pretrain.PretrainPlan(
    reading=2,
    drilling=2,
    grounding=2,
    relating=(2, 2),
    settling=2,
    screens_per_step=8,
    screens_per_turn=90,
    tokens_per_step=600,
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
    assert told[0] == "finished earlier: reading, drilling, grounding, relating-0"
    whole, again = (tmp_path / name / "model.safetensors" for name in ("whole", "again"))
    assert whole.read_bytes() == again.read_bytes()


def test_the_shipped_base_is_small_enough() -> None:
    assert (TINY_BASE / "model.safetensors").stat().st_size <= 10_000_000
