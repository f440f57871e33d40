"""Lessons for the pre-training of the tiny base: words to find, keep in mind, type or judge, on random screens.

In: a seeded random generator and a shelf of random screens (`devices.sim.interface`). Out: lessons in the grammar of
fine-tuning with the one right action on each screen, and more questions than a phone's goal would ask; and where on the
screen the answer stands. One screen has nothing to do with the next but the words that are asked for. No phone runs,
there is no goal and no episode.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from uivlm.actions.action import Action, Finish, Key, Point, Press, Swipe, Tap, Type
from uivlm.devices.sim import finger
from uivlm.devices.sim.canvas import Box
from uivlm.devices.sim.interface import Interface, Label
from uivlm.devices.sim.words import lexicon
from uivlm.lesson_words import NEUTRAL, RELATED, SIGNS

KEYS: tuple[Key, ...] = ("back", "home", "enter")
LOOK_ON: finger.Direction = "up"


@dataclass(frozen=True, slots=True)
class Spot:
    """What on a screen decides the answer."""

    box: Box
    words: tuple[str, ...]  # those in the box that do; "on" and "off" are switches
    at: Point | None = None  # where a finger goes for it; None: it is to be read only


@dataclass(frozen=True, slots=True)
class Ask:
    """Words of a person."""

    text: str
    spot: Spot | None = None  # on the screen before


@dataclass(frozen=True, slots=True)
class Show:
    """A screen of the shelf."""

    page: int
    spot: Spot | None = None  # for the question before


@dataclass(frozen=True, slots=True)
class Answer:
    """The right action."""

    action: Action


Lesson = tuple[Ask | Show | Answer, ...]


@dataclass(frozen=True, slots=True)
class Shelf:
    """Random screens, and what can be found where."""

    pages: tuple[Interface, ...]
    places: dict[str, tuple[tuple[int, Label], ...]]  # by text: the pages that show it once
    telling: tuple[tuple[int, Label], ...]  # labels of which the page says a value
    typing: tuple[int, ...]  # pages that take typed text
    akin: tuple[int, ...]  # pages with labels that something belongs to


def shelve(pages: Sequence[Interface]) -> Shelf:
    places, telling = defaultdict(list), []
    for number, page in enumerate(pages):
        for label in page.labels:
            if _count(page, label.text) == 1:
                places[label.text].append((number, label))
                if label.value and _count(page, label.value) == 1:
                    telling.append((number, label))
    typing = tuple(number for number, page in enumerate(pages) if page.typing)
    akin = tuple(number for label in RELATED for number, _ in places.get(label, ()))
    found = {text: tuple(where) for text, where in places.items()}
    return Shelf(tuple(pages), found, tuple(telling), typing, akin)


def _count(page: Interface, text: str) -> int:
    """How many lines of the page say it, or how many signs mean it?"""
    shown = (element.text or SIGNS.get(element.kind, "") for element in page.screen.elements)
    return sum(f" {text} " in f" {one} " for one in shown)


def lesson(rng: Random, shelf: Shelf, screens: int, questions: int = 0, related: float = 0.0) -> Lesson:
    """What is asked for, then screens: each with the right action, and its share of so many more questions.

    It is questions that teach, and a question costs less than a screen. `related`: how often the goal names what
    belongs to the label that is to be tapped, instead of the label.
    """
    steps = _remember(rng, shelf) if screens > 1 and rng.random() < 0.4 else _hunt(rng, shelf, related)
    pieces: list[Ask | Show | Answer] = [next(steps)]
    for _ in range(screens):
        shown, answer = next(steps), next(steps)
        assert isinstance(shown, Show)
        pieces += (shown, answer)
        for _ in range(questions // screens):
            pieces += _question(rng, shelf, shown.page)
    return tuple(pieces)


def by_hand(rng: Random, given: Lesson) -> Lesson:
    """The lesson with answers that a finger gave, which never hits the same point twice."""
    return tuple(
        Answer(_touched(rng, piece.action)) if isinstance(piece, Answer) else piece for piece in given
    )


def _touched(rng: Random, action: Action) -> Action:
    match action:
        case Tap(at):
            return finger.tap(rng, at)
        case Swipe():
            return finger.swipe(rng, LOOK_ON)
        case _:
            return action


def _wrapped(rng: Random, text: str) -> str:
    """The text as people write: some words around it, sometimes in small letters."""
    words = text.lower() if rng.random() < 0.1 else text
    return " ".join((*_fillers(rng, (0, 0, 1, 2, 3, 5)), words, *_fillers(rng, (0, 0, 0, 1, 2, 4))))


def _fillers(rng: Random, counts: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(rng.choice(NEUTRAL) for _ in range(rng.choice(counts)))


def _phrase(rng: Random) -> str:
    """One to four words to type."""
    return " ".join(rng.choice(lexicon()) for _ in range(rng.choice((1, 1, 2, 2, 3, 4))))


def _hunt(rng: Random, shelf: Shelf, related: float) -> Iterator[Ask | Show | Answer]:
    """Labels to tap wherever they are, and often a text to type wherever that is possible."""
    targets = dict(_target(rng, shelf, related) for _ in range(rng.choice((1, 1, 2, 3))))
    typed = _phrase(rng) if rng.random() < 0.5 else ""
    parts = [_wrapped(rng, said) for said in targets.values()] + ([f"type {typed}"] if typed else [])
    yield Ask(", ".join(rng.sample(parts, len(parts))))
    while True:
        yield from _next(rng, shelf, targets, typed)


def _target(rng: Random, shelf: Shelf, related: float) -> tuple[str, str]:
    """A label that some page shows, and what is said for it."""
    if rng.random() < related:
        label = rng.choice([label for label in RELATED if label in shelf.places] or [""])
        if label:
            return label, rng.choice(RELATED[label])
    text = rng.choice(_texts(rng, shelf))
    return text, text


def _remember(rng: Random, shelf: Shelf) -> Iterator[Ask | Show | Answer]:
    """A screen says what a key stands for; on later ones that value is to be tapped, or typed."""
    page, label = rng.choice(shelf.telling)
    yield Ask(_wrapped(rng, f"what {label.text} says"))
    yield Show(page, _told(label))
    yield Answer(Finish("complete"))
    while True:
        yield from _next(rng, shelf, {label.value: label.value}, label.value)


def _texts(rng: Random, shelf: Shelf) -> list[str]:
    """What some page shows."""
    while not (
        found := [label.text for label in rng.choice(shelf.pages).labels if label.text in shelf.places]
    ):
        pass
    return found


def _next(rng: Random, shelf: Shelf, targets: dict[str, str], typed: str) -> Iterator[Ask | Show | Answer]:
    """One more screen: with one of the targets, with none, or with a field for the text."""
    draw = rng.random()
    target = rng.choice(tuple(targets))
    named = {*targets, *targets.values()}  # no other of these is on the screen
    if typed and draw < 0.25:
        yield Show(rng.choice(shelf.typing))
        yield Answer(Type(typed))
    elif draw < 0.8 and (found := _alone(rng, shelf, target, named - {target})):
        page, label = found
        yield Show(page, _spot(label))
        yield Answer(Tap(label.at))
    else:
        by_kin = any(said != label for label, said in targets.items())
        yield Show(_page_without(rng, shelf, named, shelf.akin if by_kin else range(len(shelf.pages))))
        yield Answer(look_on())


def look_on() -> Swipe:
    """What is done where what was asked for is not on the screen."""
    return finger.swipe(None, LOOK_ON)


def _alone(rng: Random, shelf: Shelf, target: str, others: set[str]) -> tuple[int, Label] | None:
    """A page with this target and no other, if a few tries find one."""
    for _ in range(4):
        page, label = rng.choice(shelf.places.get(target) or ((0, None),))
        if label is not None and not any(_count(shelf.pages[page], other) for other in others):
            return page, label
    return None


def _page_without(rng: Random, shelf: Shelf, named: set[str], among: Sequence[int]) -> int:
    while any(_count(shelf.pages[page := rng.choice(among)], one) for one in named):
        pass
    return page


def _spot(label: Label) -> Spot:
    return Spot(label.box, tuple(label.text.split()), label.at)


def _told(label: Label) -> Spot:
    assert label.told is not None
    if label.on is not None:
        return Spot(label.told, ("on" if label.on else "off",))
    return Spot(label.told, tuple(label.value.split()))


def _question(rng: Random, shelf: Shelf, page: int) -> Iterator[Ask | Answer]:
    """About the screen before, or a text to type."""
    labels = [label for label in shelf.pages[page].labels if _count(shelf.pages[page], label.text) == 1]
    telling = [label for label in labels if label.told]
    draw = rng.random()
    if telling and draw < 0.3:
        label = rng.choice(telling)
        if label.on is None:
            yield Ask(f"what {label.text} says", _told(label))
            yield Answer(Type(label.value))
        else:
            yield Ask(f"is {label.text} on", _told(label))
            yield Answer(Finish("complete" if label.on else "impossible"))
    elif labels and draw < 0.63:
        label = rng.choice(labels)
        yield Ask(" ".join((*_fillers(rng, (0, 1, 1, 2)), label.text)), _spot(label))
        yield Answer(Tap(label.at))
    elif draw < 0.77:
        text = rng.choice(_texts(rng, shelf))
        while _count(shelf.pages[page], text):
            text = rng.choice(_texts(rng, shelf))
        yield Ask(" ".join((*_fillers(rng, (0, 1, 1, 2)), text)))
        yield Answer(look_on())
    elif draw < 0.98:
        text = _phrase(rng)
        yield Ask(f"type {text}")
        yield Answer(Type(text))
    else:
        key = rng.choice(KEYS)
        yield Ask(f"press {key}")
        yield Answer(Press(key))
