"""What folders in the hub's format have in common: JSON tables, colours, and weights for one of transformers' classes.

Everything is strict: what is missing, damaged or does not fit is one ValueError that names the file.
"""

import json
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import PreTrainedModel

from uivlm.models.hub import first_line

M = TypeVar("M", bound=PreTrainedModel)
Three = tuple[float, float, float]


def read_table(file: Path, what: str) -> dict[str, Any]:
    """The table in a JSON file of a folder that should hold a `what`."""
    if not file.is_file():
        raise ValueError(f"the folder {file.parent} holds no {what}: it has no {file.name}")
    try:
        told = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is no JSON ({first_line(error)}): get it again") from error
    if not isinstance(told, dict):
        raise ValueError(f"{file} holds no table: get it again")
    return told


def colours(file: Path, told: dict[str, Any]) -> tuple[Three, Three]:
    """Mean and standard deviation (R, G, B in 0..1) that the table of a preprocessor's file tells."""
    try:
        mean, std = (tuple(map(float, told[field])) for field in ("image_mean", "image_std"))
        return (mean[0], mean[1], mean[2]), (std[0], std[1], std[2])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ValueError(f"{file} tells no image_mean and image_std of three channels each") from error


def load_module(kind: type[M], root: Path, dtype: torch.dtype, *, has_more: bool = False, **rest: Any) -> M:
    """The folder's model with every weight in its place. `has_more`: the file may hold other parts, which are not read.

    `rest` goes to `from_pretrained`: `config`, `quantization_config`, `device_map`.
    """
    try:
        loaded: Any = kind.from_pretrained(
            root, dtype=dtype, local_files_only=True, use_safetensors=True, output_loading_info=True, **rest
        )
    except Exception as error:  # damaged files raise nearly anything
        raise ValueError(f"the {kind.__name__} in {root} cannot be loaded ({first_line(error)})") from error
    module, told = loaded
    for what in ("missing_keys", "mismatched_keys", *(() if has_more else ("unexpected_keys",))):
        if names := sorted(map(str, told.get(what, ()))):
            raise ValueError(
                f"the weights in {root} do not fit {kind.__name__}: {len(names)} {what.replace('_', ' ')}, such as "
                f"{names[0]}"
            )
    assert isinstance(module, kind)
    return module
