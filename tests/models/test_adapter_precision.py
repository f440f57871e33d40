"""Adapters compute in the precision of the base; their weights, gradients and moments are float32."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from tests.helpers.every_kind import EVERY_KIND, loaded_of, padded_batch, write_every_kind
from uivlm.models.adapters import ADAPTER_WEIGHTS, prepare_for_training, save_adapters
from uivlm.models.multimodal import token_losses
from uivlm.models.qwen_vl.model import QwenVL
from uivlm.recipe import LoraArgs

ONE_OF_EACH = ["llama_vit", "qwen_vl", "Qwen2_5_VL"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_every_kind(tmp_path_factory.mktemp("every_kind"))


class MatmulCounter(TorchDispatchMode):
    """FLOPs of matrix products by the dtype of their first input."""

    def __init__(self) -> None:
        super().__init__()
        self.flops: dict[torch.dtype, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm):
            first = next(value for value in args[::-1] if isinstance(value, Tensor))
            count = flop_registry[func.overloadpacket](*args, **(kwargs or {}), out_val=result)
            self.flops[first.dtype] = self.flops.get(first.dtype, 0) + count
        return result


def prepared(root: Path, kind: str, precision: str, dropout: float = 0.05) -> tuple[Any, Any, dict[str, Any]]:
    recipe, loaded = loaded_of(root, kind, precision=precision)
    loaded = replace(loaded, lora=LoraArgs(64, 16, dropout))
    model = prepare_for_training(loaded, 0).train()
    torch.manual_seed(1)
    for name, value in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(value, std=0.02)
    return model, loaded, padded_batch(recipe, loaded)


def blocks_of(module: Any) -> Any:
    if isinstance(module, QwenVL):
        return module.transformer.h
    return module.language.model.layers if hasattr(module, "language") else module.model.language_model.layers


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_no_product_of_a_bfloat16_block_is_float32(root: Path, kind: str) -> None:
    """Counted in the forward and the backward pass of one block with r = 64 and dropout."""
    model, loaded, batch = prepared(root, kind, "bfloat16")
    block = blocks_of(loaded.model)[0]
    calls: list[tuple[Any, Any]] = []
    hook = block.register_forward_pre_hook(lambda _, *call: calls.append(call), with_kwargs=True)
    model(**batch)
    hook.remove()
    (args, named), *_ = calls
    hidden = args[0].detach().requires_grad_(True)
    with MatmulCounter() as counter, FlopCounterMode(display=False) as total:
        out = block(hidden, *args[1:], **named)
        (out[0] if isinstance(out, tuple) else out).float().sum().backward()
    assert counter.flops.keys() == {torch.bfloat16}
    assert 0 < counter.flops[torch.bfloat16] <= total.get_total_flops()
    grads = [value.grad for value in block.parameters() if value.requires_grad]
    assert {grad.dtype for grad in grads if grad is not None} == {torch.float32}
    assert len(grads) == sum(grad is not None for grad in grads)


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_gradients_are_those_of_float32_within_rounding(root: Path, kind: str) -> None:
    """The same base and adapters in float32 give the same gradients, but for bfloat16's 8 bits."""

    def gradients(model: Any, batch: dict[str, Any]) -> Tensor:
        token_losses(model(**batch), batch["labels"]).sum().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad])

    model, _, batch = prepared(root, kind, "bfloat16", dropout=0.0)
    exact, _, _ = prepared(root, kind, "float32", dropout=0.0)
    exact.load_state_dict({name: value.float() for name, value in model.state_dict().items()})
    found, expected = gradients(model, batch), gradients(exact, batch)
    assert found.dtype == torch.float32
    assert torch.cosine_similarity(found, expected, dim=0) > 0.99
    assert (found - expected).norm() < 0.1 * expected.norm()


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_bfloat16_training_converges_with_float32_masters(root: Path, kind: str, tmp_path: Path) -> None:
    model, loaded, batch = prepared(root, kind, "bfloat16", dropout=0.0)
    trained = [value for value in model.parameters() if value.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=3e-3)
    losses = []
    for _ in range(12):
        loss = token_losses(model(**batch), batch["labels"]).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    assert losses[-1] < 0.7 * losses[0]
    assert {value.dtype for value in trained} == {torch.float32}
    moments = {state[name].dtype for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")}
    assert moments == {torch.float32}
    save_adapters(model, loaded, "base", tmp_path)
    assert {value.dtype for value in load_file(tmp_path / ADAPTER_WEIGHTS).values()} == {torch.float32}


def test_an_update_too_small_for_bfloat16_is_kept(root: Path) -> None:
    """Steps of 1e-5 on a weight of 1 would round away in bfloat16."""
    model, _, _ = prepared(root, "llama_vit", "bfloat16")
    weight = next(value for name, value in model.named_parameters() if "lora_A" in name)
    with torch.no_grad():
        weight.fill_(1.0)
        for _ in range(10):
            weight -= 1e-5
    assert torch.allclose(weight, torch.tensor(1 - 1e-4))


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_user_gets_no_warning(root: Path, kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        prepare_for_training(loaded_of(root, kind)[1], 0)
