"""The rules of Auto-UI's code: four standard swipes, in the recorded actions too, and typed texts without
quotes.

Predictions are changed as its data preparation changes the recorded actions, since a model trained on that
data would predict them so. Texts are compared without case, and the predicted one without outer spaces. Its
defects: until July 2024 swipes left and right had the points of those up and down; in place of an invalid
prediction, the one before it is scored again; a step whose screen has no box is wrong, since the matcher
raises; and an empty text is contained in every other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from uivlm.actions.action import Action, Point, Swipe, Tap, Type
from uivlm.evaluation.breakdown import swipe_direction
from uivlm.evaluation.protocols.prediction import (
    STANDARD_SWIPES,
    ProtocolResult,
    StepPrediction,
    aitw_matches,
    aitw_type,
    mean,
    texts_match,
    typed_text,
)

STRIP_QUOTES = str.maketrans("", "", "\\\"'")
NUM_DECIMALS = 4  # of a tap's coordinates


def apply_rules(predictions: Sequence[StepPrediction], as_released: bool) -> ProtocolResult:
    scored = _repeat_last_valid(predictions) if as_released else predictions
    rows = [_alter_prediction(prediction, as_released) for prediction in scored]
    correct = [
        is_correct and not (as_released and not len(row.boxes))
        for row, is_correct in zip(rows, aitw_matches(rows), strict=True)
    ]
    same_text = [
        is_correct
        and texts_match(typed_text(row.predicted).lower().strip(), typed_text(row.gold).lower(), as_released)
        for row, is_correct in zip(rows, correct, strict=True)
    ]
    same_type = [aitw_type(row.predicted) == aitw_type(row.gold) for row in rows]
    metrics = {"type": mean(same_type), "text": mean(same_text)}  # over all steps
    return ProtocolResult(rows, correct, metrics)


def _alter_prediction(prediction: StepPrediction, as_released: bool) -> StepPrediction:
    predicted = None if prediction.predicted is None else _alter_action(prediction.predicted, as_released)
    return replace(prediction, gold=_alter_action(prediction.gold, as_released), predicted=predicted)


def _alter_action(action: Action, as_released: bool) -> Action:
    match action:
        case Tap(at):
            return Tap(Point(round(at.y, NUM_DECIMALS), round(at.x, NUM_DECIMALS)))
        case Swipe():
            axis, sign = swipe_direction(action)
            return STANDARD_SWIPES[0 if as_released else axis, sign]
        case Type(text):
            return Type(text.translate(STRIP_QUOTES))
        case _:
            return action


def _repeat_last_valid(predictions: Sequence[StepPrediction]) -> Iterator[StepPrediction]:
    last: Action | None = None
    for prediction in predictions:
        last = last if prediction.predicted is None else prediction.predicted
        yield replace(prediction, predicted=last, missing=prediction.missing and last is None)
