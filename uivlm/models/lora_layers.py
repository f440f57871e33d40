"""The layers that carry LoRA adapters, and how an adapter's matrices compute."""

import itertools
import re
from collections.abc import Sequence

from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from torch.nn import functional

from uivlm.models.multimodal import is_vision_parameter


class LoraMatrix(nn.Linear):
    """A or B of an adapter. It computes in its input's dtype; its weight stays a float32 master.

    PEFT would convert the input to float32 instead, and multiply without the tensor cores.
    """

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight.to(x.dtype))


def lora_layers(model: nn.Module, pattern: str, vision: bool = False) -> list[str]:
    """Names of the linear layers that match the pattern in full.

    No match at all is an error, and so are vision layers without `vision`. With it, they may be convolutions
    of patches.
    """
    names = [name for name, _ in model.named_modules() if re.fullmatch(pattern, name)]
    if not names:
        raise ValueError(f"no module matches the LoRA targets {pattern!r}")
    for name in names:
        if is_vision_parameter(name) and not vision:
            raise ValueError(f"the LoRA targets {pattern!r} match {name}: the vision encoder stays frozen")
        if not isinstance(model.get_submodule(name), (nn.Linear, nn.Conv2d) if vision else nn.Linear):
            raise ValueError(f"the LoRA targets {pattern!r} match {name}, which is not a linear layer")
    return names


def summarize_layers(names: Sequence[str]) -> str:
    """One line for each kind of layer, with their number."""
    grouped = itertools.groupby(sorted(names, key=_without_layer_index), key=_without_layer_index)
    return "\n".join(f"{len(list(group))} x {name}" for name, group in grouped)


def _without_layer_index(name: str) -> str:
    return re.sub(r"\.\d+\.", ".*.", name)


def compute_in_input_dtype(layer: LoraLayer) -> None:
    if not all(isinstance(part, nn.Linear) for part in (*layer.lora_A.values(), *layer.lora_B.values())):
        return  # a vision encoder's convolution of patches: one small product, in float32
    layer.cast_input_dtype_enabled = False  # the switch of PEFT's `disable_input_dtype_casting`
    for matrices in (layer.lora_A, layer.lora_B):
        for name, old in matrices.items():
            assert isinstance(old, nn.Linear)
            new = LoraMatrix(old.in_features, old.out_features, bias=False, device="meta")
            new.weight = old.weight
            matrices[name] = new
