"""The checkpoint folder: exactly what inference needs, complete or absent.

In: a trained model, its recipe, its data and its log. Out: the files of `checkpoint_files`.
"""

import json
import os
import shlex
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import nn

from uivlm import recipe as recipes
from uivlm.atomic import check_new_dir, new_dir
from uivlm.models import adapters
from uivlm.models.build import build
from uivlm.models.digests import CARD, CARD_VERSION, weight_digests
from uivlm.models.loaded_model import LoadedModel
from uivlm.training.curves import write_curves

RECIPE, LOG, CURVES = "recipe.json", "log.jsonl", "curves.html"
LIBRARIES = ("uivlm", "torch", "transformers", "peft")


def checkpoint_files(recipe: recipes.Recipe) -> tuple[str, ...]:
    return (*adapters.checkpoint_files(recipe), RECIPE, CARD, LOG, CURVES)


def save(
    out: Path,
    model: nn.Module,
    loaded: LoadedModel,
    recipe: recipes.Recipe,
    data: list[dict[str, Any]],
    wall_s: float,
    log: str,
) -> Path:
    """Write the checkpoint `out`.

    `data`: a summary of each dataset, empty for an untuned base. `log`: log.jsonl's text.
    """
    with new_dir(out) as folder:
        adapters.save(model, loaded, recipe.model.base_model, folder)
        adapters.check_saved(model, loaded, folder)
        write_json(folder / RECIPE, recipes.to_dict(recipe))
        card = _card(model, loaded, recipe, data, wall_s)
        write_json(folder / CARD, card | {"weights_sha256": weight_digests(folder)})
        (folder / LOG).write_text(log, "utf-8")
        write_curves(log, folder / CURVES, recipe.name)
        assert {file.name for file in folder.iterdir()} == set(checkpoint_files(recipe))
    return out


def save_base_checkpoint(recipe: recipes.Recipe, out: str | Path) -> Path:
    """Write the untuned base as a checkpoint, with adapters that change nothing, so that the same code scores
    it.
    """
    check_new_dir(Path(out))
    loaded = build(recipe)
    model = adapters.prepare_for_training(loaded, recipe.train.seed)
    return save(Path(out), model, loaded, recipe, [], 0.0, "")


def write_json(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n", "utf-8")


def _card(
    model: nn.Module, loaded: LoadedModel, recipe: recipes.Recipe, data: list[dict[str, Any]], wall_s: float
) -> dict[str, Any]:
    sizes = {name: value.numel() for name, value in model.named_parameters() if value.requires_grad}
    in_adapters = sum(size for name, size in sizes.items() if ".lora_" in name)
    others = "weights" if loaded.lora is None and not loaded.freeze_language_model else "projection"
    trainable = {"adapters": in_adapters, others: sum(sizes.values()) - in_adapters}
    return {
        "version": CARD_VERSION,
        "name": recipe.name,
        "data": data,
        "prompt": recipes.to_dict(recipe)["prompt"],
        "seed": recipe.train.seed,
        "trainable_parameters": {name: size for name, size in trainable.items() if size},
        "parameters": loaded.model.num_parameters(),  # type: ignore[operator]  # it counts packed 4-bit weights correctly
        "versions": {library: version(library) for library in LIBRARIES},
        "command": shlex.join(sys.argv),
        "num_processes": int(os.environ.get("WORLD_SIZE", "1")),
        "wall_s": round(wall_s, 1),
    }
