"""Examples -> a batch of tensors: padded on the right, or packed into one row.

In: examples of `episodes/encode.py`. Out: the arguments of `models/build.py::Model.forward`, and
LOG_ONLY_KEYS.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uivlm.episodes.encode import IGNORE, Example

LOG_ONLY_KEYS = ("action_types", "first_window")  # of a batch: for the log, not for the model


@dataclass(frozen=True, slots=True)
class Collator:
    """Screens of one size become one tensor [N, ...]; screens of different sizes a list.

    The attention mask comes from lengths: the padding token may also occur in sentences.
    """

    pad_id: int
    image_token_id: int
    packing: bool = False

    def __call__(self, examples: list[Example]) -> dict[str, Tensor | list[Tensor]]:
        examples = examples or [self._empty()]
        for example in examples:
            self._check(example)
        batch: dict[str, Tensor | list[Tensor]] = {
            **(self._pack(examples) if self.packing else self._pad(examples)),
            "action_types": torch.from_numpy(np.concatenate([example.action_types for example in examples])),
            "first_window": torch.tensor([example.first_window for example in examples]),
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

    def _pad(self, examples: list[Example]) -> dict[str, Tensor]:
        """Each tensor is [B, T]."""
        longest = max(len(example.input_ids) for example in examples)
        input_ids = torch.full((len(examples), longest), self.pad_id)
        labels = torch.full((len(examples), longest), IGNORE)
        mask = torch.zeros((len(examples), longest), dtype=torch.bool)
        for i, example in enumerate(examples):
            n = len(example.input_ids)
            input_ids[i, :n] = torch.from_numpy(example.input_ids)
            labels[i, :n] = torch.from_numpy(example.labels)
            mask[i, :n] = True
        return {"input_ids": input_ids, "labels": labels, "attention_mask": mask}

    def _pack(self, examples: list[Example]) -> dict[str, Tensor]:
        """[1, T] without padding.

        The first token of a sentence is never trained, so no sentence predicts the next.
        """
        input_ids = torch.from_numpy(np.concatenate([example.input_ids for example in examples]))[None]
        labels = torch.from_numpy(np.concatenate([example.labels for example in examples]))[None]
        lengths = torch.tensor([len(example.input_ids) for example in examples])
        return {
            "input_ids": input_ids,
            "labels": labels,
            "attention_mask": torch.ones_like(input_ids, dtype=torch.bool),
            "lengths": lengths,
        }

    def _check(self, example: Example) -> None:
        num_screens = len(example.features or example.pixels)
        num_placeholders = int((example.input_ids == self.image_token_id).sum())
        num_tokens = sum(example.num_visual_tokens)
        if num_placeholders != num_tokens or num_screens != len(example.num_visual_tokens):
            raise ValueError(
                f"a sentence has {num_placeholders} placeholders for {num_tokens} visual tokens of "
                f"{len(example.num_visual_tokens)} screens; got {num_screens} screens"
            )
