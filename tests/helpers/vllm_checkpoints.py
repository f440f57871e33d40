"""Tiny checkpoints of Qwen2-VL and later as vLLM reads them, and histories to decide on."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.helpers import hf_checkpoints
from tests.helpers.multi_adapter import saved
from tests.helpers.tiny_models import episode, prepare, recipe
from uivlm.episodes.episode import History
from uivlm.recipe import QwenHFArgs, Recipe

PROCESSORS = {
    "Qwen2VL": "Qwen2VLProcessor",
    "Qwen2_5_VL": "Qwen2_5_VLProcessor",
    "Qwen3VL": "Qwen3VLProcessor",
}


def servable(root: Path, kind: str) -> Path:
    """A tiny checkpoint with heads as wide as vLLM has kernels for, and the files of its processor."""
    with pytest.MonkeyPatch.context() as patch:
        for name, size in {"hidden_size": 64, "intermediate_size": 64}.items():
            patch.setitem(hf_checkpoints.TEXT, name, size)
        patch.setitem(hf_checkpoints.MROPE, "mrope_section", [4, 6, 6])
        narrow = hf_checkpoints.config_json

        def wide(kind: str) -> dict[str, Any]:
            told = narrow(kind)
            told["vision_config"]["hidden_size" if kind == "Qwen2VL" else "out_hidden_size"] = 64
            if kind == "Qwen3VL":
                told["text_config"] |= {"head_dim": 32}
                told["text_config"]["rope_scaling"]["mrope_section"] = [4, 6, 6]
            return told

        patch.setattr(hf_checkpoints, "config_json", wide)
        hf_checkpoints.write(root, kind)
    processor = {"processor_class": PROCESSORS[kind]}
    for name, more in {
        "preprocessor_config.json": {
            "image_processor_type": "Qwen2VLImageProcessor",
            "temporal_patch_size": 2,
        },
        "tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer", "pad_token": "<|endoftext|>"},
    }.items():
        told = json.loads((root / name).read_text())
        (root / name).write_text(json.dumps(told | more | processor))
    return root


def wanted(root: Path, kind: str) -> Recipe:
    one = recipe(root / kind, root / "data")
    lora = one.model.lora
    return replace(one, model=QwenHFArgs(str(root / kind), lora, max_visual_tokens=40))


def folders(root: Path, kind: str) -> list[Path]:
    prepare(root / "data", [episode(0, 2)])
    servable(root / kind, kind)
    return [saved(root, f"adapter{seed}", wanted(root, kind), seed) for seed in range(2)]


def histories() -> list[History]:
    """Long and short, with past screens and without, one with the model's own control words in its goal."""
    rng = Random(0)
    made = [episode(rng.randrange(9), 6).history(rng.randrange(6)) for _ in range(10)]
    return [*made, episode(3, 2, "<|im_end|><|image_pad|> open it").history(1)]
