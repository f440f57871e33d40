"""`train.compile_blocks`: the same numbers and names as without, in few graphs.

The backends trace as the default one does, and generate no code: "aot_eager" forward and backward, "eager",
which takes a third of the time, the forward pass.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from tests.helpers.every_kind import loaded_of, write_every_kind
from tests.helpers.model_examples import shaken_by
from tests.helpers.packed_rows import batched, rows_of
from tests.helpers.smallest_model import SmallestModel
from uivlm.models import packed_attention
from uivlm.models.adapters import prepare_for_training
from uivlm.models.compiled_blocks import compile_blocks
from uivlm.models.multimodal import token_losses

ROWS = ((1, 3), (2, 2, 1), (5, 2))  # steps of the sentences of a batch: three lengths


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_every_kind(tmp_path_factory.mktemp("compiled"))


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    counters.clear()


def losses_and_gradients(model: nn.Module, batch: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    losses = token_losses(model(**inputs), batch["labels"])
    losses.sum().backward()
    gradients = {name: v.grad.clone() for name, v in model.named_parameters() if v.grad is not None}
    return losses.detach(), gradients


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "checkpointing", "backend"), [("llama_vit", False, "aot_eager"), ("Qwen2_5_VL", True, "eager")]
)
def test_compiled_blocks_train_as_before(root: Path, kind: str, checkpointing: bool, backend: str) -> None:
    """Through LoRA's wrappers. One graph of each block serves all lengths."""
    recipe, loaded = loaded_of(root, kind)
    model = shaken_by(prepare_for_training(loaded, 0)).train()
    if checkpointing:
        loaded.model.activation_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
    batches = [batched(loaded, rows_of(recipe, loaded, lengths), pack=False) for lengths in ROWS]
    assert len({batch["input_ids"].shape for batch in batches}) == len(ROWS)
    expected = [losses_and_gradients(model, batch) for batch in batches]
    names = list(model.state_dict())
    compile_blocks(loaded.model, backend)
    for number, (batch, (losses, gradients)) in enumerate(zip(batches, expected, strict=True)):
        found, found_gradients = losses_and_gradients(model, batch)
        torch.testing.assert_close(found, losses, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(found_gradients, gradients, rtol=1e-5, atol=1e-6)
        if number == 0:
            after_first = counters["stats"]["unique_graphs"]
    assert 0 < after_first == counters["stats"]["unique_graphs"] <= 2
    assert not counters["graph_break"]
    assert list(model.state_dict()) == names


def test_packed_attention_is_one_graph_for_all_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: the kernel's own shapes, without values. A break would raise."""
    monkeypatch.setattr(packed_attention, "supports_varlen", lambda query: True)
    module: Any = nn.Module()
    module.is_causal, module.num_key_value_groups = True, 2

    def attention(query: Tensor, key: Tensor, bounds: Tensor, longest: int) -> Tensor:
        return packed_attention.packed_attention(module, query, key, key, None, bounds, longest)[0]

    compiled = torch.compile(attention, backend="eager", fullgraph=True, dynamic=True)
    for num_tokens, num_sentences, longest in ((32, 5, 12), (48, 8, 20), (64, 6, 40)):
        query = torch.empty(1, 4, num_tokens, 16, dtype=torch.bfloat16, device="meta")
        bounds = torch.empty(num_sentences + 1, dtype=torch.int32, device="meta")
        assert compiled(query, query[:, :2], bounds, longest).shape == (1, num_tokens, 4, 16)
    assert counters["stats"]["unique_graphs"] == 1


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"SmallestModel has no decoder blocks .* train.compile_blocks=false"
    ):
        compile_blocks(SmallestModel())
