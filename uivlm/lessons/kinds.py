"""The kinds of lessons: each without end, what is asked for at first, then screens and the right action on each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from uivlm.actions.action import Finish, Tap, Type
from uivlm.devices.sim import finger
from uivlm.devices.sim.interface import Label
from uivlm.lessons.phrases import fillers, joined, kin, listed, phrase, to_type, wrapped
from uivlm.lessons.pieces import Answer, Ask, Piece, Show, Spot
from uivlm.lessons.shelf import Shelf, alone, count, field, page_without, some_texts, spot, told
from uivlm.lessons.words import FILLING, RELATED, SERIES, THERE, TURNING, WHOSE

LOOK_ON = finger.WAYS["up"]  # what is done where what was asked for is not on the screen


@dataclass(frozen=True, slots=True)
class Target:
    """A label to tap."""

    label: str
    said: tuple[str, ...]  # the label, or what belongs to it

    @property
    def by_kin(self) -> bool:
        return self.said != (self.label,)

    @property
    def answering(self) -> set[str]:
        """All labels that what was said may mean."""
        return {self.label, *self.said}.union(*(WHOSE.get(one, ()) for one in self.said))


def hunt(rng: Random, shelf: Shelf, related: float) -> Iterator[Piece]:
    """Labels to tap wherever they are, and often a text to type wherever that is possible."""
    targets = [_target(rng, shelf, related) for _ in range(rng.choice((1, 1, 2, 3)))]
    typed = phrase(rng) if rng.random() < 0.5 else ""
    parts = [wrapped(rng, joined(rng, target.said)) for target in targets]
    yield Ask(listed(rng, parts + ([to_type(rng, typed)] if typed else [])))
    while True:
        yield from _next(rng, shelf, targets, typed)


def _target(rng: Random, shelf: Shelf, related: float) -> Target:
    group = rng.choice(RELATED)
    labels = [label for label in group if label in shelf.places]
    if labels and rng.random() < related:
        label = rng.choice(labels)
        return Target(label, kin(rng, label, group[label]))
    text = rng.choice(some_texts(rng, shelf))
    return Target(text, (text,))


def remember(rng: Random, shelf: Shelf) -> Iterator[Piece]:
    """A screen says what a key stands for; on later ones that value is to be tapped, or typed."""
    page, label = rng.choice(shelf.telling)
    yield Ask(wrapped(rng, f"what {label.text} says"))
    yield Show(page, told(label))
    yield Answer(Finish("complete"))
    while True:
        yield from _next(rng, shelf, [Target(label.value, (label.value,))], label.value)


def turn(rng: Random, shelf: Shelf) -> Iterator[Piece]:
    """One of a series is asked for, mostly with something to tap there. Screens show another one, which is passed by
    whatever else it shows, or the wanted one."""
    at = rng.randrange(len(SERIES))
    series = SERIES[at]
    page, wanted = rng.choice(shelf.turning[at])
    sought = _beside(rng, shelf, page, series) if rng.random() < 0.6 else None
    said = THERE if sought else TURNING
    asked = rng.choice(said).format(wanted.text, sought.text if sought else "")
    yield Ask(" ".join((asked, *fillers(rng, (0, 0, 1, 2, 4)))))
    while True:
        other_page, other = rng.choice(shelf.turning[at])
        if rng.random() < 0.35:
            yield Show(page, spot(sought or wanted))
            yield Answer(Tap(sought.at) if sought else Finish("complete"))
        elif other.text != wanted.text:
            later = series.index(wanted.text) > series.index(other.text)
            yield Show(other_page, Spot(other.box, (other.text,)))
            yield Answer(finger.WAYS["left" if later else "right"])


def _beside(rng: Random, shelf: Shelf, page: int, series: Sequence[str]) -> Label | None:
    """Another label of the page, shown once."""
    shown = shelf.pages[page]
    others = [label for label in shown.labels if label.text not in series and count(shown, label.text) == 1]
    return rng.choice(others) if others else None


def form(rng: Random, shelf: Shelf) -> Iterator[Piece]:
    """Texts for fields, each to be typed where its field has the focus."""
    fields = {hint: page for page, hint in rng.sample(shelf.typing, rng.choice((1, 2, 2, 3)))}
    texts = {hint: phrase(rng) for hint in fields}
    parts = [rng.choice(FILLING).format(hint, text) for hint, text in texts.items()]
    yield Ask(listed(rng, [" ".join((*fillers(rng, (0, 1, 2, 4)), part)) for part in parts]))
    while True:
        if rng.random() < 0.8:
            hint = rng.choice(tuple(fields))
            yield Show(fields[hint], field(shelf.pages[fields[hint]]))
            yield Answer(Type(texts[hint]))
        else:
            yield Show(page_without(rng, shelf, {*texts, *texts.values()}, range(len(shelf.pages))))
            yield Answer(LOOK_ON)


def _next(rng: Random, shelf: Shelf, targets: Sequence[Target], typed: str) -> Iterator[Piece]:
    """One more screen: with one of the targets alone, with none, or with a field for the text."""
    draw = rng.random()
    target = rng.choice(targets)
    named = set[str]().union(*(one.answering for one in targets))
    if typed and draw < 0.25:
        yield Show(rng.choice(shelf.typing)[0])
        yield Answer(Type(typed))
    elif draw < 0.8 and (found := alone(rng, shelf, target.label, named - {target.label})):
        page, label = found
        yield Show(page, spot(label))
        yield Answer(Tap(label.at))
    else:
        by_kin = any(one.by_kin for one in targets)
        yield Show(page_without(rng, shelf, named, shelf.akin if by_kin else range(len(shelf.pages))))
        yield Answer(LOOK_ON)
