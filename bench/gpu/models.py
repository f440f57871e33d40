"""Folders in the published formats, at the published sizes, with random weights: no model hub is needed.

    python bench/gpu/models.py OUT [NAME ...] [--weights]

Names: qwen_vl (Qwen-VL, 9.6B), qwen2_5_vl (Qwen2.5-VL 7B), qwen3_vl (Qwen3-VL 8B). Each folder has the
configuration and a tokenizer whose control ids are the published ones. Its vocabulary is generated (a token
has about three characters). `--weights` adds random bfloat16 weights, for what reads files: `uivlm train`,
vLLM. Memory then holds the whole model.
"""

import argparse
import base64
import json
import shutil
import string
from collections.abc import Iterator
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

import torch
from transformers.convert_slow_tokenizer import TikTokenConverter

from uivlm.atomic import new_dir
from uivlm.models.qwen_hf import files as qwen_hf
from uivlm.models.qwen_vl import files as qwen_vl
from uivlm.models.qwen_vl.config import QwenVLConfig, to_original
from uivlm.models.qwen_vl.tokenizer import PATTERN, TOKENIZER_FILE

NUM_RANKS = 151_643  # ordinary tokens of every Qwen; control ids follow
COMMON = f" {string.ascii_lowercase}{string.digits}.,:-_/'".encode()  # 44 characters: 85,184 triples
CONTROL_TOKENS = (  # of Qwen2.5-VL and Qwen3-VL, in the order of their ids (tokenizer.json)
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
    "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>",
    "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
CONTROL_IDS = {
    "bos_token_id": 151_643,
    "eos_token_id": 151_645,
    "vision_start_token_id": 151_652,
    "vision_end_token_id": 151_653,
    "image_token_id": 151_655,
    "video_token_id": 151_656,
}
QWEN2_5_VL = CONTROL_IDS | {  # Qwen/Qwen2.5-VL-7B-Instruct, config.json
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "hidden_act": "silu",
    "hidden_size": 3584,
    "intermediate_size": 18_944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "max_position_embeddings": 128_000,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    "tie_word_embeddings": False,
    "vocab_size": 152_064,
    "vision_config": {
        "depth": 32,
        "hidden_act": "silu",
        "hidden_size": 1280,
        "intermediate_size": 3420,
        "num_heads": 16,
        "in_chans": 3,
        "out_hidden_size": 3584,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "tokens_per_second": 2,
        "window_size": 112,
        "fullatt_block_indexes": [7, 15, 23, 31],
    },
}
QWEN3_VL = {  # Qwen/Qwen3-VL-8B-Instruct, config.json
    "architectures": ["Qwen3VLForConditionalGeneration"],
    "model_type": "qwen3_vl",
    "tie_word_embeddings": False,
    **{name: value for name, value in CONTROL_IDS.items() if name not in ("bos_token_id", "eos_token_id")},
    "text_config": {
        "model_type": "qwen3_vl_text",
        "bos_token_id": 151_643,
        "eos_token_id": 151_645,
        "hidden_act": "silu",
        "head_dim": 128,
        "hidden_size": 4096,
        "intermediate_size": 12_288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 262_144,
        "rms_norm_eps": 1e-6,
        "rope_theta": 5_000_000,
        "rope_scaling": {"rope_type": "default", "mrope_section": [24, 20, 20], "mrope_interleaved": True},
        "vocab_size": 151_936,
    },
    "vision_config": {
        "model_type": "qwen3_vl",
        "depth": 27,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_heads": 16,
        "in_channels": 3,
        "out_hidden_size": 4096,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [8, 16, 24],
    },
}
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen_vl": to_original(QwenVLConfig()),
    "qwen2_5_vl": QWEN2_5_VL,
    "qwen3_vl": QWEN3_VL,
}
SHALLOW: dict[str, dict[str, Any]] = {  # two layers in each tower, at the published widths
    "qwen_vl": {"num_hidden_layers": 2, "visual": {"layers": 2}},
    "qwen2_5_vl": {"num_hidden_layers": 2, "vision_config": {"depth": 2, "fullatt_block_indexes": [1]}},
}
SMALL: dict[str, dict[str, Any]] = {  # one narrow layer in each tower; the vocabulary stays
    "qwen_vl": {
        "hidden_size": 128,  # a head of the resampler
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "kv_channels": 32,
        "visual": {"layers": 1, "width": 32, "heads": 2, "output_dim": 128},
    },
    "qwen2_5_vl": {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]},
        "vision_config": {
            "depth": 1,
            "hidden_size": 32,
            "num_heads": 2,
            "out_hidden_size": 16,
            "fullatt_block_indexes": [0],
        },
    },
}
PREPROCESSORS = {  # preprocessor_config.json
    "qwen2_5_vl": {
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
        "patch_size": 14,
        "merge_size": 2,
    },
    "qwen3_vl": {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "patch_size": 16, "merge_size": 2},
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Folders of the published shapes with random weights.")
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(CONFIGS)}; none: all")
    parser.add_argument("--weights", action="store_true")
    args = parser.parse_args()
    if unknown := sorted(set(args.names) - set(CONFIGS)):
        parser.error(f"no model {unknown[0]!r}: choose from {', '.join(CONFIGS)}")
    for name in args.names or CONFIGS:
        write_model(args.out / name, name, args.weights)
        print(args.out / name)


def write_model(
    folder: Path, name: str, with_weights: bool = False, config: dict[str, Any] | None = None
) -> Path:
    """One model's folder, complete or absent. `config`: another size, as in its config.json."""
    config = config or CONFIGS[name]
    with new_dir(folder) as temporary:
        write_json(temporary / "config.json", config)
        tokens = enumerate(byte_strings())
        ranks = "\n".join(f"{base64.b64encode(token).decode()} {rank}" for rank, token in tokens)
        (temporary / TOKENIZER_FILE).write_text(ranks)
        if name != "qwen_vl":
            converter = TikTokenConverter(
                str(temporary / TOKENIZER_FILE), PATTERN, extra_special_tokens=CONTROL_TOKENS
            )
            converter.converted().save(str(temporary / "tokenizer.json"))
            (temporary / TOKENIZER_FILE).unlink()
            control = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
            write_json(temporary / "tokenizer_config.json", control)
            write_json(temporary / "preprocessor_config.json", PREPROCESSORS[name])
        if with_weights:
            write_weights(temporary, name)
    return folder


def resize(name: str, changes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The model's config.json with the changes for it, of SHALLOW or SMALL."""
    config = CONFIGS[name] | changes[name]
    tower = "visual" if name == "qwen_vl" else "vision_config"
    return config | {tower: CONFIGS[name][tower] | changes[name][tower]}


def write_json(file: Path, payload: object) -> None:
    file.write_text(json.dumps(payload, indent=1), "utf-8")


def byte_strings() -> Iterator[bytes]:
    """NUM_RANKS byte strings: all bytes, all pairs, then strings of common characters.

    Each is one byte longer than another, as byte pair encoding requires.
    """
    every = chain(product(range(256), repeat=1), product(range(256), repeat=2))
    common = chain(product(COMMON, repeat=3), product(COMMON, repeat=4))
    return map(bytes, islice(chain(every, common), NUM_RANKS))


def write_weights(folder: Path, name: str) -> None:
    """Random weights of the folder's model, in its published format."""
    files: Any = qwen_vl if name == "qwen_vl" else qwen_hf
    model = files.from_config(folder, torch.bfloat16, device="cpu")
    files.save(folder / "saved", model, *((folder,) if files is qwen_hf else ()))
    for file in (folder / "saved").glob("model*"):
        file.rename(folder / file.name)
    shutil.rmtree(folder / "saved")


if __name__ == "__main__":
    main()
