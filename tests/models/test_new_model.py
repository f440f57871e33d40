"""A new model is one file and one `case`: the smallest one trains, saves, loads, merges and decides."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.smallest_model import SmallestLoader, SmallestModel, save_pretrained
from tests.helpers.tiny_models import episode, recipe
from uivlm.actions.action import InvalidAction
from uivlm.episodes.encode import encode
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import LoadedCheckpoint
from uivlm.models import adapters
from uivlm.models.build import build, prompt_format
from uivlm.models.export import merge
from uivlm.models.multimodal import token_losses, trained_tokens
from uivlm.recipe import Recipe

ROOT = Path(__file__).parents[2]


@pytest.fixture
def smallest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """Its recipe. The replaced function stands for its `case` in uivlm/models/build.py."""
    for module in ("build", "adapters"):
        monkeypatch.setattr(f"uivlm.models.{module}.model_loader", SmallestLoader)
    torch.manual_seed(0)
    save_pretrained(SmallestModel(), tmp_path / "base")
    return recipe(tmp_path / "base", tmp_path)


def test_the_docs_show_it() -> None:
    code = (ROOT / "tests" / "helpers" / "smallest_model.py").read_text("utf-8")
    assert f"```python\n{code}```" in (ROOT / "docs" / "models.md").read_text("utf-8")


@pytest.mark.parametrize("full", [False, True])
def test_it_trains_saves_loads_merges_and_decides(smallest: Recipe, tmp_path: Path, full: bool) -> None:
    one = replace(smallest, model=replace(smallest.model, lora=None)) if full else smallest
    loaded = build(one)
    model = adapters.prepare_for_training(loaded, 0)
    example = encode(
        prompt_format(one).sentence(next(prompt_format(one).windows(episode(0, 3)))), loaded.processor
    )
    ids, (positions, labels) = (
        torch.tensor(example.input_ids)[None],
        trained_tokens(torch.tensor(example.labels)[None]),
    )
    pixels = torch.tensor(np.stack(example.pixels))
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
    losses = []
    for _ in range(5):
        loss = token_losses(model(ids, pixels=pixels, trained_positions=positions), labels).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    assert losses[-1] < losses[0]
    (tmp_path / "ckpt").mkdir()
    adapters.save(model, loaded, one.model.base_model, tmp_path / "ckpt")
    assert {file.name for file in (tmp_path / "ckpt").iterdir()} == set(adapters.checkpoint_files(one))
    merge(one, tmp_path / "ckpt", tmp_path / "merged")
    with torch.inference_mode():
        expected = model.eval()(ids, pixels=pixels).logits
        _, again = adapters.load(one, tmp_path / "ckpt")
        assert torch.allclose(again(ids, pixels=pixels).logits, expected, atol=1e-5)
        base = build(replace(one, model=replace(one.model, base_model=str(tmp_path / "merged")))).model
        assert torch.allclose(base(ids, pixels=pixels).logits, expected, atol=1e-5)
    checkpoint = LoadedCheckpoint(again, loaded.processor, prompt_format(one), one, "smallest")
    cached = TorchEngine(checkpoint, constrained=True, max_cached_prefixes=2)
    fresh = TorchEngine(checkpoint, constrained=True, use_cache=False)
    histories = [episode(0, 3).history(t) for t in range(3)]
    for decision, other in zip(
        cached.predict_batch(histories[:2]), map(fresh.predict, histories), strict=False
    ):
        assert not isinstance(decision.action, InvalidAction)
        assert (decision.action, decision.text) == (other.action, other.text)
