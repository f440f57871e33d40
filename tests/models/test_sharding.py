"""Sharding in a group of one process: what does not need a second one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from tests.helpers.tiny_models import bridge
from uivlm.models.sharding import gather_weights, is_sharded, shard

CPU = torch.device("cpu")


@pytest.fixture
def _group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("_group")
def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    model = bridge(tie_word_embeddings=True)
    names = [f"language.{name}.weight" for name in ("model.embed_tokens", "lm_head")]
    shard(model, CPU, None, False, {})
    assert is_sharded(model)
    assert model.get_parameter(names[0]) is model.get_parameter(names[1])
    gathered = gather_weights(model, CPU, tmp_path / "whole", torch.float32)
    assert gathered[names[0]] is gathered[names[1]]


@pytest.mark.usefixtures("_group")
def test_trained_weights_are_float32_and_computed_in_bfloat16(tmp_path: Path) -> None:
    model = bridge().bfloat16()
    model.requires_grad_(False).language.requires_grad_(True)
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    ids = torch.arange(10, 20)[None]
    logits = model(ids).logits
    shard(model, CPU, torch.bfloat16, False, {})
    for name, value in model.named_parameters():
        assert isinstance(value, DTensor)
        assert value.dtype == (torch.float32 if value.requires_grad else torch.bfloat16), name
    assert model(ids).logits.equal(logits)
    gathered = gather_weights(model, CPU, tmp_path / "whole", torch.bfloat16)
    assert all(gathered[name].equal(value) for name, value in expected.items())
    assert set(gather_weights(model, CPU, tmp_path / "whole")) == {
        n for n in expected if n.startswith("language.")
    }
