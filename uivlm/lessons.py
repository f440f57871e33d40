"""Lessons for the pre-training of the tiny base: words to find, keep in mind, type or judge, on random screens.

In: a seeded random generator. Out: sentences in the grammar of fine-tuning with the one right action on each screen, and
what each screen is asked for. The screens are drawn at random (`devices.sim.interface`): one has nothing to do with the
next but the words that are asked for. No phone runs, there is no goal and no episode.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from uivlm.actions.action import Action, Finish, Key, Press, Type
from uivlm.actions.language import Language
from uivlm.devices.sim import finger
from uivlm.devices.sim.interface import Label, interface, pair_screen, phrase, typing_screen
from uivlm.devices.sim.words import lexicon
from uivlm.episode import Screen
from uivlm.sentences.sentence import Picture, Sentence, Words

# Plain English around what is asked for.
ENGLISH = """
a about activate add address after again alarm all an and any app application apps are as at back be before
below bookmark bookmarks bring browse browser buy by call called can cart change chat check clear click
clock close come contact contacts could create delete did disable do does done down drop dismiss each enable
end enter find finish first fix for friend from get give go goes got has have head help her here him his
home how i if in into is it item its just keep know last launch leave let like line list load look make me
menu mentioned mention message messages minute move my name named need new next no not note notes now number
of off ok on once one onto open option or order our out over page panel pay people person phone pick place
please product pull purchase put read reminder remove reply ring run said save saved say saying says
schedule screen search see send set setting settings shop should show shut site so some start stop store
swipe switch take tap tell text that the their them then there these thing things this through time title to
toggle turn type under until up use using via view visit wake want was we web webpage website what whatever
when where which who whose will wish with within without word words would write written yes you your
"""
COMMON = tuple(ENGLISH.split())
# Words of actions, and of the questions below.
SPOKEN = """
tap at swipe from to Input text press back home enter complete impossible what says is on type
up down left right plus more search
"""


def vocabulary() -> tuple[str, ...]:
    """Every word of a lesson: the phone's, common English, and those of actions and questions."""
    return (*lexicon(), *COMMON, *(word.capitalize() for word in COMMON), *SPOKEN.split())


LOOK_ON: finger.Direction = "up"  # the swipe where what was asked for is not on the screen


KEYS: tuple[Key, ...] = ("back", "home", "enter")
WAYS: tuple[finger.Direction, ...] = ("up", "down", "left", "right")


@dataclass(frozen=True, slots=True)
class Lesson:
    """A sentence whose right actions are trained, and for each of its screens the labels it asks for."""

    sentence: Sentence
    asked: tuple[tuple[Label, ...], ...]


def lesson(rng: Random, bins: int, screens: int = 3) -> Lesson:
    """One sentence over some random screens."""
    say = Language(bins).say
    match rng.random():
        case p if p < 0.5:
            return _hunt(rng, say, screens)
        case p if p < 0.75:
            return _remember(rng, say, screens)
        case _:
            return _obey(rng, say, screens)


def _answer(words: str) -> Words:
    return Words(words, trained=True, closed=True)


def _fillers(rng: Random, counts: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(rng.choice(COMMON) for _ in range(rng.choice(counts)))


def _wrapped(rng: Random, text: str) -> str:
    """The text as people write: some words around it, sometimes in small letters."""
    words = text.lower() if rng.random() < 0.1 else text
    return " ".join((*_fillers(rng, (0, 0, 1, 2, 3)), words, *_fillers(rng, (0, 0, 0, 1, 2))))


def _hunt(rng: Random, say: Callable[[Action], str], screens: int) -> Lesson:
    """Words first, then screens: each shows one of them, or none (look on)."""
    targets = tuple(dict.fromkeys(phrase(rng) for _ in range(rng.choice((1, 1, 2, 3)))))
    pieces: list[Words | Picture] = [Words(", ".join(_wrapped(rng, t) for t in targets) + "\n")]
    asked = []
    for _ in range(screens):
        target = rng.choice(targets) if rng.random() < 0.85 else None
        pieces += (seek := _seek(rng, say, target, targets))[0]
        asked.append(seek[1])
    return Lesson(tuple(pieces), tuple(asked))


def _seek(
    rng: Random, say: Callable[[Action], str], target: str | None, banned: tuple[str, ...]
) -> tuple[list[Words | Picture], tuple[Label, ...]]:
    """A random screen with the target, where there is one, and the action that follows; and the label that it is on."""
    shown = interface(rng, (target,) if target else (), tuple(t for t in banned if t != target))
    found = tuple(label for label in shown.labels if label.text == target)
    return [
        Picture(shown.screen),
        Words("\n"),
        _answer(say(finger.tap(rng, found[0].at) if found else finger.swipe(rng, LOOK_ON))),
    ], found


def _remember(rng: Random, say: Callable[[Action], str], screens: int) -> Lesson:
    """A screen says what a key stands for; on a later one that value is to be tapped, or typed."""
    key, value = phrase(rng, 2), phrase(rng, 1)
    while value == key:
        value = phrase(rng, 1)
    pieces: list[Words | Picture] = [
        Words(_wrapped(rng, f"what {key} says") + "\n"),
        Picture(pair_screen(rng, key, value, _fillers(rng, (0, 1, 2)))),
    ]
    pieces += [Words("\n"), _answer(say(Finish("complete")))]
    asked: list[tuple[Label, ...]] = [()]
    for _ in range(screens - 1):
        if rng.random() < 0.3:
            pieces += [Picture(typing_screen(rng)), Words("\n"), _answer(say(Type(value)))]
            asked.append(())
        else:
            pieces += (seek := _seek(rng, say, value if rng.random() < 0.8 else None, (value,)))[0]
            asked.append(seek[1])
    return Lesson(tuple(pieces), tuple(asked))


def _obey(rng: Random, say: Callable[[Action], str], screens: int) -> Lesson:
    """Do what the words before each screen say."""
    pieces: list[Words | Picture] = []
    asked: list[tuple[Label, ...]] = []
    for _ in range(screens):
        match rng.random():
            case p if p < 0.35:
                words, screen, action, labels = _copy(rng)
            case p if p < 0.8:
                words, screen, action, labels = _judge(rng)
            case _:
                words, screen, action, labels = _move(rng)
        pieces += [Words(f"{words}\n"), Picture(screen), Words("\n"), _answer(say(action))]
        asked.append(labels)
    return Lesson(tuple(pieces), tuple(asked))


Exercise = tuple[str, Screen, Action, tuple[Label, ...]]  # words, screen, right action, what is asked for


def _copy(rng: Random) -> Exercise:
    """Type what the words say."""
    text = phrase(rng, 4)
    return " ".join((*_fillers(rng, (0, 0, 1, 2, 3)), "type", text)), typing_screen(rng), Type(text), ()


def _judge(rng: Random) -> Exercise:
    """Is a switch on? What stands beside a label?"""
    labels: list[Label] = []
    while not labels:
        shown = interface(rng)
        labels = [label for label in shown.labels if label.value or label.on is not None]
    label = rng.choice(labels)
    if label.on is not None:
        return f"is {label.text} on", shown.screen, Finish("complete" if label.on else "impossible"), (label,)
    return f"what {label.text} says", shown.screen, Type(label.value), (label,)


def _move(rng: Random) -> Exercise:
    """Press a key or swipe."""
    screen = interface(rng).screen
    if rng.random() < 0.4:
        key = rng.choice(KEYS)
        return f"press {key}", screen, Press(key), ()
    way = rng.choice(WAYS)
    return f"swipe {way}", screen, finger.swipe(rng, way), ()
