"""A checkpoint folder as a model that is ready to act. Strict: any defect is an error of one sentence.

In: the folder that `uivlm train` wrote. Out: the model, its processor and its prompt format.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from uivlm import recipe as recipes
from uivlm.episodes.encode import Processor
from uivlm.episodes.sentence import PromptFormat
from uivlm.models import adapters
from uivlm.models.base_models import with_local_bases
from uivlm.models.build import prompt_format
from uivlm.models.digests import check_digests, is_plain_file, saved_files
from uivlm.models.loaded_model import LoadedModel
from uivlm.recipe import Recipe

RECIPE = "recipe.json"


@dataclass(frozen=True, slots=True)
class LoadedCheckpoint:
    model: nn.Module
    processor: Processor
    prompt_format: PromptFormat
    recipe: Recipe
    name: str  # of the folder
    supports_prefix_cache: bool = True
    supports_static_decoding: bool = False


def load_checkpoint(folder: str | Path, expected_format: PromptFormat | None = None) -> LoadedCheckpoint:
    """The checkpoint's model in evaluation mode. ValueError if its prompt format is not the expected one."""
    root = Path(folder)
    recipe = open_checkpoint(root)
    actual = prompt_format(recipe)
    if expected_format is not None and expected_format != actual:
        raise ValueError(f"the checkpoint {root} has {actual}; expected {expected_format}")
    return _to_checkpoint(*adapters.load(recipe, root), recipe, root)


def load_checkpoints_shared_base(folders: Sequence[Path]) -> list[LoadedCheckpoint]:
    """The models of several checkpoints, whose base is in memory once."""
    checkpoint_recipes = read_shared_base_recipes(folders)
    models = adapters.load_adapters_shared_base(checkpoint_recipes[0], folders)
    return [
        _to_checkpoint(loaded, model, recipe, root)
        for (loaded, model), recipe, root in zip(models, checkpoint_recipes, folders, strict=True)
    ]


def read_shared_base_recipes(folders: Sequence[Path]) -> list[Recipe]:
    """The recipes of checkpoints that are served together.

    ValueError unless they are adapters of one base with one prompt format and different names. A single
    checkpoint may be anything.
    """
    checkpoint_recipes = [open_checkpoint(folder) for folder in folders]
    names = [folder.resolve().name for folder in folders]
    for folder, recipe, name in zip(folders, checkpoint_recipes, names, strict=True):
        if recipe.model.lora is None and len(folders) > 1:
            raise ValueError(
                f"the checkpoint {folder} is a full model: only adapters share a base. Serve it alone"
            )
        if _base_key(recipe) != _base_key(checkpoint_recipes[0]):
            raise ValueError(
                f"the checkpoint {folder} has another base or prompt format than {folders[0]}: serve each "
                "alone"
            )
        if names.count(name) > 1:
            raise ValueError(f"{names.count(name)} checkpoints are called {name!r}: rename their folders")
    return checkpoint_recipes


def _base_key(recipe: Recipe) -> tuple[object, ...]:
    model = recipe.without_pretrained_projector().model
    return replace(model, lora=None), recipe.prompt, recipe.train.precision


def _to_checkpoint(loaded: LoadedModel, model: nn.Module, recipe: Recipe, root: Path) -> LoadedCheckpoint:
    if torch.cuda.is_available() and not loaded.quantized:
        model.cuda()
    return LoadedCheckpoint(
        model,
        loaded.processor,
        prompt_format(recipe),
        recipe,
        root.resolve().name,
        loaded.supports_prefix_cache,
        loaded.supports_static_decoding and not loaded.quantized,  # kernels of quantized layers may wait
    )


def open_checkpoint(folder: Path) -> Recipe:
    """The recipe of a checkpoint whose weights can be loaded: unchanged files, and a base on this machine."""
    recipe = read_recipe(folder)
    check_digests(folder)
    return with_local_bases(recipe)


def read_recipe(folder: str | Path) -> Recipe:
    """The recipe of a checkpoint folder. ValueError unless the folder holds exactly that recipe's weights."""
    root = Path(folder)
    if not root.is_dir():
        raise ValueError(f"there is no checkpoint folder {root}: `uivlm train` writes one")
    if not is_plain_file(root / RECIPE):
        raise ValueError(f"the folder {root} is not a checkpoint: it has no {RECIPE}")
    try:
        recipe = recipes.from_dict(json.loads((root / RECIPE).read_text("utf-8")))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{root / RECIPE} is not a recipe of this version ({error})") from error
    needed = adapters.checkpoint_files(recipe)
    for name in adapters.ALL_FILES:
        exists = (root / name).exists()
        if name in needed and not exists:
            raise ValueError(f"the folder {root} is not a checkpoint: it has no {name}")
        if exists and name not in needed:
            raise ValueError(
                f"the folder {root} holds {name}, which does not belong to a {recipe.model.type} checkpoint "
                "of this "
                "recipe: use the folder as `uivlm train` wrote it"
            )
    for file in saved_files(root):
        if not is_plain_file(file):
            raise ValueError(
                f"{file} is a link, a folder or a device; expected a file: copy the checkpoint again"
            )
    return recipe
