"""The rules of SeeClick's code, and of ShowUI's, which follows it: swipes, the recorded ones too, become one
of four standard swipes, and texts are compared without case.

Their defects: a step without a prediction (an error, a missing image) leaves the denominator; the accuracies
by action type leave out invalid predictions; where the screen has no box the matcher raises, and the
prediction counts as invalid; an empty text, which every text contains, is correct, and so is any action
without a text where one was typed. ShowUI's own defect: the numbers of a screen's boxes are regrouped into
groups as long as the history.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from uivlm.actions.action import Action, Swipe, Tap, Type
from uivlm.evaluation.breakdown import swipe_direction
from uivlm.evaluation.protocols.prediction import (
    STANDARD_SWIPES,
    Boxes,
    ProtocolResult,
    StepPrediction,
    aitw_matches,
    aitw_type,
    mean,
    texts_match,
    typed_text,
)

SHOWUI_HISTORY = 4  # past screens of ShowUI, and by its defect the numbers of a box


def apply_rules(
    predictions: Sequence[StepPrediction], as_released: bool, box_group_size: int | None = None
) -> ProtocolResult:
    """`box_group_size`: regroup the numbers of the boxes, by ShowUI's defect."""
    rows = [_alter_prediction(p) for p in predictions if not (as_released and p.missing)]
    if box_group_size is not None:
        rows = [replace(row, boxes=regroup_boxes(row.boxes, box_group_size)) for row in rows]
    if as_released:
        rows = [row if len(row.boxes) else replace(row, predicted=None) for row in rows]
    correct = aitw_matches(rows)
    pairs = list(zip(rows, correct, strict=True))

    def share(action_class: type, value: Callable[[StepPrediction, bool], bool]) -> float:
        """The mean over steps whose recorded action is of that class."""
        of_class = [(row, is_correct) for row, is_correct in pairs if isinstance(row.gold, action_class)]
        counted = [p for p in of_class if not (as_released and p[0].predicted is None)]
        return mean(value(*pair) for pair in counted)

    metrics = {
        "type": mean(aitw_type(row.predicted) == aitw_type(row.gold) for row in rows),
        "click": share(Tap, lambda _, is_correct: is_correct),
        "scroll": share(Swipe, lambda _, is_correct: is_correct),
        "text": share(Type, lambda row, _: _same_text(row, as_released)),
    }
    return ProtocolResult(rows, correct, metrics)


def _alter_prediction(prediction: StepPrediction) -> StepPrediction:
    predicted = None if prediction.predicted is None else _to_standard_swipe(prediction.predicted)
    return replace(prediction, predicted=predicted, gold=_to_standard_swipe(prediction.gold))


def _to_standard_swipe(action: Action) -> Action:
    return STANDARD_SWIPES[swipe_direction(action)] if isinstance(action, Swipe) else action


def _same_text(prediction: StepPrediction, as_released: bool) -> bool:
    if not as_released and not isinstance(prediction.predicted, Type):
        return False
    text, gold = typed_text(prediction.predicted).lower(), typed_text(prediction.gold).lower()
    return texts_match(text, gold, as_released)


def regroup_boxes(boxes: Boxes, size: int) -> Boxes:
    """The first four numbers of each group of `size` numbers as a box.

    No box, and so no verdict, if `size` is below 4 or the last group is shorter than the others.
    """
    flat = boxes.reshape(-1)
    if size < 4 or len(flat) % size:
        return np.zeros((0, 4))
    return flat.reshape(-1, size)[:, :4]
