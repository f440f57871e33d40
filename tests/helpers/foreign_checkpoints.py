"""Changes that a stranger could make to a checkpoint folder."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from uivlm.models.digests import weight_digests


def copy_of(folder: Path, out: Path, **adapter_fields: Any) -> Path:
    """A copy with other fields in adapter_config.json."""
    shutil.copytree(folder, out)
    change_json(out / "adapter_config.json", **adapter_fields)
    return out


def change_json(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def change_model(folder: Path, **fields: Any) -> None:
    """Change fields of the recipe's model."""
    recipe = json.loads((folder / "recipe.json").read_text())
    change_json(folder / "recipe.json", model=recipe["model"] | fields)


def set_weight(file: Path, value: float) -> str:
    """Set one number of a weight in the file. Returns the name of the weight."""
    weights = load_file(file)
    name = sorted(weights)[0]
    weights[name].view(-1)[3] = torch.tensor(value)
    save_file(weights, file)
    return name


def sign(folder: Path) -> None:
    """Write the digests of the weight files, as they are now, into the card."""
    change_json(folder / "card.json", weights_sha256=weight_digests(folder))
