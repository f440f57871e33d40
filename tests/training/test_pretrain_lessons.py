"""The lessons of the tiny base's pre-training: each answer follows from its question and screens."""

from itertools import pairwise
from random import Random

import pytest

from tests.helpers.pretraining_lessons import some_lessons
from uivlm.actions.action import Finish, Swipe, Tap, Type
from uivlm.devices.sim import touch_jitter
from uivlm.episodes.episode import Screen
from uivlm.training.tiny_base import exercises
from uivlm.training.tiny_base.exercises import TapTarget, turn_pages
from uivlm.training.tiny_base.lesson import random_lesson, with_touch_jitter
from uivlm.training.tiny_base.screen_index import (
    Ask,
    ExpertAction,
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
)


def typing(text: str) -> list[str]:
    return [form.format(text) for form in TYPE_TEMPLATES]


def texts(page: Screen) -> str:
    """The texts and icon names on the page."""
    return "".join(f" {element.text or ICON_WORDS.get(element.ui_type)} |" for element in page.elements)


@pytest.mark.slow
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


def test_what_belongs_to_a_label_leads_to_it(shelf: ScreenIndex) -> None:
    """A goal that names only an alarm leads to the clock; a page without it is passed."""
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
    """Other pages are swiped past in the right direction; on the right page the named item is tapped."""
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
