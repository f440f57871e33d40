"""Activation checkpointing: the same numbers on and off, and the recipe decides."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.helpers.every_kind import EVERY_KIND, loaded_of, padded_batch, recipe_of, write_every_kind
from tests.helpers.smallest_model import SmallestModel
from uivlm.models.adapters import prepare_for_training
from uivlm.models.multimodal import token_losses
from uivlm.training.trainer import make_trainer, training_arguments


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_every_kind(tmp_path_factory.mktemp("every_kind"))


def step(model: nn.Module, batch: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor], int]:
    """Loss, gradients, and the number of tensors that autograd keeps."""
    kept = 0

    def pack(value: Tensor) -> Tensor:
        nonlocal kept
        kept += 1
        return value

    model.zero_grad()
    torch.manual_seed(0)  # of dropout
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        loss = token_losses(model(**batch), batch["labels"]).sum()
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return loss.detach(), gradients, kept


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_on_and_off_give_the_same_bits(root: Path, kind: str) -> None:
    recipe, loaded = loaded_of(root, kind)
    batch = padded_batch(recipe, loaded)
    model: Any = prepare_for_training(loaded, 0).train()
    for name, value in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(value, std=0.1)
    loss, expected, kept = step(model, batch)
    loaded.model.activation_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
    again, found, kept_again = step(model, batch)
    assert torch.equal(again, loss)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert kept_again < kept / 2


@pytest.mark.parametrize("on", [True, False])
def test_the_recipe_decides(root: Path, tmp_path: Path, on: bool) -> None:
    recipe = recipe_of(root, "qwen_vl", activation_checkpointing=on)
    arguments = training_arguments(recipe, tmp_path, 0)
    assert arguments.activation_checkpointing is on
    assert arguments.activation_checkpointing_kwargs == ({"use_reentrant": False} if on else None)


def test_a_model_that_cannot_recompute_says_so(root: Path, tmp_path: Path) -> None:
    recipe, loaded = loaded_of(root, "llama_vit", activation_checkpointing=True)
    other: Any = replace(loaded, model=SmallestModel())
    rest: Any = (None,) * 5
    with pytest.raises(ValueError, match="SmallestModel does not support it. Set train.activation_checkpoin"):
        make_trainer(recipe, other, *rest, tmp_path)
