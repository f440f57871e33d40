"""Examples -> a batch of tensors: padded on the right, or packed into one row.

In: examples of `episodes/encode.py`. Out: the arguments of a model's forward, and LOSS_KEYS. Whatever must be
counted is counted here, on the CPU: reading a value from a GPU waits for all work queued there.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uivlm.episodes.encode import IGNORE, Example
from uivlm.models.multimodal import trained_tokens

# Of a batch: for the loss and the log, not for the model. `labels`: ids of the trained tokens [n];
# `shift_labels`: the same, by which the Trainer counts all of them (it takes `labels` for unshifted ones);
# `sentence_lengths`: tokens of each sentence; `num_episodes`: episodes that begin here.
LOSS_KEYS = ("labels", "shift_labels", "action_types", "sentence_lengths", "num_episodes")


@dataclass(frozen=True, slots=True)
class Collator:
    """Screens of one size become one tensor [N, ...]; screens of different sizes a list.

    Padding is on the right, where no token of a causal model attends to it, so batches have no mask.
    """

    pad_id: int
    image_token_id: int
    packing: bool = False

    def __call__(self, examples: list[Example]) -> dict[str, Any]:
        examples = examples or [self._empty()]
        for example in examples:
            self._check(example)
        input_ids, labels_BT, bounds = self._pack(examples) if self.packing else self._pad(examples)
        trained_positions, labels = trained_tokens(labels_BT)
        batch: dict[str, Any] = {
            "input_ids": input_ids,
            "trained_positions": trained_positions,
            **bounds,
            "num_visual_tokens": tuple(n for example in examples for n in example.num_visual_tokens),
            "labels": labels,
            "shift_labels": labels,
            "action_types": torch.from_numpy(np.concatenate([example.action_types for example in examples])),
            "sentence_lengths": tuple(len(example.input_ids) for example in examples),
            "num_episodes": sum(example.first_window for example in examples),
        }
        for name in ("pixels", "features"):
            screens = [screen for example in examples for screen in getattr(example, name)]
            if len({screen.shape for screen in screens}) == 1:
                batch[name] = torch.from_numpy(np.stack(screens))
            elif screens:
                batch[name] = [torch.from_numpy(screen) for screen in screens]
        return batch

    def _empty(self) -> Example:
        """A sentence without loss, for a process that has none: each must run as many forward passes."""
        no_ids = np.zeros(0, np.int64)
        return Example(np.array([self.pad_id]), np.array([IGNORE]), no_ids, (), first_window=False)

    def _pad(self, examples: list[Example]) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Ids and labels [B, T]."""
        longest = max(len(example.input_ids) for example in examples)
        input_ids = torch.full((len(examples), longest), self.pad_id)
        labels = torch.full((len(examples), longest), IGNORE)
        for i, example in enumerate(examples):
            n = len(example.input_ids)
            input_ids[i, :n] = torch.from_numpy(example.input_ids)
            labels[i, :n] = torch.from_numpy(example.labels)
        return input_ids, labels, {}

    def _pack(self, examples: list[Example]) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Ids and labels [1, T] without padding, positions in the sentences, and the sentences' bounds.

        The first token of a sentence is never trained, so no sentence predicts the next.
        """
        input_ids = torch.from_numpy(np.concatenate([example.input_ids for example in examples]))[None]
        labels = torch.from_numpy(np.concatenate([example.labels for example in examples]))[None]
        lengths = [len(example.input_ids) for example in examples]
        bounds = {
            "position_ids": torch.cat([torch.arange(n) for n in lengths])[None],
            "cu_seq_lens": torch.tensor([0, *np.cumsum(lengths).tolist()], dtype=torch.int32),
            "max_length": max(lengths),
        }
        return input_ids, labels, bounds

    def _check(self, example: Example) -> None:
        """ValueError unless the placeholders are those of the screens, each screen in one piece."""
        num_screens = len(example.features or example.pixels)
        is_placeholder = example.input_ids == self.image_token_id
        num_placeholders, num_tokens = int(is_placeholder.sum()), sum(example.num_visual_tokens)
        if num_placeholders != num_tokens or num_screens != len(example.num_visual_tokens):
            raise ValueError(
                f"a sentence has {num_placeholders} placeholders for {num_tokens} visual tokens of "
                f"{len(example.num_visual_tokens)} screens; got {num_screens} screens"
            )
        last = is_placeholder & ~np.append(is_placeholder[1:], False)  # of a run of one or more screens
        ends = np.cumsum(is_placeholder)[last]
        if not np.isin(ends, np.cumsum(example.num_visual_tokens)).all():
            raise ValueError(
                f"the placeholders of a sentence end after {ends.tolist()} visual tokens; its screens have "
                f"{list(example.num_visual_tokens)}"
            )
