"""Tiny random Qwen2-VL, Qwen2.5-VL and Qwen3-VL checkpoints in the hub's format: names of weights and fields
as published.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoConfig

from tests.helpers.tiny_models import spoken
from uivlm.models.qwen_hf import files

KINDS = ("Qwen2VL", "Qwen2_5_VL", "Qwen3VL")
CLIP = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)  # mean and std of colors
HALF = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
]
SPECIAL += ["<|video_pad|>"]
PLAIN = ["<tool_call>", "</tool_call>"]  # added tokens that the published files do not call special
TEXT = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
TEXT |= {
    "num_key_value_heads": 1,
    "max_position_embeddings": 4096,
    "initializer_range": 0.3,
    "hidden_act": "silu",
}
MROPE = {"type": "mrope", "mrope_section": [2, 3, 3]}


@cache
def tokenizer_json() -> str:
    made = Tokenizer.from_str(spoken())
    made.add_special_tokens(SPECIAL)
    made.add_tokens(PLAIN)
    return str(made.to_str())


def config_json(kind: str) -> dict[str, Any]:
    ids = Tokenizer.from_str(tokenizer_json()).get_vocab()
    common: dict[str, Any] = {
        "architectures": [f"{kind}ForConditionalGeneration"],
        "tie_word_embeddings": False,
    }
    common |= {"image_token_id": ids["<|image_pad|>"], "video_token_id": ids["<|video_pad|>"]}
    common |= {f"vision_{x}_token_id": ids[f"<|vision_{x}|>"] for x in ("start", "end")}
    text = TEXT | {"vocab_size": len(ids) + 5, "eos_token_id": ids["<|im_end|>"]}
    text |= {"bos_token_id": ids["<|endoftext|>"]}
    vision: dict[str, Any] = {"depth": 2, "num_heads": 2, "patch_size": 4, "initializer_range": 0.3}
    match kind:
        case "Qwen2VL":
            vision |= {"embed_dim": 16, "hidden_size": 32, "mlp_ratio": 2}
            return common | text | {"model_type": "qwen2_vl", "rope_scaling": MROPE, "vision_config": vision}
        case "Qwen2_5_VL":
            vision |= {"hidden_size": 16, "out_hidden_size": 32, "intermediate_size": 24, "window_size": 16}
            vision |= {"fullatt_block_indexes": [1]}
            return (
                common | text | {"model_type": "qwen2_5_vl", "rope_scaling": MROPE, "vision_config": vision}
            )
    vision |= {"hidden_size": 16, "out_hidden_size": 32, "intermediate_size": 24, "model_type": "qwen3_vl"}
    vision |= {"num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1]}
    text |= {"head_dim": 16, "model_type": "qwen3_vl_text"}
    text |= {"rope_scaling": {"rope_type": "default", "mrope_section": [2, 3, 3], "mrope_interleaved": True}}
    return common | {"model_type": "qwen3_vl", "text_config": text, "vision_config": vision}


def published(kind: str, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Names as in the published files: until 2.5 without the parts that transformers put in front later."""
    if kind == "Qwen3VL":
        return weights
    short = (("model.visual.", "visual."), ("model.language_model.", "model."))
    return {next((b + n[len(a) :] for a, b in short if n.startswith(a)), n): v for n, v in weights.items()}


def write(root: Path, kind: str) -> Path:
    root.mkdir(parents=True)
    (root / "config.json").write_text(json.dumps(config_json(kind)))
    torch.manual_seed(0)
    model = files.ARCHITECTURES[f"{kind}ForConditionalGeneration"](AutoConfig.from_pretrained(root))
    with torch.no_grad():
        for value in model.parameters():  # biases and norms too
            value += 0.1 * torch.randn_like(value)
    weights = published(kind, {name: value.detach().clone() for name, value in model.state_dict().items()})
    save_file(weights, root / "model.safetensors", metadata={"format": "pt"})
    (root / "tokenizer.json").write_text(tokenizer_json())
    control_tokens = {"eos_token": "<|im_end|>", "pad_token": {"content": "<|endoftext|>", "special": True}}
    (root / "tokenizer_config.json").write_text(json.dumps(control_tokens))
    mean, std = HALF if kind == "Qwen3VL" else CLIP
    pixels = {"image_mean": mean, "image_std": std, "patch_size": 4, "merge_size": 2}
    (root / "preprocessor_config.json").write_text(json.dumps(pixels))
    return root
