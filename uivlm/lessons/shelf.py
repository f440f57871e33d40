"""The shelf: random screens in, what can be found on which of them out."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from uivlm.devices.sim.canvas import Box
from uivlm.devices.sim.interface import Interface, Label
from uivlm.lessons.pieces import Spot
from uivlm.lessons.words import RELATED, SERIES, SIGNS

Place = tuple[int, Label]  # a page's number, and what of it


@dataclass(frozen=True, slots=True)
class Shelf:
    """Random screens, and what can be found where."""

    pages: tuple[Interface, ...]
    places: dict[str, tuple[Place, ...]]  # by text: the pages that show it once
    telling: tuple[Place, ...]  # labels of which the page says a value
    typing: tuple[tuple[int, str], ...]  # pages that take typed text, and what their field is for
    akin: tuple[int, ...]  # pages with labels that something belongs to
    turning: tuple[tuple[Place, ...], ...]  # of each series, the pages that show one of it alone


def shelve(pages: Sequence[Interface]) -> Shelf:
    places, telling = defaultdict(list), []
    for number, page in enumerate(pages):
        for label in page.labels:
            if count(page, label.text) == 1:
                places[label.text].append((number, label))
                if label.value and count(page, label.value) == 1:
                    telling.append((number, label))
    typing = tuple((number, page.field) for number, page in enumerate(pages) if page.field)
    akin = tuple(number for group in RELATED for label in group for number, _ in places.get(label, ()))
    found = {text: tuple(where) for text, where in places.items()}
    turning = tuple(tuple(_turning(pages, found, series)) for series in SERIES)
    return Shelf(tuple(pages), found, tuple(telling), typing, akin, turning)


def _turning(
    pages: Sequence[Interface], places: dict[str, tuple[Place, ...]], series: tuple[str, ...]
) -> Iterator[Place]:
    for one in series:
        for number, label in places.get(one, ()):
            if not any(count(pages[number], other) for other in series if other != one):
                yield number, label


def count(page: Interface, text: str) -> int:
    """How many lines of the page say it, or how many signs mean it?"""
    shown = (element.text or SIGNS.get(element.kind, "") for element in page.screen.elements)
    return sum(f" {text} " in f" {one} " for one in shown)


def some_texts(rng: Random, shelf: Shelf) -> list[str]:
    """What some page shows."""
    while not (
        found := [label.text for label in rng.choice(shelf.pages).labels if label.text in shelf.places]
    ):
        pass
    return found


def alone(rng: Random, shelf: Shelf, target: str, others: set[str]) -> Place | None:
    """A page with this target and no other, if a few tries find one."""
    for _ in range(4):
        page, label = rng.choice(shelf.places.get(target) or ((0, None),))
        if label is not None and not any(count(shelf.pages[page], other) for other in others):
            return page, label
    return None


def page_without(rng: Random, shelf: Shelf, named: Iterable[str], among: Sequence[int]) -> int:
    """A page that shows none of these."""
    while True:
        page = rng.choice(among)
        if not any(count(shelf.pages[page], one) for one in named):
            return page


def spot(label: Label) -> Spot:
    return Spot(label.box, tuple(label.text.split()), label.at)


def told(label: Label) -> Spot:
    assert label.told is not None
    if label.on is not None:
        return Spot(label.told, ("on" if label.on else "off",))
    return Spot(label.told, tuple(label.value.split()))


def field(page: Interface) -> Spot:
    hint = next(element for element in page.screen.elements if element.text == page.field)
    return Spot(Box(hint.y, hint.x, hint.height, hint.width), tuple(page.field.split()))
