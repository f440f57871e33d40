"""Validation during training: the loss and the share of right actions on episodes that are not trained on.

In: the model and windows of those episodes. Out: metrics by action type. Within an action, too, each token is
predicted from the recorded tokens before it, so one forward pass scores all actions of a sentence. A model
that generates freely (`uivlm eval`) can differ after its first wrong token.
"""

from collections.abc import Callable

import numpy as np
import torch
from accelerate.utils import send_to_device
from torch import Tensor, nn

from uivlm.actions.action import InvalidAction
from uivlm.actions.matching import matches
from uivlm.actions.text import ACTION_TYPES, action_type
from uivlm.episodes.encode import IGNORE, Processor
from uivlm.episodes.episode import boxes_of
from uivlm.episodes.sentence import PromptFormat, RenderedStep
from uivlm.models.multimodal import token_losses
from uivlm.training.collator import LOG_ONLY_KEYS, Collator
from uivlm.training.dataset import WindowDataset


@torch.no_grad()
def validate(
    model: nn.Module,
    dataset: WindowDataset,
    rank: int,
    world_size: int,
    all_reduce: Callable[[Tensor], Tensor],
) -> dict[str, float]:
    """Metrics of the whole dataset; each process scores its share, and `all_reduce` sums over processes.

    `eval_partial_match`: share of right steps. `eval_partial_match_TYPE`: the same for one action type.
    `eval_loss`: nats per trained token.
    """
    num_correct = torch.zeros(len(ACTION_TYPES), dtype=torch.float64)
    num_steps, loss = torch.zeros_like(num_correct), torch.zeros(2, dtype=torch.float64)
    processor, device = dataset.processor, next(model.parameters()).device
    collate = Collator(processor.pad_id, processor.image_token_id)
    was_training = model.training
    model.eval()
    for first in range(0, len(dataset), world_size):
        index = first + rank
        # ZeRO-3 gathers weights, so all processes run equally many forwards; one without a share drops its
        # result
        window, example = dataset.window(index if index < len(dataset) else first)
        inputs = {name: value for name, value in collate([example]).items() if name not in LOG_ONLY_KEYS}
        inputs = send_to_device(inputs, device)
        outputs = model(**inputs)
        if index >= len(dataset):
            continue
        losses = token_losses(outputs, inputs["labels"])
        loss += torch.tensor([float(losses.sum()), len(losses)])
        trained_ids = example.labels[example.labels != IGNORE]
        ends = np.flatnonzero(trained_ids == processor.eos_id) + 1  # of the actions
        predicted = np.split(outputs.logits.argmax(-1).cpu().numpy(), ends[:-1])
        for step, token_ids in zip(window.steps[window.first_trained :], predicted, strict=True):
            i = ACTION_TYPES.index(action_type(step.action))
            num_steps[i] += 1
            num_correct[i] += _is_correct(token_ids.tolist(), step, dataset.prompt_format, processor)
    model.train(was_training)
    num_correct, num_steps, loss = all_reduce(torch.cat([num_correct, num_steps, loss])).split(
        [len(ACTION_TYPES), len(ACTION_TYPES), 2]
    )
    return {
        "eval_partial_match": float(num_correct.sum() / num_steps.sum()),
        "eval_loss": float(loss[0] / loss[1]),
        **{
            f"eval_partial_match_{name.replace(' ', '_')}": float(correct / steps)
            for name, correct, steps in zip(ACTION_TYPES, num_correct, num_steps, strict=True)
            if steps
        },
    }


def _is_correct(
    token_ids: list[int], gold: RenderedStep, prompt_format: PromptFormat, processor: Processor
) -> bool:
    *text_ids, last = token_ids
    if last != processor.eos_id or not all(processor.is_text_token(token) for token in text_ids):
        return False
    predicted = prompt_format.action_text.parse(processor.decode(text_ids))
    return not isinstance(predicted, InvalidAction) and matches(predicted, gold.action, boxes_of(gold.screen))
