"""Qwen3-VL 8B with LoRA on the language model alone: `qwen2_5vl` with the newer model.

Its visual tokens are larger, 32 x 32 pixels where Qwen2.5-VL has 28 x 28, so the same number shows more of
a screen.

    --set model.quantize=nf4                                Q-LoRA
    --set model.lora=null --set distributed.zero_stage=2    full fine-tuning of the language model
"""

from dataclasses import replace
from pathlib import Path

from uivlm.recipe import Recipe, load


def recipe() -> Recipe:
    older = load(Path(__file__).with_name("qwen2_5vl.py"))
    return replace(older, name="qwen3vl", model=replace(older.model, base_model="Qwen/Qwen3-VL-8B-Instruct"))
