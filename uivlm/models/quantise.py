"""Linear layers of a frozen language model in 4 or 8 bits (bitsandbytes): the base of Q-LoRA (Dettmers et al. 2023).

In: how the recipe wants them kept. Out: what transformers' `from_pretrained` needs to read weights so; afterwards, layers
that compute alike on every processor.
"""

import os
from importlib.util import find_spec
from typing import Any, Literal

import torch
from torch import nn
from transformers import BitsAndBytesConfig

# Modules that keep their precision, by the beginning of their names: Qwen-VL's, those of its successors.
WHOLE = ["transformer.visual", "model.visual", "lm_head"]


def quantised(how: Literal["nf4", "int8"], dtype: torch.dtype) -> dict[str, Any]:
    """Weights go to their device while they are read: once quantised, some kinds cannot be moved."""
    if find_spec("bitsandbytes") is None:
        raise ValueError(
            f"model.quantise is {how!r}, but bitsandbytes is not installed here: install uivlm with its `gpu` extra, "
            "or set model.quantise to null"
        )
    match how:
        case "nf4":
            config = BitsAndBytesConfig(
                load_in_4bit=True,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=True,
                bnb_4bit_compute_dtype=dtype,
                llm_int8_skip_modules=WHOLE,
            )
        case "int8":
            config = BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=WHOLE)
    place = int(os.environ.get("LOCAL_RANK", "0")) if torch.cuda.is_available() else "cpu"
    return {"quantization_config": config, "device_map": {"": place}}


def stay_as_read(module: nn.Module) -> None:
    """On processors with AVX512-BF16 bitsandbytes (0.50) packs a 4-bit layer anew at its first evaluation: without
    gradients from then on, in bfloat16, and only where widths are multiples of 64. Its layers are told not to."""
    for part in module.modules():
        if hasattr(part, "support_avx512bf16_for_cpu"):
            part.support_avx512bf16_for_cpu = False  # type: ignore[assignment]
