"""What of a model is trained and what of it a checkpoint holds: adapters (LoRA, Q-LoRA), or all of it.

In: a recipe and what `model.build` made of it. Out: the model ready to train; its weights as files; and from these
the model ready to act.
"""

import copy
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from peft import PeftModel
from torch import nn

from uivlm import recipe as recipes
from uivlm.models.bridge_folder import save_base
from uivlm.models.llama_vit import LlamaVit, Reader
from uivlm.models.lora import (
    ADAPTER_CONFIG,
    ADAPTERS,
    PROJECTOR,
    adapt,
    load_adapters,
    load_projector,
    merged,
    save_adapters,
    save_projector,
    trained_names,
)
from uivlm.models.model import Built, build, projector
from uivlm.models.qwen_hf import files as hf_files
from uivlm.models.qwen_hf.model import QwenHF
from uivlm.models.qwen_vl import files as qwen_files
from uivlm.models.qwen_vl.model import QwenVL
from uivlm.models.qwen_vl.tokens import FILE

FULL = "model"  # folder with all weights, itself a base in the format of what it was made from
ALL = (ADAPTERS, ADAPTER_CONFIG, PROJECTOR, FULL)


def files(recipe: recipes.Recipe) -> tuple[str, ...]:
    """Names of what `save` writes."""
    if recipe.model.lora is None:
        return (FULL,)
    return (ADAPTERS, ADAPTER_CONFIG, *([PROJECTOR] if projector(recipe.model) else []))


def begin(built: Built, seed: int) -> nn.Module:
    """The model with exactly those parameters trainable that the recipe says."""
    return adapt(built, seed) if built.lora is not None else _unfreeze(built)


def save(model: nn.Module, built: Built, base: str, folder: Path) -> None:
    """The files of `files`; `base`: what the model was before it was trained."""
    if isinstance(model, PeftModel):
        save_adapters(model, built, base, folder)
    elif isinstance(model, LlamaVit):
        assert isinstance(built.reader, Reader)
        save_base(folder / FULL, model, built.reader.tokenizer, model.projection.weight.dtype)
    elif isinstance(model, QwenHF):
        hf_files.save(folder / FULL, model, hf_files.fetch(base))
    else:
        assert isinstance(model, QwenVL)
        qwen_files.save(folder / FULL, model, qwen_files.fetch(base) / FILE)


def save_extra(model: nn.Module, built: Built, folder: Path) -> None:
    """What a state of a running training needs beside what the Trainer saves of itself."""
    if isinstance(model, PeftModel) and built.projector is not None:
        save_projector(model, built, folder)


def load_extra(model: nn.Module, built: Built, folder: Path) -> None:
    if isinstance(model, PeftModel) and built.projector is not None:
        load_projector(model, built, folder)


def load(recipe: recipes.Recipe, folder: Path) -> tuple[Built, nn.Module]:
    """The model of a checkpoint, in evaluation mode."""
    part, whole = recipe.model, str(folder / FULL)
    if part.lora is None:
        put_together = isinstance(part, recipes.LlamaParts)  # the parts are one folder now
        full = recipes.LlamaVit(whole, None) if put_together else replace(part, base=whole)
        built = build(replace(recipe, model=full))
        return built, built.module
    built = build(recipe)
    model = load_adapters(built, folder)
    if not built.quantised:
        return built, merged(model)
    module = model.get_base_model()
    assert isinstance(module, nn.Module)
    return built, module.requires_grad_(False).eval()


def load_beside(recipe: recipes.Recipe, folders: Sequence[Path]) -> list[tuple[Built, nn.Module]]:
    """The models of several checkpoints over one base, in evaluation mode: the base's weights are there once, each has its own
    adapters (not merged) and projection."""
    base = build(recipe)
    return [_beside(replace(base, module=_sharing(base)), folder) for folder in folders]


def _beside(built: Built, folder: Path) -> tuple[Built, nn.Module]:
    module = load_adapters(built, folder).get_base_model()
    assert isinstance(module, nn.Module)
    return built, module.requires_grad_(False).eval()


def _sharing(built: Built) -> nn.Module:
    """The module once more, with the same tensors in it but for those of the projection."""
    own = built.projector and f"{built.projector}."
    named = (*built.module.named_parameters(), *built.module.named_buffers())
    return copy.deepcopy(
        built.module, {id(value): value for name, value in named if not (own and name.startswith(own))}
    )


def _unfreeze(built: Built) -> nn.Module:
    assert built.full is not None, "full fine-tuning needs to know what it trains"
    built.module.requires_grad_(False)
    for name, value in built.module.named_parameters():
        value.requires_grad_(re.fullmatch(built.full, name) is not None)
    assert trained_names(built.module), f"no parameter matches {built.full}"
    return built.module
