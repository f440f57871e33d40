"""Lessons for the pre-training of the tiny base: words to find, keep in mind, type or judge, on random screens.

In: a seeded random generator and a shelf of random screens (`devices.sim.interface`). Out: lessons in the grammar of
fine-tuning with the one right action on each screen, and more questions than a phone's goal would ask; and where on the
screen the answer stands. One screen has nothing to do with the next but the words that are asked for. No phone runs,
there is no goal and no episode.
"""

from collections.abc import Iterator
from random import Random

from uivlm.actions.action import Action, Finish, Key, Press, Swipe, Tap, Type
from uivlm.devices.sim import finger
from uivlm.lessons.kinds import LOOK_ON, form, hunt, remember, turn
from uivlm.lessons.phrases import fillers, phrase, to_type
from uivlm.lessons.pieces import Answer, Ask, Lesson, Piece, Show
from uivlm.lessons.shelf import Shelf, count, some_texts, spot, told

KEYS: tuple[Key, ...] = ("back", "home", "enter")


def lesson(rng: Random, shelf: Shelf, screens: int, questions: int = 0, related: float = 0.0) -> Lesson:
    """What is asked for, then screens: each with the right action, and its share of so many more questions.

    It is questions that teach, and a question costs less than a screen. `related`: how often the goal names what
    belongs to the label that is to be tapped, instead of the label.
    """
    steps = _steps(rng, shelf, screens, related)
    pieces: list[Piece] = [next(steps)]
    for _ in range(screens):
        shown, answer = next(steps), next(steps)
        assert isinstance(shown, Show)
        pieces += (shown, answer)
        for _ in range(questions // screens):
            pieces += _question(rng, shelf, shown.page)
    return tuple(pieces)


def _steps(rng: Random, shelf: Shelf, screens: int, related: float) -> Iterator[Piece]:
    draw = rng.random()
    if draw < 0.1:
        return turn(rng, shelf)
    if draw < 0.22:
        return form(rng, shelf)
    return remember(rng, shelf) if screens > 1 and draw < 0.5 else hunt(rng, shelf, related)


def _question(rng: Random, shelf: Shelf, page: int) -> Iterator[Ask | Answer]:
    """About the screen before, or a text to type."""
    labels = [label for label in shelf.pages[page].labels if count(shelf.pages[page], label.text) == 1]
    telling = [label for label in labels if label.told]
    draw = rng.random()
    if telling and draw < 0.3:
        label = rng.choice(telling)
        if label.on is None:
            yield Ask(f"what {label.text} says", told(label))
            yield Answer(Type(label.value))
        else:
            yield Ask(f"is {label.text} on", told(label))
            yield Answer(Finish("complete" if label.on else "impossible"))
    elif labels and draw < 0.63:
        label = rng.choice(labels)
        yield Ask(" ".join((*fillers(rng, (0, 1, 1, 2)), label.text)), spot(label))
        yield Answer(Tap(label.at))
    elif draw < 0.77:
        text = rng.choice(some_texts(rng, shelf))
        while count(shelf.pages[page], text):
            text = rng.choice(some_texts(rng, shelf))
        yield Ask(" ".join((*fillers(rng, (0, 1, 1, 2)), text)))
        yield Answer(LOOK_ON)
    elif draw < 0.98:
        text = phrase(rng)
        yield Ask(to_type(rng, text))
        yield Answer(Type(text))
    else:
        key = rng.choice(KEYS)
        yield Ask(f"press {key}")
        yield Answer(Press(key))


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
            return finger.swipe(rng, action)
        case _:
            return action
