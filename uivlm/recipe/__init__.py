"""A run as a value: the model, the prompt format, the data, and how to train.

A recipe file is a Python program with one function, `recipe() -> Recipe`; a variant is `dataclasses.replace`.
A checkpoint carries its recipe as JSON. Recipe files are written by users, so they import from here alone.
"""

from uivlm.recipe.checks import RecipeError
from uivlm.recipe.file import load, override, recipes_dir
from uivlm.recipe.model_args import (
    LlamaPartsArgs,
    LlamaVitArgs,
    LoraArgs,
    ModelArgs,
    Quantization,
    QwenHFArgs,
    QwenVLArgs,
    VisualTokens,
)
from uivlm.recipe.recipe import Recipe, from_dict, to_dict
from uivlm.recipe.train_args import (
    DataArgs,
    DistributedArgs,
    ExtraDataset,
    OptimArgs,
    PromptArgs,
    TrainArgs,
)

__all__ = [
    "DataArgs",
    "DistributedArgs",
    "ExtraDataset",
    "LlamaPartsArgs",
    "LlamaVitArgs",
    "LoraArgs",
    "ModelArgs",
    "OptimArgs",
    "PromptArgs",
    "Quantization",
    "QwenHFArgs",
    "QwenVLArgs",
    "Recipe",
    "RecipeError",
    "TrainArgs",
    "VisualTokens",
    "from_dict",
    "load",
    "override",
    "recipes_dir",
    "to_dict",
]
