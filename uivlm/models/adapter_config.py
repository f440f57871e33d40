"""PEFT's configuration of LoRA adapters, made from the recipe alone.

`adapter_config.json` is for other programs. Here it is only compared: a file of a stranger could name code to
import, or settings that load another model than was trained.
"""

import json
from pathlib import Path
from typing import Any

from peft import LoraConfig

from uivlm.models.loaded_model import LoadedModel
from uivlm.models.pretrained import read_json_object
from uivlm.recipe import LoraArgs

ADAPTER_CONFIG = "adapter_config.json"
# Fields that may differ: where the base was, which PEFT wrote the file, and whether it was for inference.
UNCOMPARED_FIELDS = ("base_model_name_or_path", "peft_version", "inference_mode")


def lora_config(loaded: LoadedModel) -> LoraConfig:
    """The configuration of a model's adapters. The model's own layers carry them."""
    assert loaded.lora is not None, "full fine-tuning has no adapters"
    return to_lora_config(loaded.lora, loaded.all_lora_targets)


def to_lora_config(args: LoraArgs, targets: str | list[str]) -> LoraConfig:
    return LoraConfig(
        r=args.r,
        lora_alpha=args.alpha,
        lora_dropout=args.dropout,
        use_rslora=args.rslora,
        target_modules=targets,
    )


def write_adapter_config(config: LoraConfig, base: str, folder: Path, **fields: str) -> None:
    """Write the file for other programs. `base`: name of the base model; `fields`: values that differ."""
    content = config_to_json(config) | {"base_model_name_or_path": base, "inference_mode": True} | fields
    (folder / ADAPTER_CONFIG).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", "utf-8")


def check_adapter_config(file: Path, config: LoraConfig) -> None:
    """ValueError unless the file has the configuration's values, and no other field."""
    expected = config_to_json(config)
    for name, value in read_json_object(file, "checkpoint").items():
        if name not in expected:
            raise ValueError(f"{file}: {name:.80}: got {_shorten(value)}; LoRA adapters have no such field")
        if name not in UNCOMPARED_FIELDS and value != expected[name]:
            raise ValueError(
                f"{file}: {name}: got {_shorten(value)}; expected {_shorten(expected[name])}, as in "
                "recipe.json. Use the folder as `uivlm train` wrote it"
            )


def config_to_json(config: LoraConfig) -> dict[str, Any]:
    """The fields as a JSON file holds them."""
    values = config.to_dict()  # type: ignore[no-untyped-call]
    fields: dict[str, Any] = json.loads(json.dumps(values, default=_json_default))
    return fields


def _json_default(value: Any) -> Any:
    return sorted(value) if isinstance(value, set) else str(value)


def _shorten(value: object) -> str:
    return "a list or an object" if isinstance(value, list | dict) and value else f"{value!a:.80}"
