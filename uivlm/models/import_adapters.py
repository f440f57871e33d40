"""LoRA adapters that another program trained, as a checkpoint.

In: a recipe and a folder in PEFT's layout (`adapter_config.json`, `adapter_model.safetensors` or `.bin`) with
the module names of the model's original. Out: the recipe with the adapters' rank, and the model with them. A
layer that the recipe adapts but the folder does not gets adapters that change nothing. Adapters on vision
layers, as SeeClick's, turn `model.lora.vision` on. Anything else that does not fit is an error.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from torch import Tensor

from uivlm import recipe as recipes
from uivlm.models import adapters
from uivlm.models.adapter_config import ADAPTER_CONFIG
from uivlm.models.adapters import ADAPTER_WEIGHTS, check_rank
from uivlm.models.build import build
from uivlm.models.loaded_model import LoadedModel
from uivlm.models.multimodal import is_vision_parameter
from uivlm.models.pretrained import check_finite, check_shapes, first_line, read_json_object, read_weights
from uivlm.models.stored_weights import read_shapes

WEIGHT_FILES = (ADAPTER_WEIGHTS, "adapter_model.bin")  # the first that exists counts
# PEFT's extensions of LoRA, with the values that turn them off
PLAIN_LORA_VALUES = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "use_dora": (False,),
    "rank_pattern": ({},),
    "alpha_pattern": ({},),
    "modules_to_save": (None, []),
    "fan_in_fan_out": (False,),
}


def import_adapters(recipe: recipes.Recipe, folder: Path) -> tuple[recipes.Recipe, LoadedModel, PeftModel]:
    file = next((folder / name for name in WEIGHT_FILES if (folder / name).is_file()), None)
    if file is None or not (folder / ADAPTER_CONFIG).is_file():
        raise ValueError(
            f"the folder {folder} does not contain adapters: it needs {ADAPTER_CONFIG} and "
            f"{' or '.join(WEIGHT_FILES)}"
        )
    args: Any = recipe.model
    actual = read_shapes(file)
    lora = _read_lora_args(folder / ADAPTER_CONFIG, any(map(is_vision_parameter, actual)))
    check_rank(file, actual, lora.r)
    recipe = replace(recipe, model=replace(args, lora=lora))
    loaded = build(recipe)
    model = adapters.prepare_for_training(loaded, recipe.train.seed)
    assert isinstance(model, PeftModel)
    own = get_peft_model_state_dict(model, save_embedding_layers=False)
    expected = {name: tuple(own[name].shape) for name in own if name in actual}
    check_shapes(file, actual, expected)
    set_peft_model_state_dict(model, own | _read_weights(file))
    return recipe, loaded, model


def _read_lora_args(file: Path, vision: bool) -> recipes.LoraArgs:
    """Rank, alpha, dropout and scaling; ValueError where the adapters are more than LoRA."""
    payload = read_json_object(file, "LoRA adapters")
    try:
        args = recipes.LoraArgs(
            int(payload["r"]),
            int(payload["lora_alpha"]),
            float(payload.get("lora_dropout") or 0.0),
            bool(payload.get("use_rslora")),
            vision,
        )
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise ValueError(f"{file} does not describe LoRA adapters ({first_line(error)})") from error
    for name, plain in PLAIN_LORA_VALUES.items():
        if payload.get(name) is not None and payload[name] not in plain:
            raise ValueError(f"{file}: {name}: got {payload[name]!r:.80}, which is not supported")
    return args


def _read_weights(file: Path) -> dict[str, Tensor]:
    if file.suffix == ".safetensors":
        return read_weights(file)
    weights = torch.load(file, map_location="cpu", weights_only=True)
    assert isinstance(weights, dict)
    check_finite(file, weights.items())
    return weights
