"""Attention within sequences of one row, against one call for each sequence; with a fake CUDA kernel too."""

import inspect
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.helpers.every_kind import loaded_of, vision_of, write_every_kind
from tests.helpers.model_examples import random_pixels
from tests.helpers.packed_rows import batched, rows_of
from uivlm.models import packed_attention as packed
from uivlm.models.multimodal import token_losses

KINDS = ["llama_vit", "qwen_vl", "Qwen2VL", "Qwen2_5_VL", "Qwen3VL"]
QWENS = KINDS[2:]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_every_kind(tmp_path_factory.mktemp("every_kind"))


class FakeKernel:
    """`varlen_attn` of torch 2.13 as a loop of softmaxes. Counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cu_seq_q: Tensor,
        cu_seq_k: Tensor,
        max_q: int,
        max_k: int,
        *,
        scale: float | None = None,
        window_size: tuple[int, int] = (-1, -1),
    ) -> Tensor:
        self.calls += 1
        assert cu_seq_q.dtype == torch.int32
        assert query.shape == key.shape == value.shape  # [T, H, d]
        bounds = [int(value.item()) for value in cu_seq_q.unbind()]
        assert max_q == max_k == max(b - a for a, b in zip(bounds, bounds[1:], strict=False))
        outputs = []
        for first, end in zip(bounds, bounds[1:], strict=False):
            q, k, v = (each[first:end].transpose(0, 1) for each in (query, key, value))
            scores = q @ k.transpose(1, 2) * (scale or 1 / math.sqrt(q.shape[-1]))
            if window_size == (-1, 0):
                later = torch.ones(scores.shape[1:]).triu(1).bool()
                scores = scores.masked_fill(later, -math.inf)
            outputs.append((scores.softmax(-1) @ v).transpose(0, 1))
        return torch.cat(outputs)


def use(monkeypatch: pytest.MonkeyPatch, kernel: FakeKernel) -> FakeKernel:
    monkeypatch.setattr(packed, "supports_varlen", lambda query: True)
    monkeypatch.setattr(packed, "varlen_kernel", lambda: kernel)
    return kernel


def count_sdpa(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the queries of each call."""
    shapes: list[tuple[int, ...]] = []
    attention = functional.scaled_dot_product_attention

    def spy(query: Tensor, *rest: Any, **named: Any) -> Tensor:
        shapes.append(tuple(query.shape))
        return attention(query, *rest, **named)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", spy)
    return shapes


def screens() -> list[Tensor]:
    """Two sizes, with windows of several sizes at their edges."""
    generator = torch.Generator().manual_seed(0)
    return [random_pixels(3, *size, generator=generator) for size in ((48, 40), (48, 40), (24, 56))]


@pytest.mark.parametrize("kind", QWENS)
@torch.no_grad()
def test_vision_features_are_those_of_one_call_a_sequence(
    root: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = loaded_of(root, kind)[1].model
    vision: Any = vision_of(module)
    found = module.get_image_features(screens())
    kernel = use(monkeypatch, FakeKernel())
    by_kernel = module.get_image_features(screens())
    assert kernel.calls == len(vision.blocks)
    vision.config._attn_implementation = "sdpa"
    expected = module.get_image_features(screens())
    for a, b, c in zip(found, by_kernel, expected, strict=True):
        torch.testing.assert_close(a, c, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(b, c, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_windows_of_one_length_share_a_call(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 whole windows: one call for them, one for the screen."""
    module: Any = loaded_of(root, "Qwen2_5_VL")[1].model
    vision: Any = vision_of(module)
    assert (vision.window_size, list(vision.fullatt_block_indexes), len(vision.blocks)) == (16, [1], 2)
    shapes = count_sdpa(monkeypatch)
    module.get_image_features(random_pixels(1, 3, 64, 64))
    assert [shape[:1] + shape[2:3] for shape in shapes] == [(16, 16), (1, 256)]


@pytest.mark.parametrize("kind", KINDS)
def test_packed_rows_by_the_kernel(root: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call a layer gives the losses and gradients of one call a sentence."""
    recipe, loaded = loaded_of(root, kind)
    batch = batched(loaded, rows_of(recipe, loaded, (1, 3)), pack=True)
    module: Any = loaded.model.requires_grad_(True)
    results = []
    made = FakeKernel()
    for _ in range(2):
        module.zero_grad()
        with torch.no_grad():
            batch["features"] = module.get_image_features(batch["pixels"])
        made.calls = 0
        losses = token_losses(module(**batch), batch["labels"])
        losses.sum().backward()
        results.append((losses.detach(), module.get_input_embeddings().weight.grad.clone()))
        last = made.calls
        use(monkeypatch, made)
    config = getattr(module.config, "text_config", module.config)
    assert last == config.num_hidden_layers
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["qwen_vl", "Qwen2_5_VL"])
@torch.no_grad()
def test_more_layers_read_no_more_of_the_device(
    root: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU each `tolist` and `item` would wait for it. Their number does not grow with the layers."""
    recipe, loaded = loaded_of(root, kind)
    batch = batched(loaded, rows_of(recipe, loaded, (1, 3)), pack=True)
    module: Any = loaded.model
    monkeypatch.setattr(packed, "supports_varlen", lambda query: True)
    monkeypatch.setattr(packed, "varlen_kernel", lambda: no_kernel)
    reads = 0

    def counting(name: str) -> Any:
        original = getattr(Tensor, name)

        def wrapper(self: Tensor, *rest: Any) -> Any:
            nonlocal reads
            reads += 1
            return original(self, *rest)

        return wrapper

    for name in ("tolist", "item", "__int__", "__bool__"):
        monkeypatch.setattr(Tensor, name, counting(name))
    counts = []
    blocks = [module.transformer.h] if kind == "qwen_vl" else [module.model.visual.blocks]
    if kind != "qwen_vl":
        blocks.append(module.model.language_model.layers)
        module.model.language_model.config.num_hidden_layers *= 3
        module.model.language_model.config.layer_types *= 3
    for _ in range(2):
        reads = 0
        module(**batch)
        counts.append(reads)
        for layers in blocks:
            layers.extend(list(layers) * 2)
    assert counts[0] == counts[1]


def no_kernel(query: Tensor, *_: Any, scale: float | None = None, window_size: Any = None) -> Tensor:
    return query.clone()


def test_the_installed_kernel_has_the_expected_arguments() -> None:
    arguments = inspect.signature(packed.varlen_kernel()).parameters
    assert {"scale", "window_size"} <= arguments.keys()


def test_cpus_have_no_kernel() -> None:
    assert not packed.supports_varlen(torch.zeros(1, 2, 3, 8, dtype=torch.bfloat16))
