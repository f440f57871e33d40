"""An index of random screens: screens in; out, which of them show what."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from uivlm.actions.action import Action, Point
from uivlm.devices.sim.canvas import Box
from uivlm.training.tiny_base.random_screens import RandomScreen, ScreenItem
from uivlm.training.tiny_base.vocabulary import CUE_GROUPS, ICON_WORDS, SERIES


@dataclass(frozen=True, slots=True)
class Spot:
    """The part of a screen that decides an answer."""

    box: Box
    text_words: tuple[str, ...]  # the deciding words in the box; "on" and "off" are switches
    at: Point | None = None  # where to tap for it; None: only read


@dataclass(frozen=True, slots=True)
class Ask:
    """A request or a question."""

    text: str
    spot: Spot | None = None  # on the previous screen


@dataclass(frozen=True, slots=True)
class Show:
    """A screen."""

    page: int  # index into `ScreenIndex.pages`
    spot: Spot | None = None  # for the previous question


@dataclass(frozen=True, slots=True)
class ExpertAction:
    """The right action."""

    action: Action


Piece = Ask | Show | ExpertAction
Lesson = tuple[Piece, ...]

LabelRef = tuple[int, ScreenItem]  # index of a page, and an item on it


@dataclass(frozen=True, slots=True)
class ScreenIndex:
    """Random screens, and lists of those that show something."""

    pages: tuple[RandomScreen, ...]
    pages_by_text: dict[str, tuple[LabelRef, ...]]  # by text: pages on which it occurs once
    pages_with_values: tuple[LabelRef, ...]  # labels whose value the page shows
    pages_with_fields: tuple[tuple[int, str], ...]  # pages with a focused field, and its hint
    pages_with_cues: tuple[int, ...]  # pages with labels that have related words
    pages_by_series: tuple[
        tuple[LabelRef, ...], ...
    ]  # of each series, the pages that show exactly one item of it


def build_screen_index(pages: Sequence[RandomScreen]) -> ScreenIndex:
    refs, with_values = defaultdict(list), []
    for i, page in enumerate(pages):
        for label in page.items:
            if count_occurrences(page, label.text) == 1:
                refs[label.text].append((i, label))
                if label.value and count_occurrences(page, label.value) == 1:
                    with_values.append((i, label))
    with_fields = tuple((i, page.focused_hint) for i, page in enumerate(pages) if page.focused_hint)
    with_cues = tuple(i for group in CUE_GROUPS for label in group for i, _ in refs.get(label, ()))
    by_text = {text: tuple(label_refs) for text, label_refs in refs.items()}
    by_series = tuple(tuple(_pages_of_series(pages, by_text, series)) for series in SERIES)
    return ScreenIndex(tuple(pages), by_text, tuple(with_values), with_fields, with_cues, by_series)


def _pages_of_series(
    pages: Sequence[RandomScreen], pages_by_text: dict[str, tuple[LabelRef, ...]], series: tuple[str, ...]
) -> Iterator[LabelRef]:
    for item in series:
        for i, label in pages_by_text.get(item, ()):
            if not any(count_occurrences(pages[i], other) for other in series if other != item):
                yield i, label


def count_occurrences(page: RandomScreen, text: str) -> int:
    """The number of elements that contain the text, or whose icon means it."""
    labels = (element.text or ICON_WORDS.get(element.ui_type, "") for element in page.screen.elements)
    return sum(f" {text} " in f" {label} " for label in labels)


def sample_texts(rng: Random, index: ScreenIndex) -> list[str]:
    """The texts of a random page."""
    while True:
        items = rng.choice(index.pages).items
        if texts := [label.text for label in items if label.text in index.pages_by_text]:
            return texts


def find_unambiguous_page(rng: Random, index: ScreenIndex, target: str, others: set[str]) -> LabelRef | None:
    """A page with this target and none of the others; None if a few tries find none."""
    for _ in range(4):
        page, label = rng.choice(index.pages_by_text.get(target) or ((0, None),))
        if label is not None and not any(count_occurrences(index.pages[page], other) for other in others):
            return page, label
    return None


def page_without(rng: Random, index: ScreenIndex, texts: Iterable[str], candidates: Sequence[int]) -> int:
    """A page that shows none of the texts."""
    while True:
        page = rng.choice(candidates)
        if not any(count_occurrences(index.pages[page], text) for text in texts):
            return page


def label_spot(label: ScreenItem) -> Spot:
    return Spot(label.box, tuple(label.text.split()), label.tap_point)


def value_spot(label: ScreenItem) -> Spot:
    assert label.value_box is not None
    if label.switch_on is not None:
        return Spot(label.value_box, ("on" if label.switch_on else "off",))
    return Spot(label.value_box, tuple(label.value.split()))


def field_spot(page: RandomScreen) -> Spot:
    hint = next(element for element in page.screen.elements if element.text == page.focused_hint)
    return Spot(Box(hint.y, hint.x, hint.height, hint.width), tuple(page.focused_hint.split()))
