"""How well a model in training does on episodes that it is not trained on: their loss, and which actions it gets right.

In: the model and windows of those episodes. Out: figures by kind of action. Teacher-forced within an action too: each token
is the likeliest after the recorded ones before it. So one forward judges all actions of a sentence; an agent that speaks for
itself (`uivlm eval`) can differ where one wrong token leads to another.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from accelerate.utils import send_to_device
from numpy.typing import NDArray
from torch import Tensor, nn

from uivlm.actions.language import KINDS, NotAnAction
from uivlm.episode import Step
from uivlm.evaluation.match import boxes_of, matches
from uivlm.models.model import nll
from uivlm.sentences.encode import IGNORE
from uivlm.training.collator import ASIDE, Collator, Windows


@torch.no_grad()
def judge(
    model: nn.Module,
    given: Windows,
    process: int,
    processes: int,
    shared: Callable[[Tensor], Tensor],
) -> dict[str, float]:
    """Each process judges its share; `shared` adds a tensor up over all of them. `eval_match`: share of right steps,
    `eval_match_KIND`: of those of a kind; `eval_loss`: nats per trained token."""
    right = torch.zeros(len(KINDS), dtype=torch.float64)
    steps, nats = torch.zeros_like(right), torch.zeros(2, dtype=torch.float64)
    device = next(model.parameters()).device
    collate = Collator(given.reader.pad, given.reader.placeholder)
    training = model.training
    model.eval()
    for first in range(0, len(given), processes):
        mine = first + process
        # all processes run the same modules equally often (ZeRO-3 gathers weights): one without a share looks on
        window, row = given.window(mine if mine < len(given) else first)
        inputs = {name: part for name, part in collate([row]).items() if name not in ASIDE}
        inputs = send_to_device(inputs, device)
        outputs = model(**inputs)
        if mine >= len(given):
            continue
        told = nll(outputs, inputs["labels"])
        nats += torch.tensor([float(told.sum()), len(told)])
        said = outputs.logits.argmax(-1).tolist()
        for gold, part in zip(window.steps[window.first_trained :], _actions(row.labels, said), strict=True):
            number = int(row.kinds[part.start])
            steps[number] += 1
            right[number] += _is_right(said[part], gold, given)
    model.train(training)
    right, steps, nats = shared(torch.cat([right, steps, nats])).split([len(KINDS), len(KINDS), 2])
    return {
        "eval_match": float(right.sum() / steps.sum()),
        "eval_loss": float(nats[0] / nats[1]),
        **{
            f"eval_match_{name.replace(' ', '_')}": float(a / b)
            for name, a, b in zip(KINDS, right, steps, strict=True)
            if b
        },
    }


def _actions(labels: NDArray[np.int64], said: Sequence[int]) -> list[slice]:
    """Where each action lies among the trained tokens."""
    trained = labels != IGNORE
    begins = np.flatnonzero((trained[1:] & ~trained[:-1])[trained[1:]])
    return [slice(int(a), int(b)) for a, b in zip(begins, [*begins[1:], len(said)], strict=True)]


def _is_right(said: list[int], gold: Step, given: Windows) -> bool:
    reader = given.reader
    *words, end = said
    if end != reader.end or not all(reader.speaks(token) for token in words):
        return False
    guess = given.grammar.language.parse(reader.text(words))
    return not isinstance(guess, NotAnAction) and matches(guess, gold.action, boxes_of(gold.screen))
