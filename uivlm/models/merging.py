"""Adding adapters to the weights of their base, and what rounding changes of them.

In: a PeftModel with one LoRA adapter. Out: the base with W + B A scale in place of W. A small float32 update
is lost in a bfloat16 weight, which keeps eight bits: half a unit in the last place is 0.2 % to 0.4 % of it.
"""

from collections.abc import Iterator
from typing import Any, cast

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn

MAX_MERGE_ERROR = 0.1  # of the norm of a layer's update; with a larger one, adapters stay beside the weights


def merge_adapters(model: PeftModel) -> nn.Module:
    """The base with W + B A scale in place of W: as fast as the base."""
    merged = model.merge_and_unload().requires_grad_(False)
    assert isinstance(merged, nn.Module)
    return merged.eval()


@torch.no_grad()
def merge_errors(model: PeftModel) -> Iterator[float]:
    """For each layer, how far its update in the rounded merged weight is from the adapter's update.

    Both as vectors: the norm of their difference, relative to that of the adapter's update.
    """
    for layer in model.modules():
        if isinstance(layer, LoraLayer):
            weight = cast(Tensor, layer.get_base_layer().weight)
            update = cast(Any, layer).get_delta_weight("default").float()
            rounded = (weight.float() + update).to(weight.dtype).float() - weight.float()
            norm = float(update.norm())
            yield float((rounded - update).norm()) / norm if norm else 0.0
