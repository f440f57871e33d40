"""Auto-UI's code: four strokes for all swipes, in what was recorded too, and quotes taken from typed texts.

What its data preparation does to the reference is done to the answers alike, as a model trained on that data would give them.
Its defects: until July 2024 strokes to the left and right had the points of those up and down; where an answer cannot be
read, the one before it is scored again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from uivlm.actions.action import Action, Point, Swipe, Tap, Type
from uivlm.evaluation.details import way
from uivlm.evaluation.protocols.answer import (
    STROKES,
    Answer,
    Judged,
    by_aitw,
    holds,
    mean,
    text_of,
    type_of,
)

QUOTES = str.maketrans("", "", "\\\"'")
PLACES = 4  # of a tap's coordinates


def judge(answers: Sequence[Answer], defects: bool) -> Judged:
    rows = [_altered(one, defects) for one in (_repeated(answers) if defects else answers)]
    right = by_aitw(rows)
    same_text = [
        yes and holds(text_of(one.guess), text_of(one.gold)) for one, yes in zip(rows, right, strict=True)
    ]
    same_type = [type_of(one.guess) == type_of(one.gold) for one in rows]
    return Judged(rows, right, {"type": mean(same_type), "text": mean(same_text)})  # both over all steps


def _altered(one: Answer, defects: bool) -> Answer:
    guess = None if one.guess is None else _in_its_data(one.guess, defects)
    return replace(one, gold=_in_its_data(one.gold, defects), guess=guess)


def _in_its_data(action: Action, defects: bool) -> Action:
    match action:
        case Tap(at):
            return Tap(Point(round(at.y, PLACES), round(at.x, PLACES)))
        case Swipe():
            axis, sense = way(action)
            return STROKES[0 if defects else axis, sense]
        case Type(text):
            return Type(text.translate(QUOTES))
        case _:
            return action


def _repeated(answers: Sequence[Answer]) -> Iterator[Answer]:
    last: Action | None = None
    for one in answers:
        last = last if one.guess is None else one.guess
        yield replace(one, guess=last)
