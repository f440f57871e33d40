"""AndroidControl's step accuracy: a tap on the recorded element, the same direction, the same text, else the same action.

Where no annotated box holds the recorded point, AITW's distance decides; texts are compared but for case, width and spaces
(both ours).
"""

from collections.abc import Sequence

import numpy as np

from uivlm.actions.action import Swipe, Tap, Type
from uivlm.actions.aitw import MATCH_DISTANCE, distance
from uivlm.evaluation.details import normal, way
from uivlm.evaluation.protocols.answer import Answer, Judged, inside


def judge(answers: Sequence[Answer]) -> Judged:
    return Judged(answers, [_right(one) for one in answers])


def _right(one: Answer) -> bool:
    match one.guess, one.gold:
        case Tap(at), Tap(recorded):
            holding = one.boxes[inside(one.boxes, recorded)]
            if not len(holding):
                return bool(distance(at, recorded) <= MATCH_DISTANCE)
            element = holding[np.prod(holding[:, 2:], axis=1).argmin()]  # the smallest
            return bool(inside(element[None], at)[0])
        case Swipe() as guess, Swipe() as gold:
            return way(guess) == way(gold)
        case Type(guess), Type(gold):
            return normal(guess) == normal(gold)
        case guess, gold:
            return guess == gold
