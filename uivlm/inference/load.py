"""A checkpoint folder becomes a model that answers. Strict: whatever is wrong is told in one sentence.

In: the folder that `uivlm train` wrote. Out: the module with its adapters merged, its reader and its grammar.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from uivlm import recipe as recipes
from uivlm.models.lora import ADAPTER_CONFIG, ADAPTERS, PROJECTOR, load_adapters, merged
from uivlm.models.model import Reader, build, grammar
from uivlm.sentences.sentence import Grammar

RECIPE = "recipe.json"
NEEDED = (RECIPE, ADAPTERS, ADAPTER_CONFIG, PROJECTOR)


@dataclass(frozen=True, slots=True)
class Loaded:
    module: nn.Module
    reader: Reader
    grammar: Grammar
    recipe: recipes.Recipe
    name: str  # of the folder


def load(folder: str | Path, asked: Grammar | None = None) -> Loaded:
    """The checkpoint's model, in evaluation mode; refused if `asked` is given and is not its grammar."""
    root = Path(folder)
    recipe = read_recipe(root)
    spoken = grammar(recipe)
    if asked is not None and asked != spoken:
        raise ValueError(
            f"the checkpoint {root} speaks {spoken}, asked for is {asked}: use the checkpoint's own"
        )
    built = build(recipe)
    module = merged(load_adapters(built, root))
    if torch.cuda.is_available():
        module.cuda()
    return Loaded(module, built.reader, spoken, recipe, root.resolve().name)


def read_recipe(folder: str | Path) -> recipes.Recipe:
    """The recipe in a checkpoint folder, once its files are known to be there."""
    root = Path(folder)
    if not root.is_dir():
        raise ValueError(f"there is no checkpoint folder {root}: `uivlm train` makes one")
    for name in NEEDED:
        if not (root / name).is_file():
            raise ValueError(f"the folder {root} is no checkpoint: it has no {name}")
    try:
        return recipes.from_dict(json.loads((root / RECIPE).read_text("utf-8")))
    except ValueError as error:
        raise ValueError(f"{root / RECIPE} is no recipe of this version ({error})") from error
