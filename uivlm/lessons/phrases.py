"""What people say: in a seeded random generator and what is meant, out words."""

from collections.abc import Sequence
from random import Random

from uivlm.devices.sim.words import lexicon
from uivlm.lessons.words import NEUTRAL, TELLING, THINGS, TYPING


def wrapped(rng: Random, text: str) -> str:
    """The text as people write: some words around it, sometimes in small letters."""
    words = text.lower() if rng.random() < 0.1 else text
    return " ".join((*fillers(rng, (0, 0, 1, 2, 3, 5)), words, *fillers(rng, (0, 0, 0, 1, 2, 4))))


def fillers(rng: Random, counts: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(rng.choice(NEUTRAL) for _ in range(rng.choice(counts)))


def listed(rng: Random, parts: Sequence[str]) -> str:
    """All of them, in any order."""
    return rng.choice((", ", " and ")).join(rng.sample(parts, len(parts)))


def phrase(rng: Random) -> str:
    """One to four words to type, or some numbers."""
    if rng.random() < 0.25:
        return " ".join(str(rng.randrange(10, 100)) for _ in range(rng.choice((1, 2, 2, 3))))
    return " ".join(rng.choice(lexicon()) for _ in range(rng.choice((1, 1, 2, 2, 3, 4))))


def to_type(rng: Random, text: str) -> str:
    """That the text is to be typed."""
    return rng.choice(TYPING).format(text)


def kin(rng: Random, label: str, cues: Sequence[str]) -> tuple[str, ...]:
    """What is done with it, or a thing that tells enough; mostly both, as people say it."""
    things = THINGS.get(label, ())
    if not things or (cues and rng.random() < 0.25):
        return (rng.choice(cues),)
    if not cues or (label in TELLING and rng.random() < 0.35):
        return (rng.choice(things),)
    return tuple(rng.sample((rng.choice(cues), rng.choice(things)), 2))


def joined(rng: Random, parts: Sequence[str]) -> str:
    """The parts with a few words between them."""
    return " ".join(word for part in parts for word in (*fillers(rng, (0, 1, 2)), part))
