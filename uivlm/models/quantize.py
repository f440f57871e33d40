"""Linear layers of a frozen language model in 4 or 8 bits (bitsandbytes): the base of Q-LoRA (Dettmers et al.
2023).

In: the recipe's `model.quantize` and a device. Out: options for transformers' `from_pretrained`, and layers
that compute alike on every processor.
"""

from importlib.util import find_spec
from typing import Any, Literal

import torch
from torch import nn
from transformers import BitsAndBytesConfig

# prefixes of modules that keep their precision: Qwen-VL's, then those of its successors
UNQUANTIZED_MODULES = ["transformer.visual", "model.visual", "lm_head"]


def loading_options(
    method: Literal["nf4", "int8", None], dtype: torch.dtype, device: torch.device
) -> dict[str, Any]:
    """Options of `from_pretrained`.

    Weights are read directly to their device: no second copy is made, and some quantized types cannot be
    moved later.
    """
    if method is None:
        return {"device_map": {"": device}}
    if find_spec("bitsandbytes") is None:
        raise ValueError(
            f"model.quantize is {method!r}, but bitsandbytes is not installed here: install uivlm with its "
            "`gpu` extra, "
            "or set model.quantize to null"
        )
    match method:
        case "nf4":
            config = BitsAndBytesConfig(
                load_in_4bit=True,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=True,
                bnb_4bit_compute_dtype=dtype,
                llm_int8_skip_modules=UNQUANTIZED_MODULES,
            )
        case "int8":
            config = BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=UNQUANTIZED_MODULES)
    return {"quantization_config": config, "device_map": {"": device}}


def disable_weight_repacking(module: nn.Module) -> None:
    """On processors with AVX512-BF16, bitsandbytes (0.50) repacks a 4-bit layer at its first evaluation.

    From then on it has no gradients, computes in bfloat16, and needs widths that are multiples of 64. This
    turns it off.
    """
    for part in module.modules():
        if hasattr(part, "support_avx512bf16_for_cpu"):
            part.support_avx512bf16_for_cpu = False  # type: ignore[assignment]
