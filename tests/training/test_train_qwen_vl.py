"""Runs of Qwen-VL: adapters, full fine-tuning, quantized bases, gradient checkpointing."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.helpers.tiny_models import (
    episode,
    prepare,
    qwen_base,
    qwen_recipe,
)
from tests.helpers.training_runs import EPISODES, StoppedError, stop_at, watch
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import load_checkpoint
from uivlm.models.adapters import ADAPTER_WEIGHTS
from uivlm.models.build import build
from uivlm.recipe import LoraArgs, Recipe
from uivlm.training.callbacks import latest_checkpoint
from uivlm.training.checkpoint import checkpoint_files
from uivlm.training.train import train

pytestmark = pytest.mark.slow


def qwen(root: Path, part: dict[str, Any], **train_part: Any) -> Recipe:
    return qwen_recipe(root / "qwen", root / "data", {"epochs": 1.0, **train_part}, **part)


FULL: dict[str, Any] = {"lora": None}


def test_adapters_of_qwenvl(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = watch(monkeypatch)
    one = qwen(root, {})
    out = train(one, tmp_path / "out")
    assert {f.name for f in out.iterdir()} == set(checkpoint_files(one)) == {
        "adapter_model.safetensors", "adapter_config.json", "recipe.json", "card.json", "log.jsonl",
        "curves.html",
    }  # fmt: skip
    before, model = made
    after = {k.replace(".base_layer", ""): v for k, v in model.base_model.model.state_dict().items()}
    assert all(torch.equal(after[name], value) for name, value in before.items()), "the base is frozen"
    assert all(float(v.abs().max()) > 0 for k, v in load_file(out / ADAPTER_WEIGHTS).items() if "lora_B" in k)
    told = json.loads((out / "adapter_config.json").read_text())
    assert told["base_model_name_or_path"] == str(root / "qwen")
    widths = ((128, 384), (128, 128), (128, 32), (128, 32), (32, 128))
    card = json.loads((out / "card.json").read_text())
    adapters = 2 * sum(4 * (a + b) for a, b in widths)
    assert card["trainable_parameters"] == {"adapters": adapters}
    assert card["parameters"] == adapters + sum(value.numel() for value in before.values())


def test_full_fine_tuning_of_qwenvl(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checkpoint is a base: a later run begins with it."""
    made = watch(monkeypatch)
    one = qwen(root, FULL)
    out = train(one, tmp_path / "out")
    assert {f.name for f in out.iterdir()} == set(checkpoint_files(one)) == {
        "model", "recipe.json", "card.json", "log.jsonl", "curves.html",
    }  # fmt: skip
    before, model = made
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {name for name, value in model.named_parameters() if value.requires_grad}
    card = json.loads((out / "card.json").read_text())
    assert card["trainable_parameters"] == {"weights": sum(before[name].numel() for name in changed)}
    later = build(qwen_recipe(out / "model", root / "data")).model.state_dict()
    assert all(torch.equal(value, later[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("how", ["nf4", "int8"])
def test_quantised_qwenvl_trains_alike(root: Path, tmp_path: Path, how: str) -> None:
    """Adapters on rounded weights: a loss near that of the whole weights, and a checkpoint that acts."""
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    runs = [train(qwen(root, {"quantize": q}), tmp_path / str(q)) for q in (None, how)]
    plain, rounded = ([json.loads(x) for x in (run / "log.jsonl").read_text().splitlines()] for run in runs)
    assert [x["loss"] for x in rounded] == pytest.approx([x["loss"] for x in plain], rel=0.1)
    assert [x["loss"] for x in rounded] != pytest.approx([x["loss"] for x in plain], rel=1e-5)
    assert all(
        float(v.abs().max()) > 0 for k, v in load_file(runs[1] / ADAPTER_WEIGHTS).items() if "lora_B" in k
    )
    cards = [json.loads((run / "card.json").read_text()) for run in runs]
    assert cards[0]["parameters"] == cards[1]["parameters"]
    said = TorchEngine(load_checkpoint(runs[1]), max_new_tokens=4).predict(EPISODES[1].history(3))
    assert 0 < said.confidence <= 1


def test_a_resumed_run_of_all_weights_is_the_uninterrupted_one(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = qwen(root, FULL, save_minutes=1e-9)
    whole = train(one, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr("uivlm.training.callbacks.ProgressLogger.on_step_end", stop_at(3), raising=False)
        with pytest.raises(StoppedError):
            train(one, tmp_path / "cut")
    assert latest_checkpoint(tmp_path / "cut.state") is not None
    cut = train(one, tmp_path / "cut", resume=True)
    a, b = (load_file(out / "model" / "model.safetensors") for out in (whole, cut))
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert len((cut / "log.jsonl").read_text().splitlines()) == 5


def test_every_layout_of_qwenvl_gives_the_same_loss_and_gradient(root: Path, tmp_path: Path) -> None:
    logs = []
    for b, a in ((4, 1), (1, 4)):
        out = train(
            qwen(root, {}, per_device_batch_size=b, gradient_accumulation_steps=a), tmp_path / f"{b}x{a}"
        )
        logs.append([json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()])
    for name in ("loss", "grad_norm"):
        values = np.array([[line[name] for line in log] for log in logs])
        assert values.shape == (2, 3)
        assert np.allclose(values, values[0], rtol=1e-3), (name, values)


def test_computing_blocks_again_changes_no_gradient(root: Path, tmp_path: Path) -> None:
    """Blocks that forget what they computed, as the recipe has it, and blocks that keep it."""
    again = qwen(root, {})
    assert again.train.activation_checkpointing
    kept = replace(again, train=replace(again.train, activation_checkpointing=False))
    outs = [train(again, tmp_path / "again"), train(kept, tmp_path / "kept")]
    logs = [[json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()] for out in outs]
    for name in ("loss", "grad_norm"):
        values = np.array([[line[name] for line in log] for log in logs])
        assert np.allclose(values[0], values[1], rtol=1e-5), (name, values)
    for out in outs:
        assert all(
            float(v.abs().max()) > 0 for k, v in load_file(out / ADAPTER_WEIGHTS).items() if "lora_B" in k
        )


def test_adapters_of_a_bfloat16_model_are_float32(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bfloat16 would lose most of an update: 8 bits of a weight, and updates are a thousandth of it."""
    made = watch(monkeypatch)
    out = train(qwen(root, {}, precision="bfloat16"), tmp_path / "out")
    model = made[1]
    assert {v.dtype for v in model.parameters() if not v.requires_grad} == {torch.bfloat16}
    assert {v.dtype for v in model.parameters() if v.requires_grad} == {torch.float32}
    assert {v.dtype for v in load_file(out / ADAPTER_WEIGHTS).values()} == {torch.float32}


def test_qwenvl_learns_an_episode_by_heart(tmp_path: Path) -> None:
    of = episode(6, 4)
    folder, data = qwen_base(tmp_path / "base"), prepare(tmp_path / "data", [of])
    one = qwen_recipe(folder, data, {"epochs": 30.0}, lora=LoraArgs(16, 16, 0.0))
    loaded = load_checkpoint(train(one, tmp_path / "out"))
    predictor = TorchEngine(loaded)
    said = [predictor.predict(of.history(t)) for t in range(4)]
    assert [decision.text for decision in said] == [
        loaded.prompt_format.action_text.format(step.action) for step in of.steps
    ]
    assert [decision.action for decision in said] == [
        loaded.prompt_format.action_text.parse(decision.text) for decision in said
    ]
