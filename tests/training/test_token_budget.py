"""Runs by a token budget: their settings, rows and epochs, and forward passes without a sentence."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.hf_checkpoints import write
from tests.helpers.tiny_models import base, episode, prepare, qwen_base, recipe, with_settings
from uivlm.cli.recipes import load_recipe
from uivlm.models import adapters
from uivlm.models.build import build
from uivlm.models.multimodal import token_losses
from uivlm.recipe import DataArgs, ExtraDataset, QwenHFArgs, QwenVLArgs, Recipe, RecipeError, TrainArgs
from uivlm.training.collator import LOSS_KEYS, Collator
from uivlm.training.train import train
from uivlm.training.trainer import SentenceTrainer

pytestmark = pytest.mark.slow

KINDS = ["llama_vit", "qwen_vl", "Qwen2VL", "Qwen2_5_VL", "Qwen3VL"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("budget")
    base(made / "llama_vit")
    qwen_base(made / "qwen_vl")
    for kind in KINDS[2:]:
        write(made / kind, kind)
    prepare(made / "one", [episode(i, n) for i, n in enumerate((1, 6, 2, 3, 1))])
    prepare(made / "two", [episode(10 + i, n) for i, n in enumerate((3, 1, 2, 4))])
    return made


def of_kind(root: Path, kind: str) -> Recipe:
    one = recipe(root / "llama_vit", root / "one")
    match kind:
        case "llama_vit":
            return one
        case "qwen_vl":
            return replace(one, model=QwenVLArgs(str(root / kind), one.model.lora))
        case _:
            return replace(one, model=QwenHFArgs(str(root / kind), one.model.lora))


def test_a_budget_and_a_batch_size_exclude_each_other() -> None:
    assert TrainArgs(max_packed_tokens=8192).per_device_batch_size == 1
    with pytest.raises(RecipeError, match=r"per_device_batch_size is 2, but train\.max_packed_tokens sets"):
        TrainArgs(per_device_batch_size=2, max_packed_tokens=8192)
    with pytest.raises(RecipeError, match=r"train\.max_packed_tokens is 0: it must be at least 1"):
        TrainArgs(max_packed_tokens=0)
    for old in ("train.packing=true", "train.pack=true"):
        with pytest.raises(RecipeError, match=r"is now train\.max_packed_tokens"):
            load_recipe("tiny", [old])


@pytest.mark.parametrize("cached", [False, True])
def test_a_run_by_budget_on_a_mixture(
    root: Path, tmp_path: Path, cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every row within the budget; half of the second source in each epoch; an epoch that is not whole."""
    seen: list[list[int]] = []
    original = SentenceTrainer.compute_loss

    def watched(self: SentenceTrainer, model: Any, inputs: dict[str, Any], *more: Any, **others: Any) -> Any:
        assert len(inputs["input_ids"]) == 1
        seen.append(list(inputs["sentence_lengths"]))
        return original(self, model, inputs, *more, **others)

    monkeypatch.setattr(SentenceTrainer, "compute_loss", watched)
    one = recipe(root / "llama_vit", root / "one", epochs=2.5, cache_vision_features=cached)
    one = with_settings(one, per_device_batch_size=1, max_packed_tokens=150)
    one = replace(one, data=DataArgs(str(root / "one"), extra=(ExtraDataset(str(root / "two"), 0.5),)))
    out = train(one, tmp_path / "out")
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert max(map(sum, seen)) <= 150
    assert max(map(len, seen)) > 1
    assert len(log) == len(seen)
    per_epoch = round(len(log) / 2.5)
    assert sum(map(len, seen[:per_epoch])) == sum(map(len, seen[per_epoch : 2 * per_epoch])) == 6 + 2
    assert log[-1]["epoch"] == pytest.approx(2.5, abs=0.5 / per_epoch)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_forward_pass_without_a_sentence(
    root: Path, kind: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loss is 0, and so is each gradient; each trained weight has one, since others wait for it."""
    monkeypatch.setattr("uivlm.models.bridge.model.needs_dummy_vision_pass", lambda: True)
    built = build(of_kind(root, kind))
    model = adapters.prepare_for_training(built, 0).train()
    batch = Collator(built.processor.pad_id, built.processor.image_token_id, packed)([])
    assert batch["num_episodes"] == 0
    inputs = {name: part for name, part in batch.items() if name not in LOSS_KEYS}
    loss = token_losses(model(**inputs), batch["labels"]).sum()
    loss.backward()
    assert float(loss) == 0
    trained = [value for value in model.parameters() if value.requires_grad]
    assert trained
    for value in trained:
        assert value.grad is not None
        assert torch.equal(value.grad, torch.zeros_like(value))
