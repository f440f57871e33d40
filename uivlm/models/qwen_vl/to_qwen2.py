"""The language tower of a Qwen-VL checkpoint as transformers' Qwen2ForCausalLM, with its adapters in PEFT's
layout.

In: a checkpoint and its recipe. Out: a folder with `base` and, of a LoRA checkpoint, `adapters`.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import Qwen2Config, Qwen2ForCausalLM

from uivlm.atomic import new_dir
from uivlm.models import adapters
from uivlm.models.adapter_config import to_lora_config, write_adapter_config
from uivlm.models.adapters import ADAPTER_WEIGHTS
from uivlm.models.build import build
from uivlm.models.pretrained import read_weights
from uivlm.models.qwen_vl import files
from uivlm.models.qwen_vl.model import QwenVL
from uivlm.models.qwen_vl.tokenizer import TOKENIZER_FILE
from uivlm.recipe import LoraArgs, QwenVLArgs, Recipe

BASE_DIR, ADAPTERS_DIR = "base", "adapters"  # folders in the output
SPLIT_LAYERS = {"c_attn": ("q_proj", "k_proj", "v_proj"), "w1": ("up_proj",), "w2": ("gate_proj",)}
RENAMED_MODULES = {"attn": "self_attn", "ln_1": "input_layernorm", "ln_2": "post_attention_layernorm"}
RENAMED_C_PROJ = {"attn": "o_proj", "mlp": "down_proj"}  # by the module that `c_proj` is in
RENAMED_OUTER_LAYERS = {
    "transformer.wte": "model.embed_tokens",
    "transformer.ln_f": "model.norm",
    "lm_head": "lm_head",
}


def to_qwen2(recipe: Recipe, checkpoint: Path, out: Path) -> None:
    """Write the language tower, which reads no screens, into the new folder `out`.

    Qwen-VL has one layer for query, key and value. Its adapter's A serves all three; the rows of its B are
    split among them, which is exact.
    """
    args = recipe.model
    if not isinstance(args, QwenVLArgs):
        raise ValueError(
            f"{checkpoint}: got a {args.type} checkpoint; expected qwen_vl, which contains a Qwen2"
        )
    if args.lora is not None and args.lora.vision:
        raise ValueError(
            f"{checkpoint}: got adapters on the vision encoder (model.lora.vision); Qwen2 contains the "
            "language model only. Merge them with `uivlm merge`"
        )
    with new_dir(out) as folder:
        if args.lora is None:
            _, model = adapters.load(recipe, checkpoint)
        else:
            model = build(recipe.without_quantization()).model
        assert isinstance(model, QwenVL)
        language_tower(model).save_pretrained(folder / BASE_DIR)
        tokenizer_file = files.find_or_download(args.base_model) / TOKENIZER_FILE
        shutil.copyfile(tokenizer_file, folder / BASE_DIR / TOKENIZER_FILE)
        if args.lora is not None:
            _split_adapters(checkpoint, args.lora, folder / ADAPTERS_DIR, out / BASE_DIR)


def language_tower(model: QwenVL) -> Qwen2ForCausalLM:
    """The same weights under Qwen2's names."""
    config = model.config
    if config.long_context != "none":
        raise ValueError("model.dynamic_ntk: got true; Qwen2 does not compute it. Set it to false")
    if config.kv_channels * config.num_attention_heads != config.hidden_size:
        raise ValueError(
            f"kv_channels: got {config.kv_channels} x {config.num_attention_heads} heads; "
            f"Qwen2 needs hidden_size, {config.hidden_size}"
        )
    with torch.device("meta"):
        tower = Qwen2ForCausalLM(
            Qwen2Config(
                vocab_size=config.vocab_size,
                hidden_size=config.hidden_size,
                intermediate_size=config.intermediate_size // 2,
                num_hidden_layers=config.num_hidden_layers,
                num_attention_heads=config.num_attention_heads,
                num_key_value_heads=config.num_attention_heads,
                max_position_embeddings=config.max_position_embeddings,
                rms_norm_eps=config.layer_norm_epsilon,
                rope_parameters={"rope_type": "default", "rope_theta": float(config.rotary_emb_base)},
                tie_word_embeddings=False,
                dtype=model.dtype,
            )
        )
    weights = {
        new: value
        for name, whole in model.state_dict().items()
        if not name.startswith("transformer.visual.")
        for new, value in _rename_weight(name, whole)
    }
    tower.load_state_dict(weights, assign=True)
    nn.Module.eval(tower)
    return tower


def _rename_weight(name: str, value: Tensor) -> Iterator[tuple[str, Tensor]]:
    """A weight under its names in Qwen2, where the rows of `c_attn` are three weights."""
    layer, _, suffix = name.rpartition(".")
    if layer in RENAMED_OUTER_LAYERS:
        yield f"{RENAMED_OUTER_LAYERS[layer]}.{suffix}", value
        return
    for new, part in zip(_qwen2_layers(layer), value.chunk(len(_qwen2_layers(layer))), strict=True):
        yield f"{new}.{suffix}", part.contiguous()


def _qwen2_layers(name: str) -> tuple[str, ...]:
    """A layer's names in Qwen2: `transformer.h.3.attn.c_attn` -> `model.layers.3.self_attn.q_proj` and two
    more.
    """
    match = re.fullmatch(r"transformer\.h\.(\d+)\.(\w+)(?:\.(\w+))?", name)
    assert match is not None, f"{name} is not a layer of Qwen-VL's language tower"
    index, module, layer = match.groups()
    renamed = f"model.layers.{index}.{RENAMED_MODULES.get(module, module)}"
    if layer is None:
        return (renamed,)
    return tuple(
        f"{renamed}.{part}" for part in SPLIT_LAYERS.get(layer, (RENAMED_C_PROJ.get(module, layer),))
    )


def _split_adapters(checkpoint: Path, lora: LoraArgs, out: Path, base: Path) -> None:
    """Write the checkpoint's adapters for the layers of Qwen2."""
    weights: dict[str, Tensor] = {}
    for name, value in read_weights(checkpoint / ADAPTER_WEIGHTS).items():
        match = re.fullmatch(r"base_model\.model\.(.+)\.lora_(A|B)\.weight", name)
        assert match is not None, f"{name} is not the weight of an adapter"
        layers, matrix = _qwen2_layers(match[1]), match[2]
        parts = value.chunk(len(layers)) if matrix == "B" else (value,) * len(layers)
        for layer, part in zip(layers, parts, strict=True):
            weights[f"base_model.model.{layer}.lora_{matrix}.weight"] = part.clone()
    targets = sorted({name.split(".")[-3] for name in weights})
    out.mkdir(parents=True)
    save_file(weights, out / ADAPTER_WEIGHTS)
    write_adapter_config(to_lora_config(lora, targets), str(base), out, task_type="CAUSAL_LM")
