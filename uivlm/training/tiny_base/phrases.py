"""Random phrasings of requests. In: a seeded random generator and what is meant. Out: text."""

from collections.abc import Sequence
from random import Random

from uivlm.devices.sim.labels import lexicon
from uivlm.training.tiny_base.vocabulary import (
    FILLER_WORDS,
    RELATED_ITEMS,
    SELF_EVIDENT_LABELS,
    TYPE_TEMPLATES,
)


def wrap_in_filler(rng: Random, text: str) -> str:
    """The text with some filler words around it, sometimes in lower case."""
    words = text.lower() if rng.random() < 0.1 else text
    return " ".join((*filler_words(rng, (0, 0, 1, 2, 3, 5)), words, *filler_words(rng, (0, 0, 0, 1, 2, 4))))


def filler_words(rng: Random, counts: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(rng.choice(FILLER_WORDS) for _ in range(rng.choice(counts)))


def join_shuffled(rng: Random, parts: Sequence[str]) -> str:
    """All parts, in random order."""
    return rng.choice((", ", " and ")).join(rng.sample(parts, len(parts)))


def random_text(rng: Random) -> str:
    """One to four words to type, or some numbers."""
    if rng.random() < 0.25:
        return " ".join(str(rng.randrange(10, 100)) for _ in range(rng.choice((1, 2, 2, 3))))
    return " ".join(rng.choice(lexicon()) for _ in range(rng.choice((1, 1, 2, 2, 3, 4))))


def typing_request(rng: Random, text: str) -> str:
    """A request to type the text."""
    return rng.choice(TYPE_TEMPLATES).format(text)


def related_words(rng: Random, label: str, cues: Sequence[str]) -> tuple[str, ...]:
    """A verb or an object that implies the label; mostly both."""
    things = RELATED_ITEMS.get(label, ())
    if not things or (cues and rng.random() < 0.25):
        return (rng.choice(cues),)
    if not cues or (label in SELF_EVIDENT_LABELS and rng.random() < 0.35):
        return (rng.choice(things),)
    return tuple(rng.sample((rng.choice(cues), rng.choice(things)), 2))


def join_with_filler(rng: Random, parts: Sequence[str]) -> str:
    """The parts with a few words between them."""
    return " ".join(word for part in parts for word in (*filler_words(rng, (0, 1, 2)), part))
