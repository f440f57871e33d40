"""What a model's own file provides, and all that the rest of the project knows of it.

A model is one file or folder with a `ModelLoader`, its settings in `uivlm/recipe/model_args.py` and one
`case` in `build.py`. docs/models.md shows a whole one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from uivlm.episodes.encode import Processor
from uivlm.models.stored_weights import StoredWeights
from uivlm.recipe import LoraArgs, ModelArgs


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model without adapters.

    `model` has two methods. `get_image_features(pixels)` normalizes and reads screens, frozen unless
    `lora.vision`: uint8 [N, 3, h, w] -> [N, S, width]. `forward` takes `input_ids` [B, T]; `pixels`, or
    `features` in their place; `attention_mask` bool [B, T]; `labels` [B, T], which restrict the logits to
    those that predict a trained token; `lengths`, of sentences packed into one row; `position_ids` [B, T],
    where padding lies between tokens.
    """

    model: nn.Module
    processor: Processor
    lora: LoraArgs | None  # None: full fine-tuning, or of the projector alone
    lora_targets: str  # regex of the language model's linear layers that carry adapters
    save_pretrained: Callable[
        [nn.Module, Path], None
    ]  # writes all weights as a base of the model's own format
    # the files of a model made on "meta", asked before it gets adapters; None: no process can read a part
    open_weights: Callable[[], StoredWeights] | None = None
    projector_name: str | None = None  # submodule that is trained whole next to the adapters
    trainable_pattern: str | None = None  # regex of the parameters that full fine-tuning trains
    quantized: bool = False  # adapters are then not merged: rounding again would lose what they learned
    freeze_language_model: bool = False  # without adapters: train the projector alone
    vision_lora_targets: str | None = None  # the same of the vision encoder; `lora.vision` adds them
    supports_prefix_cache: bool = True  # do keys and values of a prefix stay valid when the prompt grows?
    # can a CUDA graph replay a token? `forward` then takes `inputs_embeds` [B, 1, D] of
    # `get_input_embeddings()` in place of `input_ids`, and an `attention_mask` bool [B, 1, 1, cached tokens];
    # it reads no value on the CPU
    supports_static_decoding: bool = False

    @property
    def all_lora_targets(self) -> str:
        """The regex of every layer that carries adapters in this run."""
        if self.lora is None or not self.lora.vision:
            return self.lora_targets
        if self.vision_lora_targets is None:
            raise ValueError("model.lora.vision: got true; this model has no vision layers for adapters")
        return f"(?:{self.lora_targets})|(?:{self.vision_lora_targets})"


class ModelLoader(Protocol):
    """A model of a recipe before any file is read."""

    @property
    def projector_name(self) -> str | None:
        """As in LoadedModel; the files of a checkpoint depend on it."""

    def load(
        self, dtype: torch.dtype, seed: int, init_device: str | None, device: torch.device
    ) -> LoadedModel:
        """The model in evaluation mode, its weights read to `device`.

        With `init_device`, no weights are read: see `build`.
        """

    def saved_args(self, folder: Path) -> ModelArgs:
        """The settings that load what `save_pretrained` wrote into `folder`."""
