"""Decoder blocks compiled one by one: `train.compile_blocks`."""

from collections.abc import Iterator

from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from uivlm.models.multimodal import is_vision_parameter


def compile_blocks(model: nn.Module, backend: str = "inductor") -> None:
    """Compile each decoder block of the language model in place, when it first runs.

    Names and weights stay as they are. Blocks of one kind share their graphs, which hold for any length.
    ValueError if the model has no such blocks. `backend`: of `torch.compile`.
    """
    blocks = list(_decoder_blocks(model))
    if not blocks:
        raise ValueError(
            f"train.compile_blocks: {type(model).__name__} has no decoder blocks of transformers. "
            "Set train.compile_blocks=false"
        )
    for block in blocks:
        block.compile(backend=backend, dynamic=True)


def _decoder_blocks(model: nn.Module) -> Iterator[nn.Module]:
    for name, part in model.named_modules():
        if isinstance(part, GradientCheckpointingLayer) and not is_vision_parameter(name):
            yield part
