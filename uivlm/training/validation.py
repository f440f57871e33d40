"""Validation during training: the loss and the share of right actions on episodes that are not trained on.

In: the model and windows of those episodes. Out: metrics by action type. Within an action, too, each token is
predicted from the recorded tokens before it, so one forward pass scores all actions of a sentence. A model
that generates freely (`uivlm eval`) can differ after its first wrong token. Thoughts have a loss of their
own. An action is scored after the recorded thought, so its score is higher than after the model's own.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from accelerate.utils import send_to_device
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from uivlm.actions.action import Action, InvalidAction
from uivlm.actions.matching import matches
from uivlm.actions.text import ACTION_TYPES, ActionText, action_type
from uivlm.episodes.encode import TOKEN_TYPES, Example, Processor
from uivlm.episodes.episode import boxes_of
from uivlm.episodes.rows import DamagedScreenError
from uivlm.models.device import local_device
from uivlm.models.multimodal import token_losses
from uivlm.training.collator import LOSS_KEYS, Collator
from uivlm.training.dataset import WindowDataset, loader_options

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GoldAction:
    action: Action
    boxes: NDArray[np.float64]  # of its screen: [n, 4]


EvalRow = tuple[Example, list[GoldAction]]
# Arguments of the model; the trained actions in order; of each trained token its id, and: is it of an action?
EvalBatch = tuple[dict[str, Any], list[GoldAction], Tensor, Tensor]


class EvalDataset(Dataset[EvalRow | None]):
    """Windows and their trained actions; None where a screen is damaged."""

    def __init__(self, windows: WindowDataset) -> None:
        self.windows = windows

    def __getitem__(self, index: int) -> EvalRow | None:
        try:
            window, example = self.windows.window(index, with_elements=True)
        except DamagedScreenError as error:
            LOGGER.warning("validation: %s", error)
            return None
        steps = window.steps[window.first_trained :]
        return example, [GoldAction(step.action, boxes_of(step.screen)) for step in steps]


@dataclass(frozen=True, slots=True)
class EvalCollator:
    collate: Collator

    def __call__(self, read: list[EvalRow | None]) -> EvalBatch:
        rows = [row for row in read if row is not None]
        batch: dict[str, Any] = self.collate([example for example, _ in rows])
        inputs = {name: value for name, value in batch.items() if name not in LOSS_KEYS}
        in_action = batch["action_types"] != TOKEN_TYPES.index("thought")
        return inputs, [gold for _, golds in rows for gold in golds], batch["labels"], in_action


def make_eval_loader(
    windows: WindowDataset, batch_size: int, num_workers: int, rank: int, num_processes: int
) -> DataLoader[EvalBatch]:
    """The batches of one process; all processes have equally many. The longest rows come first."""
    lengths, processor = windows.num_tokens, windows.processor
    order = sorted(range(len(windows)), key=lambda i: -lengths[i])
    batches = [order[first : first + batch_size] for first in range(0, len(order), batch_size)]
    batches += [[]] * (-len(batches) % num_processes)  # sharded weights are gathered in every forward pass
    return DataLoader(
        EvalDataset(windows),  # type: ignore[arg-type]  # a loader is generic in its rows, not its batches
        batch_sampler=batches[rank::num_processes],
        collate_fn=EvalCollator(Collator(processor.pad_id, processor.image_token_id)),
        generator=torch.Generator(),  # its own: a validation must not change the dropout of later steps
        pin_memory=torch.cuda.is_available(),
        # workers end with each validation, since they would wait for a tenth of the run
        **loader_options(num_workers) | {"persistent_workers": False},
    )


@torch.no_grad()
def validate(
    model: nn.Module, loader: DataLoader[EvalBatch], all_reduce: Callable[[Tensor], Tensor]
) -> dict[str, float]:
    """Metrics of the whole dataset; each process scores its share, and `all_reduce` sums over processes.

    `eval_partial_match`: share of right steps. `eval_partial_match_TYPE`: the same for one action type.
    `eval_loss`: nats per trained token of actions; `eval_loss_thought`: of thoughts. Sentences with a damaged
    screen are left out.
    """
    assert isinstance(loader.dataset, EvalDataset)
    processor = loader.dataset.windows.processor
    action_text = loader.dataset.windows.prompt_format.action_text
    num_correct = torch.zeros(len(ACTION_TYPES), dtype=torch.float64)
    num_steps, loss = torch.zeros_like(num_correct), torch.zeros(4, dtype=torch.float64)
    device, was_training = local_device(), model.training  # weights may be elsewhere
    model.eval()
    for inputs, golds, labels, in_action in loader:
        outputs = model(**send_to_device(inputs, device))
        losses = token_losses(outputs, labels.to(device))
        loss += _loss_sums(losses, in_action)
        split = _split(outputs, labels, in_action, processor)
        for token_ids, gold in zip(split, golds, strict=True):
            i = ACTION_TYPES.index(action_type(gold.action))
            num_steps[i] += 1
            num_correct[i] += _is_correct(token_ids, gold, action_text, processor)
    model.train(was_training)
    num_correct, num_steps, loss = all_reduce(torch.cat([num_correct, num_steps, loss])).split(
        [len(ACTION_TYPES), len(ACTION_TYPES), 4]
    )
    return {
        "eval_partial_match": float(num_correct.sum() / num_steps.sum()),
        "eval_loss": float(loss[0] / loss[1]),
        **({"eval_loss_thought": float(loss[2] / loss[3])} if loss[3] else {}),
        **{
            f"eval_partial_match_{name.replace(' ', '_')}": float(correct / steps)
            for name, correct, steps in zip(ACTION_TYPES, num_correct, num_steps, strict=True)
            if steps
        },
    }


def _loss_sums(losses: Tensor, in_action: Tensor) -> Tensor:
    """Nats and tokens of actions, then of thoughts: float64 [4]."""
    losses = losses.double().cpu()
    parts = losses[in_action], losses[~in_action]
    return torch.tensor([number for part in parts for number in (float(part.sum()), len(part))]).double()


def _split(outputs: Any, labels: Tensor, in_action: Tensor, processor: Processor) -> list[list[int]]:
    """The predicted ids of each trained action, row by row, without those of thoughts."""
    predicted = outputs.logits.argmax(-1).cpu()[in_action].tolist()
    ends = (labels[in_action] == processor.eos_id).nonzero().flatten() + 1
    return [predicted[start:end] for start, end in pairwise([0, *ends.tolist()])]


def _is_correct(
    token_ids: list[int], gold: GoldAction, action_text: ActionText, processor: Processor
) -> bool:
    *text_ids, last = token_ids
    if last != processor.eos_id or not all(processor.is_text_token(token) for token in text_ids):
        return False
    predicted = action_text.parse(processor.decode(text_ids))
    return not isinstance(predicted, InvalidAction) and matches(predicted, gold.action, gold.boxes)
