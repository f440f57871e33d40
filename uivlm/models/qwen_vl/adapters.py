"""LoRA adapters that others made for Qwen-VL, in the original's names.

In: the model and a folder in PEFT's layout (`adapter_config.json`, `adapter_model.safetensors` or `.bin`). Out: the
model with those adapters, in evaluation mode. PEFT itself leaves out what does not fit; here that is an error.
"""

import json
from pathlib import Path
from typing import cast

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file
from torch import Tensor

from uivlm.models.qwen_vl.model import QwenVL
from uivlm.models.weights import check_shapes, shapes_in, shapes_of

CONFIG, WEIGHTS = "adapter_config.json", ("adapter_model.safetensors", "adapter_model.bin")


def attach(module: QwenVL, folder: str | Path) -> PeftModel:
    root = Path(folder)
    file = next((root / name for name in WEIGHTS if (root / name).is_file()), None)
    if file is None or not (root / CONFIG).is_file():
        raise ValueError(f"the folder {root} holds no adapters: it needs {CONFIG} and {' or '.join(WEIGHTS)}")
    model = get_peft_model(module, _config(root))
    assert isinstance(model, PeftModel)
    check_shapes(file, shapes_in(file), shapes_of(get_peft_model_state_dict(model)))
    set_peft_model_state_dict(model, _read(file))
    model.requires_grad_(False)
    return cast(PeftModel, model.eval())


def _config(root: Path) -> LoraConfig:
    """Fields that another version of PEFT wrote and that say nothing (null, empty, False) are left out."""
    try:
        told = json.loads((root / CONFIG).read_text("utf-8"))
        known = LoraConfig.__dataclass_fields__
        return LoraConfig(**{name: value for name, value in told.items() if name in known or value})
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{root / CONFIG} does not describe LoRA adapters ({error})") from error


def _read(file: Path) -> dict[str, Tensor]:
    if file.suffix == ".safetensors":
        return load_file(file)
    read = torch.load(file, map_location="cpu", weights_only=True)
    assert isinstance(read, dict)
    return read
