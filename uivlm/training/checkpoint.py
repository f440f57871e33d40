"""The checkpoint folder: what inference needs and nothing else, complete or absent.

In: a trained model, its recipe, the run's figures. Out: exactly the files of `files`, written under a temporary name
and then renamed.
"""

import json
import os
import shlex
import shutil
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import nn

from uivlm import recipe as recipes
from uivlm.models import tune
from uivlm.models.model import Built, build
from uivlm.training.curves import write_curves

RECIPE, CARD, LOG, CURVES = "recipe.json", "card.json", "log.jsonl", "curves.html"
LIBRARIES = ("uivlm", "torch", "transformers", "peft")


def files(recipe: recipes.Recipe) -> tuple[str, ...]:
    return (*tune.files(recipe), RECIPE, CARD, LOG, CURVES)


def refuse_existing(out: Path) -> None:
    if out.exists():
        raise ValueError(f"{out} exists already: choose another --out, or remove it first")


def save(
    out: Path,
    model: nn.Module,
    built: Built,
    recipe: recipes.Recipe,
    data: list[dict[str, Any]],
    wall_s: float,
    log: str,
) -> Path:
    """`data` tells of each folder of training data, of none for an untuned base; `log` is log.jsonl's text."""
    refuse_existing(out)
    fresh = out.with_name(f"{out.name}.tmp")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    tune.save(model, built, recipe.model.base, fresh)
    write_json(fresh / RECIPE, recipes.to_dict(recipe))
    write_json(fresh / CARD, _card(model, built, recipe, data, wall_s))
    (fresh / LOG).write_text(log, "utf-8")
    write_curves(log, fresh / CURVES, f"{recipe.name}, as it was trained")
    assert {file.name for file in fresh.iterdir()} == set(files(recipe))
    os.replace(fresh, out)
    return out


def base_checkpoint(recipe: recipes.Recipe, out: str | Path) -> Path:
    """The untuned base as a checkpoint (adapters, if any, with B = 0), so that it is scored by the same path."""
    refuse_existing(Path(out))
    built = build(recipe)
    return save(Path(out), tune.begin(built, recipe.train.seed), built, recipe, [], 0.0, "")


def write_json(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n", "utf-8")


def _card(
    model: nn.Module, built: Built, recipe: recipes.Recipe, data: list[dict[str, Any]], wall_s: float
) -> dict[str, Any]:
    sizes = {name: value.numel() for name, value in model.named_parameters() if value.requires_grad}
    adapters = sum(size for name, size in sizes.items() if ".lora_" in name)
    others = "weights" if built.lora is None else "projection"
    trainable = {"adapters": adapters, others: sum(sizes.values()) - adapters}
    return {
        "name": recipe.name,
        "data": data,
        "grammar": recipes.to_dict(recipe)["grammar"],
        "seed": recipe.train.seed,
        "trainable_parameters": {name: number for name, number in trainable.items() if number},
        "parameters": built.module.num_parameters(),  # type: ignore[operator]  # it knows how 4 bits are counted
        "versions": {library: version(library) for library in LIBRARIES},
        "command": shlex.join(sys.argv),
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
        "wall_s": round(wall_s, 1),
    }
