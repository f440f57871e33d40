"""The forward pass of training, for every kind of model: what records gradients, and which attention runs."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.helpers.every_kind import EVERY_KIND, loaded_of, padded_batch, vision_of, write_every_kind
from uivlm.models.adapters import prepare_for_training
from uivlm.models.multimodal import token_losses


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_every_kind(tmp_path_factory.mktemp("every_kind"))


def saved_bytes(module: Any, pixels: Any) -> tuple[Any, int]:
    """The features, and the bytes that autograd keeps for their backward pass."""
    kept = 0

    def pack(value: Tensor) -> Tensor:
        nonlocal kept
        kept += value.nbytes
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        return module.get_image_features(pixels), kept


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_frozen_vision_encoder_records_nothing(root: Path, kind: str) -> None:
    recipe, loaded = loaded_of(root, kind)
    pixels = padded_batch(recipe, loaded)["pixels"]
    prepare_for_training(loaded, 0).train()
    module: Any = loaded.model
    module.activation_checkpointing_enable({"use_reentrant": False})
    features, kept = saved_bytes(module, pixels)
    assert not any(screen.requires_grad for screen in features)
    assert kept == 0
    list(vision_of(module).parameters())[-1].requires_grad_(True)
    features, kept = saved_bytes(module, pixels)
    assert all(screen.requires_grad for screen in features)
    assert kept > 0
    with torch.no_grad():
        assert not module.get_image_features(pixels)[0].requires_grad


def gradients(model: Any, batch: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    loss = token_losses(model(**batch), batch["labels"]).sum()
    loss.backward()
    return loss.detach(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_padding_on_the_right_needs_no_mask(root: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call of the language model is causal. Loss and gradients are those of the rows one by one."""
    recipe, loaded = loaded_of(root, kind)
    batch = padded_batch(recipe, loaded)
    model = prepare_for_training(loaded, 0).train()
    for name, value in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(value, std=0.1)
    masks, causal = [], []
    attention = functional.scaled_dot_product_attention

    def spy(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, *rest: Any, **named: Any
    ) -> Tensor:
        masks.append(attn_mask)
        causal.append(named.get("is_causal", False))
        return attention(query, key, value, attn_mask, *rest, **named)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", spy)
    loss, found = gradients(model, batch)
    assert masks
    assert all(mask is None for mask in masks)
    config: Any = loaded.model.config
    assert sum(causal) == getattr(config, "text_config", config).num_hidden_layers
    masks.clear()
    is_word = (batch["input_ids"] != loaded.processor.pad_id).int()
    present = is_word.flip(1).cummax(1).values.flip(1).bool()
    assert not present.all()
    masked_loss, masked = gradients(model, batch | {"attention_mask": present})
    assert any(mask is not None for mask in masks)
    torch.testing.assert_close(loss, masked_loss, rtol=1e-5, atol=1e-5)
    assert found.keys() == masked.keys()
    for name, value in found.items():
        scale = max(float(masked[name].abs().max()), 1e-3)
        torch.testing.assert_close(value, masked[name], rtol=0, atol=1e-4 * scale)
