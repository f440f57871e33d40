"""LoRA on the language model's linear layers (PEFT), a bridge's projection trained whole, everything else frozen.

In: a model as `model.build` made it. Out: the same with adapters; and those adapters as files in PEFT's names.
"""

import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import save_file
from torch import nn

from uivlm.models.model import Built
from uivlm.models.weights import check_shapes, read_weights, shapes_of

ADAPTERS, ADAPTER_CONFIG, PROJECTOR = (
    "adapter_model.safetensors",
    "adapter_config.json",
    "projector.safetensors",
)
VISION = ("vision", "visual")  # a module with such a part in its name carries no adapter


def targets(module: nn.Module, pattern: str) -> list[str]:
    """Names of the linear layers that the pattern takes in full; refused if there is none or one that sees."""
    found = [name for name, part in module.named_modules() if re.fullmatch(pattern, name)]
    if not found:
        raise ValueError(f"no module matches the LoRA targets {pattern!r}")
    for name in found:
        if any(word in part for part in name.split(".") for word in VISION):
            raise ValueError(f"the LoRA targets {pattern!r} match {name}: the vision encoder stays frozen")
        if not isinstance(module.get_submodule(name), nn.Linear):
            raise ValueError(f"the LoRA targets {pattern!r} match {name}, which is no linear layer")
    return found


def described(names: Sequence[str]) -> str:
    """Target layers in few words: numbers of layers are gathered."""
    grouped = itertools.groupby(sorted(names, key=_unnumbered), key=_unnumbered)
    return "\n".join(f"{len(list(group))} x {name}" for name, group in grouped)


def _unnumbered(name: str) -> str:
    return re.sub(r"\.\d+\.", ".*.", name)


def adapt(built: Built, seed: int) -> PeftModel:
    """The module with fresh adapters (B = 0: it still computes what the base computes), ready to train."""
    assert built.lora is not None, "full fine-tuning has no adapters"
    targets(built.module, built.targets)
    torch.manual_seed(seed)  # before the adapters are made: their A is random
    config = LoraConfig(
        r=built.lora.r,
        lora_alpha=built.lora.alpha,
        lora_dropout=built.lora.dropout,
        target_modules=built.targets,
    )
    return _wrap(built, config)


def trained_names(model: nn.Module) -> list[str]:
    return [name for name, value in model.named_parameters() if value.requires_grad]


def check_trained(model: nn.Module, built: Built) -> None:
    """Exactly the adapters of every target, and the projection where there is one, are trained."""
    prefix = "base_model.model"
    base = model.get_submodule(prefix)
    adapted = [name for name, _ in base.named_modules() if re.fullmatch(built.targets, name)]
    expected = {f"{prefix}.{name}.lora_{half}.default.weight" for name in adapted for half in "AB"}
    if built.projector is not None:
        projector = base.get_submodule(built.projector)
        expected |= {f"{prefix}.{built.projector}.{name}" for name, _ in projector.named_parameters()}
    differs = expected ^ set(trained_names(model))
    assert not differs, f"trained parameters differ from adapters and projection: {sorted(differs)[:4]}"


def save_adapters(model: PeftModel, built: Built, base: str, folder: Path) -> None:
    """Adapters as two files in PEFT's names, and the projection as a third."""
    weights = get_peft_model_state_dict(model, save_embedding_layers=False)  # no question to the model hub
    save_file({name: value.detach().cpu().contiguous() for name, value in weights.items()}, folder / ADAPTERS)
    config = model.peft_config["default"].to_dict()
    config |= {"base_model_name_or_path": base, "inference_mode": True}
    text = json.dumps(config, indent=1, sort_keys=True, default=_plain)
    (folder / ADAPTER_CONFIG).write_text(text + "\n", "utf-8")
    if built.projector is not None:
        save_projector(model, built, folder)


def save_projector(model: PeftModel, built: Built, folder: Path) -> None:
    weights = _projector(model, built).state_dict()
    save_file(
        {name: value.detach().cpu().contiguous() for name, value in weights.items()}, folder / PROJECTOR
    )


def load_projector(model: PeftModel, built: Built, folder: Path) -> None:
    projector = _projector(model, built)
    weights = read_weights(folder / PROJECTOR)
    check_shapes(folder / PROJECTOR, shapes_of(weights), shapes_of(projector.state_dict()))
    projector.load_state_dict(weights)


def load_adapters(built: Built, folder: Path) -> PeftModel:
    """The model with a folder's adapters and projection; ValueError where they do not fit it exactly."""
    try:
        told = json.loads((folder / ADAPTER_CONFIG).read_text("utf-8"))
        unnamed = {"base_model_name_or_path": None}  # ours are not PEFT's to find: it would warn
        config = LoraConfig(**told | unnamed | {"inference_mode": False})  # else PEFT freezes what is checked
    except (ValueError, TypeError) as error:
        raise ValueError(f"{folder / ADAPTER_CONFIG} does not describe LoRA adapters ({error})") from error
    model = _wrap(built, config)
    weights = read_weights(folder / ADAPTERS)
    wanted = get_peft_model_state_dict(model, save_embedding_layers=False)
    check_shapes(folder / ADAPTERS, shapes_of(weights), shapes_of(wanted))
    set_peft_model_state_dict(model, weights)
    if built.projector is not None:
        load_projector(model, built, folder)
    return model


def merged(model: PeftModel) -> nn.Module:
    """The module with W + B A scale in place of W: as fast as the base."""
    module = model.merge_and_unload().requires_grad_(False)
    assert isinstance(module, nn.Module)
    return module.eval()


def _wrap(built: Built, config: LoraConfig) -> PeftModel:
    model = get_peft_model(built.module, config)
    assert isinstance(model, PeftModel)
    model.peft_config["default"].base_model_name_or_path = ""  # else PEFT reads or asks for it at every save
    if built.projector is not None:  # in float32 like the adapters: steps of 1e-5 vanish in bfloat16
        _projector(model, built).float().requires_grad_(True)
    check_trained(model, built)
    return model


def _projector(model: PeftModel, built: Built) -> nn.Module:
    assert built.projector is not None
    return model.base_model.model.get_submodule(built.projector)  # type: ignore[union-attr]


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set) else str(value)
