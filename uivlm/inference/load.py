"""A checkpoint folder becomes a model that answers. Strict: whatever is wrong is told in one sentence.

In: the folder that `uivlm train` wrote. Out: the module ready to act, its reader and its grammar.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from uivlm import recipe as recipes
from uivlm.models import tune
from uivlm.models.model import Built, Reader, grammar
from uivlm.sentences.sentence import Grammar

RECIPE = "recipe.json"


@dataclass(frozen=True, slots=True)
class Loaded:
    module: nn.Module
    reader: Reader
    grammar: Grammar
    recipe: recipes.Recipe
    name: str  # of the folder
    reuse: bool = True  # do keys and values of a prompt's beginning serve a longer prompt?


def load(folder: str | Path, asked: Grammar | None = None) -> Loaded:
    """The checkpoint's model, in evaluation mode; refused if `asked` is given and is not its grammar."""
    root = Path(folder)
    recipe = read_recipe(root)
    spoken = grammar(recipe)
    if asked is not None and asked != spoken:
        raise ValueError(
            f"the checkpoint {root} speaks {spoken}, asked for is {asked}: use the checkpoint's own"
        )
    return _loaded(*tune.load(recipe, root), recipe, root)


def load_beside(folders: Sequence[Path]) -> list[Loaded]:
    """Several checkpoints' models, whose base is in memory once; refused as by `same_base`."""
    recipes_ = same_base(folders)
    made = tune.load_beside(recipes_[0], folders)
    return [_loaded(*one, recipe, root) for one, recipe, root in zip(made, recipes_, folders, strict=True)]


def same_base(folders: Sequence[Path]) -> list[recipes.Recipe]:
    """Recipes of checkpoints that can be served side by side. ValueError where they are not adapters of one base and grammar, or
    share a name; one alone may be anything."""
    told = [read_recipe(folder) for folder in folders]
    names = [folder.resolve().name for folder in folders]
    for folder, recipe, name in zip(folders, told, names, strict=True):
        if recipe.model.lora is None and len(folders) > 1:
            raise ValueError(
                f"the checkpoint {folder} is a whole model: only adapters share a base, serve it alone"
            )
        if _base(recipe) != _base(told[0]):
            raise ValueError(
                f"the checkpoint {folder} is of another base or grammar than {folders[0]}: serve each alone"
            )
        if names.count(name) > 1:
            raise ValueError(f"{names.count(name)} checkpoints are called {name!r}: rename their folders")
    return told


def _base(recipe: recipes.Recipe) -> tuple[object, ...]:
    return replace(recipe.model, lora=None), recipe.grammar, recipe.train.precision


def _loaded(built: Built, module: nn.Module, recipe: recipes.Recipe, root: Path) -> Loaded:
    if torch.cuda.is_available() and not built.quantised:
        module.cuda()
    return Loaded(module, built.reader, grammar(recipe), recipe, root.resolve().name, built.reuse)


def read_recipe(folder: str | Path) -> recipes.Recipe:
    """The recipe in a checkpoint folder, once it is known to hold that recipe's weights and no others."""
    root = Path(folder)
    if not root.is_dir():
        raise ValueError(f"there is no checkpoint folder {root}: `uivlm train` makes one")
    if not (root / RECIPE).is_file():
        raise ValueError(f"the folder {root} is no checkpoint: it has no {RECIPE}")
    try:
        recipe = recipes.from_dict(json.loads((root / RECIPE).read_text("utf-8")))
    except ValueError as error:
        raise ValueError(f"{root / RECIPE} is no recipe of this version ({error})") from error
    needed = tune.files(recipe)
    for name in tune.ALL:
        there = (root / name).exists()
        if name in needed and not there:
            raise ValueError(f"the folder {root} is no checkpoint: it has no {name}")
        if there and name not in needed:
            raise ValueError(
                f"the folder {root} holds {name}, which a {recipe.model.kind} checkpoint like this one has not: "
                "it is not as `uivlm train` wrote it"
            )
    return recipe
