"""AndroidControl's step accuracy: a tap on the recorded element, the same direction, the same text, or an
equal action.

If no annotated box contains the recorded point, AITW's distance decides, as in the code of OS-Atlas for this
data; `taps_by_distance` is the share of these among the recorded taps. Texts are compared without case,
letter width and extra spaces, which is our adaptation.
"""

from collections.abc import Sequence

import numpy as np

from uivlm.actions.action import Swipe, Tap, Type
from uivlm.actions.aitw import MATCH_DISTANCE, distance
from uivlm.evaluation.breakdown import normalize_text, swipe_direction
from uivlm.evaluation.protocols.prediction import ProtocolResult, StepPrediction, boxes_contain, mean


def apply_rules(predictions: Sequence[StepPrediction]) -> ProtocolResult:
    by_distance = mean(
        not boxes_contain(p.boxes, p.gold.at).any() for p in predictions if isinstance(p.gold, Tap)
    )
    correct = [_is_correct(prediction) for prediction in predictions]
    return ProtocolResult(predictions, correct, {"taps_by_distance": by_distance})


def _is_correct(prediction: StepPrediction) -> bool:
    match prediction.predicted, prediction.gold:
        case Tap(at), Tap(recorded):
            elements = prediction.boxes[boxes_contain(prediction.boxes, recorded)]
            if not len(elements):
                return bool(distance(at, recorded) <= MATCH_DISTANCE)
            element = elements[np.prod(elements[:, 2:], axis=1).argmin()]  # the smallest
            return bool(boxes_contain(element[None], at)[0])
        case Swipe() as predicted, Swipe() as gold:
            return swipe_direction(predicted) == swipe_direction(gold)
        case Type(text), Type(gold_text):
            return normalize_text(text) == normalize_text(gold_text)
        case predicted, gold:
            return predicted == gold
