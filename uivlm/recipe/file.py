"""Recipe files, and settings given on the command line."""

import importlib.util
import json
from importlib.machinery import SourceFileLoader
from pathlib import Path

from uivlm.recipe.checks import RecipeError, require
from uivlm.recipe.model_args import LlamaPartsArgs, LlamaVitArgs
from uivlm.recipe.recipe import Recipe, from_dict, to_dict

FIRST_STAGE = ("model.freeze_language_model", "model.projector")  # settings of a bridge


def recipes_dir() -> Path:
    """The folder of the recipes that come with uivlm: inside the package, or next to it in the repository."""
    package = Path(__file__).parents[1]
    return package / "recipes" if (package / "recipes").is_dir() else package.parent / "recipes"


def load(path: str | Path) -> Recipe:
    """The recipe of a file `*.py`, or a recipe that comes with uivlm, by its name."""
    file = Path(path) if Path(path).suffix == ".py" else recipes_dir() / f"{path}.py"
    names = ", ".join(sorted(path.stem for path in recipes_dir().glob("*.py")))
    require(file.is_file(), f"no recipe {str(path)!r}: name a file *.py, or one of {names}")
    loader = SourceFileLoader(f"recipe_{file.stem}", str(file))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    loaded = module.recipe() if callable(getattr(module, "recipe", None)) else None
    if not isinstance(loaded, Recipe):
        raise RecipeError(f"{file} is not a recipe: it needs a function recipe() that returns a Recipe")
    return loaded


def override(recipe: Recipe, settings: list[str]) -> Recipe:
    """The recipe with `part.field=value` settings applied; values are checked against the field's type."""
    tree = to_dict(recipe)
    for setting in settings:
        name, equals, value = setting.partition("=")
        *parts, last = name.split(".")
        node = tree
        for part in parts:
            node = node.get(part) if isinstance(node, dict) else None  # type: ignore[assignment]
        known = equals and isinstance(node, dict) and last in node
        require(
            name not in FIRST_STAGE or isinstance(recipe.model, LlamaVitArgs | LlamaPartsArgs),
            f"{name}: got {value}; expected a bridge (llama_vit, llama_parts): the merger or resampler of a "
            f"{recipe.model.type} model is pretrained. Set model.lora.vision=true to train adapters on it",
        )
        if not known or (value != "null" and isinstance(node[last], dict)):  # a part can only be set to null
            raise RecipeError(f"--set {setting!r}: no such setting; write part.field=value")
        try:
            node[last] = json.loads(value)
        except json.JSONDecodeError:
            node[last] = value
    return from_dict(tree)
