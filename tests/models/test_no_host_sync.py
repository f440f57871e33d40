"""Training forwards that read no value: on a GPU each reading waits for all the work queued there.

Tensors on "meta" have shapes and no values, so any reading raises: `.item()`, `.tolist()`, `bool()`, a
boolean index, a copy to the CPU.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.helpers.every_kind import EVERY_KIND, recipe_of, write_every_kind
from tests.helpers.packed_rows import batched, rows_of
from uivlm.models import packed_attention
from uivlm.models.adapters import prepare_for_training
from uivlm.models.build import build
from uivlm.models.multimodal import token_losses
from uivlm.training.metrics import Meter, StepCounts


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_every_kind(tmp_path_factory.mktemp("every_kind"))


@pytest.fixture(autouse=True)
def one_call_for_all_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU in bfloat16."""

    def kernel(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        return query + key + value

    monkeypatch.setattr(packed_attention, "supports_varlen", lambda query: True)
    monkeypatch.setattr(packed_attention, "varlen_kernel", lambda: kernel)


def to_meta(value: Any) -> Any:
    """As a trainer moves a batch to a GPU: tensors only."""
    if isinstance(value, list):
        return [to_meta(part) for part in value]
    return value.to("meta") if isinstance(value, Tensor) else value


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("kind", [*EVERY_KIND, "non_blank"])
def test_a_training_step_reads_no_value(root: Path, kind: str, pack: bool) -> None:
    recipe = recipe_of(root, "llama_vit" if kind == "non_blank" else kind)
    loaded = build(recipe)
    if kind == "non_blank":
        loaded.model.config.visual_tokens = loaded.processor.config.visual_tokens = "non_blank"
    rows = rows_of(recipe, loaded, (1, 3))
    batch = {name: to_meta(value) for name, value in batched(loaded, rows, pack).items()}
    model: Any = prepare_for_training(loaded, 0).train().to("meta")
    losses = token_losses(model(**batch), batch.pop("labels"))
    (losses.sum() / 3).backward()
    assert losses.shape == (sum(len(row.action_types) for row in rows),)
    assert any(value.grad is not None for value in model.parameters())


def test_the_meter_reads_once_a_step() -> None:
    meter = Meter(lambda sums: torch.zeros_like(sums, device="cpu"), 1.0)
    for _ in range(3):
        losses = torch.ones(5, device="meta")
        meter.add(losses, torch.zeros(5, dtype=torch.long, device="meta"), StepCounts(9, 2, 1, 1e3))
    assert meter.flush()["loss_macro"] == 0
