"""Tiny random Llamas and vision encoders in the hub's format, as they are published."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import (
    CLIPConfig,
    CLIPModel,
    Dinov2Config,
    Dinov2Model,
    LlamaConfig,
    LlamaForCausalLM,
    SiglipConfig,
    SiglipModel,
    ViTConfig,
    ViTForImageClassification,
)

from tests.helpers.tiny_models import spoken

SMALL = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
SMALL |= {"image_size": 32, "patch_size": 8, "initializer_range": 0.2}
KINDS = ("vit", "siglip", "clip", "dinov2")
MEAN, STD = (0.48, 0.45, 0.4), (0.26, 0.25, 0.27)


def write_llama(root: Path, **changes: Any) -> Path:
    """As Llama-2 is published: <unk>, <s>, </s> come first, and no token fills rows."""
    made = Tokenizer.from_str(spoken())
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    ids = made.get_vocab()
    text: dict[str, Any] = {name: value for name, value in SMALL.items() if "_size" not in name}
    text |= {"vocab_size": len(ids), "hidden_size": 32, "intermediate_size": 48, "num_key_value_heads": 1}
    text |= {"bos_token_id": ids["<s>"], "eos_token_id": ids["</s>"], "max_position_embeddings": 512}
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**(text | changes))).save_pretrained(root)
    (root / "tokenizer.json").write_text(made.to_str())
    return root


def write_vision(root: Path, kind: str) -> Path:
    """As published: with the head of a classifier, or with a text tower."""
    torch.manual_seed(1)
    text = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    whole: dict[str, Callable[[], Any]] = {
        "vit": lambda: ViTForImageClassification(ViTConfig(**SMALL)),
        "siglip": lambda: SiglipModel(SiglipConfig(text_config=text, vision_config=SMALL)),
        "clip": lambda: CLIPModel(CLIPConfig(text_config=text, vision_config=SMALL)),
        "dinov2": lambda: Dinov2Model(Dinov2Config(**SMALL)),
    }
    whole[kind]().save_pretrained(root)
    (root / "preprocessor_config.json").write_text(json.dumps({"image_mean": MEAN, "image_std": STD}))
    return root
