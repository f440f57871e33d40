"""Lessons for the pre-training of the tiny base: find, remember, type or judge words on random screens.

In: a seeded random generator and indexed random screens. Out: lessons in the format of fine-tuning, with the
right action on each screen, many extra questions, and where on the screen the answer is. Consecutive screens
share nothing but the requested words: no phone runs, and there is no episode.
"""

from collections.abc import Iterator
from random import Random

from uivlm.actions.action import Action, Finish, Key, Press, Swipe, Tap, Type
from uivlm.devices.sim import touch_jitter
from uivlm.training.tiny_base.exercises import (
    SCROLL_FURTHER,
    fill_form,
    find_targets,
    remember_value,
    turn_pages,
)
from uivlm.training.tiny_base.phrases import filler_words, random_text, typing_request
from uivlm.training.tiny_base.screen_index import (
    Ask,
    ExpertAction,
    Lesson,
    Piece,
    ScreenIndex,
    Show,
    count_occurrences,
    label_spot,
    sample_texts,
    value_spot,
)

KEYS: tuple[Key, ...] = ("back", "home", "enter")


def random_lesson(
    rng: Random, index: ScreenIndex, num_screens: int, num_questions: int = 0, related_fraction: float = 0.0
) -> Lesson:
    """A goal, then screens, each with the right action and its share of `num_questions` more questions.

    Questions teach most, and a question costs less than a screen. `related_fraction`: how often the goal
    names something related to the label to tap, instead of the label.
    """
    steps = _random_exercise(rng, index, num_screens, related_fraction)
    pieces: list[Piece] = [next(steps)]
    for _ in range(num_screens):
        show, answer = next(steps), next(steps)
        assert isinstance(show, Show)
        pieces += (show, answer)
        for _ in range(num_questions // num_screens):
            pieces += _question(rng, index, show.page)
    return tuple(pieces)


def _random_exercise(
    rng: Random, index: ScreenIndex, num_screens: int, related_fraction: float
) -> Iterator[Piece]:
    draw = rng.random()
    if draw < 0.1:
        return turn_pages(rng, index)
    if draw < 0.22:
        return fill_form(rng, index)
    return (
        remember_value(rng, index)
        if num_screens > 1 and draw < 0.5
        else find_targets(rng, index, related_fraction)
    )


def _question(rng: Random, index: ScreenIndex, page: int) -> Iterator[Ask | ExpertAction]:
    """A question about the previous screen, or a text to type, and its answer."""
    labels = [
        label for label in index.pages[page].items if count_occurrences(index.pages[page], label.text) == 1
    ]
    with_value = [label for label in labels if label.value_box]
    draw = rng.random()
    if with_value and draw < 0.3:
        label = rng.choice(with_value)
        if label.switch_on is None:
            yield Ask(f"what {label.text} says", value_spot(label))
            yield ExpertAction(Type(label.value))
        else:
            yield Ask(f"is {label.text} on", value_spot(label))
            yield ExpertAction(Finish("complete" if label.switch_on else "impossible"))
    elif labels and draw < 0.63:
        label = rng.choice(labels)
        yield Ask(" ".join((*filler_words(rng, (0, 1, 1, 2)), label.text)), label_spot(label))
        yield ExpertAction(Tap(label.tap_point))
    elif draw < 0.77:
        text = rng.choice(sample_texts(rng, index))
        while count_occurrences(index.pages[page], text):
            text = rng.choice(sample_texts(rng, index))
        yield Ask(" ".join((*filler_words(rng, (0, 1, 1, 2)), text)))
        yield ExpertAction(SCROLL_FURTHER)
    elif draw < 0.98:
        text = random_text(rng)
        yield Ask(typing_request(rng, text))
        yield ExpertAction(Type(text))
    else:
        key = rng.choice(KEYS)
        yield Ask(f"press {key}")
        yield ExpertAction(Press(key))


def with_touch_jitter(rng: Random, lesson: Lesson) -> Lesson:
    """The lesson with the points of its answers jittered, as a finger does."""
    return tuple(
        ExpertAction(_jitter(rng, piece.action)) if isinstance(piece, ExpertAction) else piece
        for piece in lesson
    )


def _jitter(rng: Random, action: Action) -> Action:
    match action:
        case Tap(at):
            return touch_jitter.jittered_tap(rng, at)
        case Swipe():
            return touch_jitter.jittered_swipe(rng, action)
        case _:
            return action
