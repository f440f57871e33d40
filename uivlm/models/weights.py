"""Weights in files: their names and shapes without reading them, and whether they are exactly those of a model."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from uivlm.models.hub import first_line

Shapes = dict[str, tuple[int, ...]]


def read_weights(file: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file; ValueError where it is damaged."""
    try:
        return load_file(file)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file} is damaged or incomplete ({error}): get or make it again") from error


def shapes_in(file: Path) -> Shapes:
    """Names and shapes in a safetensors or PyTorch file (no code in it runs); ValueError where it is damaged."""
    try:
        if file.suffix == ".safetensors":
            with safe_open(file, framework="pt") as opened:
                return {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
        return shapes_of(
            torch.load(file, map_location="meta", weights_only=True, mmap=zipfile.is_zipfile(file))
        )
    except Exception as error:  # a damaged pickle raises nearly anything
        raise ValueError(
            f"{file} is damaged or holds more than weights ({first_line(error)}): get it again"
        ) from error


def shapes_of(weights: Mapping[str, Tensor]) -> Shapes:
    return {name: tuple(value.shape) for name, value in weights.items()}


def check_shapes(where: Path, found: Shapes, wanted: Shapes) -> None:
    """Same names, same shapes; else ValueError with an example and the number of such names."""
    if missing := sorted(wanted.keys() - found.keys()):
        raise ValueError(f"{where} lacks {len(missing)} of {len(wanted)} weights, such as {missing[0]}")
    if unexpected := sorted(found.keys() - wanted.keys()):
        raise ValueError(
            f"{where} holds {len(unexpected)} weights that the model has not, such as {unexpected[0]}"
        )
    for name, shape in wanted.items():
        if shape != found[name]:
            raise ValueError(
                f"{where}: {name} has shape {list(found[name])} where the model has {list(shape)}"
            )
