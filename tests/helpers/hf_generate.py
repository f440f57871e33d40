"""transformers' own `generate`, as an independent proof of the engine's decoding."""

from typing import Any

import torch
from torch import Tensor
from transformers import GenerationMixin

from uivlm.models.qwen_hf.model import QwenHF, ScreenBatch
from uivlm.models.qwen_vl.model import QwenVL


class GeneratingQwenVL(QwenVL, GenerationMixin):
    def prepare_inputs_for_generation(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Screens are read with the prompt, not again with each new token."""
        inputs: dict[str, Any] = super().prepare_inputs_for_generation(*args, **kwargs)
        inputs.pop("position_ids", None)  # transformers derives its own from the mask; the original has none
        if not kwargs.get("is_first_iteration") and kwargs.get("use_cache", True):
            inputs |= {"pixels": None, "features": None}
        return inputs


def generate_qwen_vl(model: QwenVL, input_ids: Tensor, **options: Any) -> Tensor:
    with torch.device("meta"):
        twin: Any = GeneratingQwenVL(model.config)
    twin.load_state_dict(model.state_dict(), assign=True)
    tokens: Tensor = twin.train(model.training).generate(input_ids, **options)
    return tokens


def hf_inputs(model: QwenHF, input_ids: Tensor, pixels: ScreenBatch | None) -> dict[str, Tensor]:
    """What transformers' class takes in addition to the ids.

    Without `mm_token_type_ids` it gives screens the positions of text, some versions silently.
    """
    if pixels is None or not len(pixels):
        return {}
    values, grids = model.to_patches(pixels)
    token_types = (input_ids == model.config.image_token_id).int()  # 0 text, 1 image
    return {"pixel_values": values, "image_grid_thw": grids, "mm_token_type_ids": token_types}


def generate_qwen_hf(
    model: QwenHF, input_ids: Tensor, pixels: ScreenBatch | None = None, **options: Any
) -> Tensor:
    """Rows of a batch are padded on the left."""
    inputs = hf_inputs(model, input_ids, pixels)
    tokens: Tensor = model.hf_model.generate(input_ids=input_ids, **inputs, **options)
    return tokens
