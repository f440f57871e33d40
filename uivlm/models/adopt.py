"""LoRA adapters that another program trained, as a checkpoint's own.

In: a recipe and a folder in PEFT's layout (`adapter_config.json`, `adapter_model.safetensors` or `.bin`), names as in the
model's original. Out: the recipe with the adapters' rank, and the model with them. Layers that the recipe adapts and the
folder does not get adapters that change nothing; whatever else does not fit is refused, where PEFT would leave it out.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file
from torch import Tensor

from uivlm import recipe as recipes
from uivlm.models import tune
from uivlm.models.hub import first_line
from uivlm.models.lora import ADAPTER_CONFIG, ADAPTERS
from uivlm.models.model import Built, build
from uivlm.models.weights import check_shapes, shapes_in

WEIGHTS = (ADAPTERS, "adapter_model.bin")  # the first that is there counts
# What PEFT can do beside plain LoRA, with the values that mean it does not.
PLAIN = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "use_rslora": (False,),
    "use_dora": (False,),
    "rank_pattern": ({},),
    "alpha_pattern": ({},),
    "modules_to_save": (None, []),
    "fan_in_fan_out": (False,),
}


def adopt(recipe: recipes.Recipe, folder: Path) -> tuple[recipes.Recipe, Built, PeftModel]:
    file = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if file is None or not (folder / ADAPTER_CONFIG).is_file():
        raise ValueError(
            f"the folder {folder} holds no adapters: it needs {ADAPTER_CONFIG} and {' or '.join(WEIGHTS)}"
        )
    part: Any = recipe.model
    recipe = replace(recipe, model=replace(part, lora=_lora(folder / ADAPTER_CONFIG)))
    built = build(recipe)
    model = tune.begin(built, recipe.train.seed)
    assert isinstance(model, PeftModel)
    own = get_peft_model_state_dict(model, save_embedding_layers=False)
    found = shapes_in(file)
    wanted = {name: tuple(own[name].shape) for name in own if name in found}
    check_shapes(file, found, wanted)
    set_peft_model_state_dict(model, own | _read(file))
    return recipe, built, model


def _lora(file: Path) -> recipes.Lora:
    """Rank, alpha and dropout; ValueError where the adapters are more than LoRA."""
    try:
        told = json.loads(file.read_text("utf-8"))
        made = recipes.Lora(int(told["r"]), int(told["lora_alpha"]), float(told.get("lora_dropout") or 0.0))
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{file} does not describe LoRA adapters ({first_line(error)})") from error
    for name, plain in PLAIN.items():
        if told.get(name) is not None and told[name] not in plain:
            raise ValueError(f"{file}: {name} is {told[name]!r}, which this project does not compute")
    return made


def _read(file: Path) -> dict[str, Tensor]:
    if file.suffix == ".safetensors":
        return load_file(file)
    read = torch.load(file, map_location="cpu", weights_only=True)
    assert isinstance(read, dict)
    return read
