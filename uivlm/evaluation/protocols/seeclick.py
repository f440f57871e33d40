"""SeeClick's code, and ShowUI's, which follows it: the answer's swipes are four strokes, what was recorded stays as it is.

Their defects: a step without any answer (an error, a missing image) leaves the denominator; the shares by kind leave out
answers that cannot be read; an empty typed text, which every text holds, is right. ShowUI's own: the numbers of a screen's
boxes are cut into groups as long as the history.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from uivlm.actions.action import Swipe, Tap, Type
from uivlm.evaluation.details import way
from uivlm.evaluation.protocols.answer import (
    STROKES,
    Answer,
    Boxes,
    Judged,
    by_aitw,
    holds,
    mean,
    text_of,
    type_of,
)

HISTORY = 4  # ShowUI's: screens of the past, and by its defect numbers of a box


def judge(answers: Sequence[Answer], defects: bool, cut: int | None = None) -> Judged:
    """`cut`: numbers of a box, by ShowUI's defect."""
    rows = [_stroke(one) for one in answers if not (defects and one.missing)]
    if cut is not None:
        rows = [replace(one, boxes=regrouped(one.boxes, cut)) for one in rows]
    right = by_aitw(rows)
    pairs = list(zip(rows, right, strict=True))

    def share(kind: type, value: Callable[[Answer, bool], bool]) -> float:
        """By the kind of what was recorded."""
        counted = (p for p in pairs if isinstance(p[0].gold, kind) and not (defects and p[0].guess is None))
        return mean(value(*pair) for pair in counted)

    more = {
        "type": mean(type_of(one.guess) == type_of(one.gold) for one in rows),
        "click": share(Tap, lambda _, yes: yes),
        "scroll": share(Swipe, lambda _, yes: yes),
        "text": share(Type, lambda one, _: _same_text(one, defects)),
    }
    return Judged(rows, right, more)


def _stroke(one: Answer) -> Answer:
    return replace(one, guess=STROKES[way(one.guess)]) if isinstance(one.guess, Swipe) else one


def _same_text(one: Answer, defects: bool) -> bool:
    guess, gold = text_of(one.guess), text_of(one.gold)
    return isinstance(one.guess, Type) and holds(guess, gold) and (defects or bool(guess) or not gold)


def regrouped(boxes: Boxes, size: int) -> Boxes:
    """Of groups longer than a box the first four numbers are taken for one, shorter groups are none."""
    if size < 4:
        return np.zeros((0, 4))
    flat = boxes.reshape(-1)
    found = flat[: len(flat) - len(flat) % size].reshape(-1, size)[:, :4]
    return found[((found[:, 2:] >= 0) & (found[:, 2:] <= 1)).all(1)]
