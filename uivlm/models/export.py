"""Checkpoints in the formats that other programs load.

In: a checkpoint and its recipe. Out: `merge`, a base of the model's own kind with the adapters added in; `to_qwen2`,
the language tower of a Qwen-VL as transformers' Qwen2ForCausalLM, its adapters beside it in PEFT's layout.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import Qwen2Config, Qwen2ForCausalLM

from uivlm import recipe as recipes
from uivlm.models import tune
from uivlm.models.bridge_folder import save_base
from uivlm.models.llama_vit import LlamaVit, Reader
from uivlm.models.lora import ADAPTER_CONFIG, ADAPTERS
from uivlm.models.model import DTYPES, build
from uivlm.models.qwen_hf import files as hf_files
from uivlm.models.qwen_hf.model import QwenHF
from uivlm.models.qwen_vl import files as qwen_files
from uivlm.models.qwen_vl.model import QwenVL
from uivlm.models.qwen_vl.tokens import FILE
from uivlm.models.weights import read_weights

BASE, SPLIT = "base", "adapters"  # folders that `to_qwen2` makes
PARTS = {"c_attn": ("q_proj", "k_proj", "v_proj"), "w1": ("up_proj",), "w2": ("gate_proj",)}
NAMES = {"attn": "self_attn", "ln_1": "input_layernorm", "ln_2": "post_attention_layernorm"}
PROJECTED = {"attn": "o_proj", "mlp": "down_proj"}  # what `c_proj` is in each
OUTER = {
    "transformer.wte": "model.embed_tokens",
    "transformer.ln_f": "model.norm",
    "lm_head": "lm_head",
}


def merge(recipe: recipes.Recipe, checkpoint: Path, out: Path) -> None:
    """Adapters of a quantised model are added to the unquantised weights, which differ a little from those they were
    trained on."""
    _refuse(out)
    if not isinstance(recipe.model, recipes.LlamaVit):
        plain: Any = {} if recipe.model.lora is None else {"quantise": None}
        recipe = replace(recipe, model=replace(recipe.model, **plain))
    built, module = tune.load(recipe, checkpoint)
    match module:
        case LlamaVit():
            assert isinstance(built.reader, Reader)
            save_base(out, module, built.reader.tokenizer, DTYPES[recipe.train.precision])
        case QwenHF():
            hf_files.save(out, module, hf_files.fetch(recipe.model.base))
        case QwenVL():
            qwen_files.save(out, module, qwen_files.fetch(recipe.model.base) / FILE)
        case _:
            raise AssertionError(f"no format is known for {type(module).__name__}")


def to_qwen2(recipe: recipes.Recipe, checkpoint: Path, out: Path) -> None:
    """It reads no screens: the vision tower stays behind. Query, key and value are one layer in Qwen-VL; its adapter's
    A serves all three, and its B is cut into their rows, which is exact."""
    part = recipe.model
    if not isinstance(part, recipes.QwenVL):
        raise ValueError(f"only a qwen_vl checkpoint has a Qwen2 in it, {checkpoint} is of {part.kind}")
    _refuse(out)
    fresh = out.with_name(f"{out.name}.tmp")
    shutil.rmtree(fresh, ignore_errors=True)
    if part.lora is None:
        _, module = tune.load(recipe, checkpoint)
    else:
        module = build(replace(recipe, model=replace(part, quantise=None))).module
    assert isinstance(module, QwenVL)
    language_tower(module).save_pretrained(fresh / BASE)
    shutil.copyfile(qwen_files.fetch(part.base) / FILE, fresh / BASE / FILE)
    if part.lora is not None:
        _split_adapters(checkpoint, fresh / SPLIT, out / BASE)
    os.replace(fresh, out)


def language_tower(module: QwenVL) -> Qwen2ForCausalLM:
    """The same weights under Qwen2's names."""
    told = module.config
    if told.long_context != "none":
        raise ValueError('model.long_context is "original", which Qwen2 does not compute: set it to none')
    if told.kv_channels * told.num_attention_heads != told.hidden_size:
        raise ValueError(
            f"kv_channels {told.kv_channels} x {told.num_attention_heads} heads is not hidden_size {told.hidden_size}: "
            "Qwen2 has no such attention"
        )
    with torch.device("meta"):
        tower = Qwen2ForCausalLM(
            Qwen2Config(
                vocab_size=told.vocab_size,
                hidden_size=told.hidden_size,
                intermediate_size=told.intermediate_size // 2,
                num_hidden_layers=told.num_hidden_layers,
                num_attention_heads=told.num_attention_heads,
                num_key_value_heads=told.num_attention_heads,
                max_position_embeddings=told.max_position_embeddings,
                rms_norm_eps=told.layer_norm_epsilon,
                rope_parameters={"rope_type": "default", "rope_theta": float(told.rotary_emb_base)},
                tie_word_embeddings=False,
                dtype=module.dtype,
            )
        )
    weights = {
        new: value
        for name, whole in module.state_dict().items()
        if not name.startswith("transformer.visual.")
        for new, value in _renamed(name, whole)
    }
    tower.load_state_dict(weights, assign=True)
    nn.Module.eval(tower)
    return tower


def _renamed(name: str, value: Tensor) -> Iterator[tuple[str, Tensor]]:
    """What a weight is called in Qwen2; the rows of `c_attn` are three weights there."""
    layer, _, kind = name.rpartition(".")
    if layer in OUTER:
        yield f"{OUTER[layer]}.{kind}", value
        return
    for new, part in zip(_layers(layer), value.chunk(len(_layers(layer))), strict=True):
        yield f"{new}.{kind}", part.contiguous()


def _layers(name: str) -> tuple[str, ...]:
    """A layer's names in Qwen2: `transformer.h.3.attn.c_attn` -> `model.layers.3.self_attn.q_proj` and two more."""
    found = re.fullmatch(r"transformer\.h\.(\d+)\.(\w+)(?:\.(\w+))?", name)
    assert found is not None, f"{name} is no layer of Qwen-VL's language tower"
    number, room, last = found.groups()
    inner = f"model.layers.{number}.{NAMES.get(room, room)}"
    if last is None:
        return (inner,)
    return tuple(f"{inner}.{part}" for part in PARTS.get(last, (PROJECTED.get(room, last),)))


def _split_adapters(checkpoint: Path, out: Path, base: Path) -> None:
    """The checkpoint's adapters for the layers of Qwen2."""
    weights: dict[str, Tensor] = {}
    for name, value in read_weights(checkpoint / ADAPTERS).items():
        found = re.fullmatch(r"base_model\.model\.(.+)\.lora_(A|B)\.weight", name)
        assert found is not None, f"{name} is no adapter's weight"
        names, half = _layers(found[1]), found[2]
        parts = value.chunk(len(names)) if half == "B" else (value,) * len(names)
        for new, part in zip(names, parts, strict=True):
            weights[f"base_model.model.{new}.lora_{half}.weight"] = part.clone()
    told = json.loads((checkpoint / ADAPTER_CONFIG).read_text("utf-8"))
    targets = sorted({name.split(".")[-3] for name in weights})
    told |= {"base_model_name_or_path": str(base), "target_modules": targets, "task_type": "CAUSAL_LM"}
    out.mkdir(parents=True)
    save_file(weights, out / ADAPTERS)
    (out / ADAPTER_CONFIG).write_text(json.dumps(told, indent=1, sort_keys=True) + "\n", "utf-8")


def _refuse(out: Path) -> None:
    if out.exists():
        raise ValueError(f"{out} exists already: name a new folder")
