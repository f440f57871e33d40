"""A checkpoint folder becomes a model that answers. Strict: whatever is wrong is told in one sentence.

In: the folder that `uivlm train` wrote. Out: the module ready to act, its reader and its grammar.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from uivlm import recipe as recipes
from uivlm.models import tune
from uivlm.models.model import Reader, grammar
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
    built, module = tune.load(recipe, root)
    if torch.cuda.is_available() and not built.quantised:
        module.cuda()
    return Loaded(module, built.reader, spoken, recipe, root.resolve().name, built.reuse)


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
