"""A tiny model of every kind, and a batch of it that is padded on the right."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from tests.helpers import hf_checkpoints
from tests.helpers.hf_llama_vit_parts import KINDS as ENCODERS
from tests.helpers.hf_llama_vit_parts import write_llama, write_vision
from tests.helpers.packed_rows import KINDS as PACKED_KINDS
from tests.helpers.packed_rows import batched, packing_recipe, rows_of
from tests.helpers.tiny_models import base, episode, prepare, qwen_base
from uivlm.models.build import build
from uivlm.models.loaded_model import LoadedModel
from uivlm.recipe import LlamaPartsArgs, Recipe

# the bridge folder, a bridge of each encoder, Qwen-VL, and its successors
EVERY_KIND = ["llama_vit", *(f"parts_{kind}" for kind in ENCODERS), *PACKED_KINDS[2:]]


def write_every_kind(root: Path) -> Path:
    base(root / "llama_vit")
    qwen_base(root / "qwen_vl")
    write_llama(root / "llama_parts")
    for kind in ENCODERS:
        write_vision(root / kind, kind)
    for kind in hf_checkpoints.KINDS:
        hf_checkpoints.write(root / kind, kind)
    prepare(root / "data", [episode(i, n) for i, n in enumerate((1, 4, 2, 3))])
    return root


def recipe_of(root: Path, kind: str, **settings: Any) -> Recipe:
    """A run of the tiny model of this kind in `root`; `settings` as of `with_settings`."""
    encoder = kind.removeprefix("parts_")
    if encoder == kind:
        return packing_recipe(root, kind, **settings)
    made = packing_recipe(root, "llama_vit", **settings)
    parts = LlamaPartsArgs(str(root / "llama_parts"), str(root / encoder), made.model.lora, grid_size=2)
    return replace(made, model=parts)


def padded_batch(recipe: Recipe, loaded: LoadedModel) -> dict[str, Any]:
    """Two rows with screens; the first is the shorter one."""
    batch = batched(loaded, rows_of(recipe, loaded, (1, 3)), pack=False)
    assert (batch["input_ids"][0, -9:] == loaded.processor.pad_id).all()
    return batch


def loaded_of(root: Path, kind: str, **settings: Any) -> tuple[Recipe, LoadedModel]:
    recipe = recipe_of(root, kind, **settings)
    return recipe, build(recipe)


def vision_of(module: Any) -> nn.Module:
    """The vision encoder of any kind of model."""
    if hasattr(module, "transformer"):
        return module.transformer.visual  # type: ignore[no-any-return]
    return module.vision if hasattr(module, "language") else module.model.visual  # type: ignore[no-any-return]
