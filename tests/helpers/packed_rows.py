"""Recipes of every kind of tiny model, and rows to pack."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.helpers.tiny_models import episode, qwen_recipe, recipe, with_settings
from uivlm.episodes.encode import IGNORE, Example
from uivlm.models.build import prompt_format
from uivlm.models.loaded_model import LoadedModel
from uivlm.recipe import DataArgs, LlamaPartsArgs, QwenHFArgs, Recipe
from uivlm.training.collator import LOSS_KEYS, Collator
from uivlm.training.dataset import encode_window

ALL_LOGITS = {"trained_positions": None, "labels": None}
KINDS = ["llama_vit", "llama_parts", "qwen_vl", "Qwen2VL", "Qwen2_5_VL", "Qwen3VL"]


def packing_recipe(root: Path, kind: str, **part: Any) -> Recipe:
    """A run of the tiny model of this kind in `root`; `part` changes its settings."""
    if kind == "qwen_vl":
        made = qwen_recipe(root / kind, root / "data")
    else:
        made = recipe(root / "llama_vit", root / "data")
        if kind == "llama_parts":
            parts = LlamaPartsArgs(str(root / kind), str(root / "dinov2"), made.model.lora, grid_size=2)
            made = replace(made, model=parts)
        elif kind != "llama_vit":
            made = replace(made, model=QwenHFArgs(str(root / kind), made.model.lora))
    settings = {"per_device_batch_size": 3, "epochs": 1.0, "report_to": (), "precision": "float32"}
    return with_settings(replace(made, data=DataArgs(str(root / "data"))), **(settings | part))


def rows_of(one: Recipe, built: LoadedModel, lengths: tuple[int, ...]) -> list[Example]:
    spoken = prompt_format(one)
    return [
        encode_window(window, True, spoken, built.processor, "")
        for i, n in enumerate(lengths)
        for window in spoken.windows(episode(20 + i, n))
    ]


def batched(built: LoadedModel, rows: list[Example], pack: bool) -> dict[str, Any]:
    """The model's arguments, and `labels`."""
    batch = Collator(built.processor.pad_id, built.processor.image_token_id, pack)(rows)
    return {name: part for name, part in batch.items() if name == "labels" or name not in LOSS_KEYS}


def text_row(built: LoadedModel, random: np.random.Generator, length: int) -> Example:
    """A sentence of random words without a screen; all tokens but the first are trained."""
    ids = random.choice(built.processor.encode("swipe from home to say tap"), length)
    return Example(ids, np.where(np.arange(length) > 0, ids, IGNORE), np.zeros(length - 1, np.int64), ())


def mixed(one: Recipe, built: LoadedModel, seed: int) -> list[Example]:
    """Episodes, and sentences of 1 to 400 tokens without a screen, in random order."""
    random = np.random.default_rng(seed)
    lengths = [1, *np.exp(random.uniform(0, 6, 3)).astype(int)]
    rows = rows_of(one, built, tuple(random.integers(1, 7, 3))) + [
        text_row(built, random, n) for n in lengths
    ]
    return [rows[i] for i in random.permutation(len(rows))]


def tower(module: Any) -> Any:
    """The model's language model, a class of transformers."""
    return module.language if hasattr(module, "language") else module.model.language_model
