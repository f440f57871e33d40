"""An update that bfloat16 weights would round away is not merged into them."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from peft.tuners.lora import LoraLayer
from torch import nn
from typer.testing import CliRunner

from tests.helpers.every_kind import loaded_of, padded_batch, write_every_kind
from tests.helpers.tiny_models import episode
from uivlm.cli.main import app
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import LoadedCheckpoint, load_checkpoint
from uivlm.models import adapters
from uivlm.models.build import prompt_format
from uivlm.models.merging import MAX_MERGE_ERROR, merge_adapters, merge_errors
from uivlm.recipe import Recipe
from uivlm.training import checkpoint

KINDS = ["llama_vit", "qwen_vl", "Qwen2_5_VL"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_every_kind(tmp_path_factory.mktemp("every_kind"))


def lora_layers(model: nn.Module) -> dict[str, Any]:
    return {name: part for name, part in model.named_modules() if isinstance(part, LoraLayer)}


def trained(root: Path, kind: str, precision: str, update: float) -> tuple[Recipe, Any, Any]:
    """The training-time model; each layer's update has `update` times the root mean square of its weight."""
    recipe, loaded = loaded_of(root, kind, precision=precision)
    model = adapters.prepare_for_training(loaded, 0)
    torch.manual_seed(5)
    with torch.no_grad():
        for layer in lora_layers(model).values():
            half = layer.lora_B["default"].weight
            half.normal_()
            weight = layer.get_base_layer().weight.float()
            half *= update * weight.norm() / layer.get_delta_weight("default").norm()
    return recipe, loaded, model.eval()


@pytest.mark.parametrize(
    ("precision", "update", "kept"),
    [("bfloat16", 1e-4, False), ("bfloat16", 5e-3, False), ("bfloat16", 0.3, True), ("float32", 1e-4, True)],
)
def test_the_error_is_that_of_the_merged_weights(
    root: Path, precision: str, update: float, kept: bool
) -> None:
    """Against what PEFT's merge leaves in the weights."""
    _, _, model = trained(root, "qwen_vl", precision, update)
    found = list(merge_errors(model))
    layers = {name.removeprefix("base_model.model."): part for name, part in lora_layers(model).items()}
    before = {name: part.get_base_layer().weight.double().clone() for name, part in layers.items()}
    updates = {name: part.get_delta_weight("default").double() for name, part in layers.items()}
    merged = merge_adapters(model)
    expected = [
        float(
            (merged.get_submodule(name).weight.double() - before[name] - updates[name]).norm()
            / updates[name].norm()
        )
        for name in layers
    ]
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-4)
    assert (max(found) <= MAX_MERGE_ERROR) == kept
    assert update > 1e-4 or kept or min(found) > 0.9, "next to nothing is left"


@torch.inference_mode()
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("update", [1e-4, 5e-3])
def test_evaluation_computes_what_training_did(root: Path, kind: str, update: float, tmp_path: Path) -> None:
    recipe, loaded, model = trained(root, kind, "bfloat16", update)
    checkpoint.save(tmp_path / "ckpt", model, loaded, recipe, None, 0.0, "")
    acting = load_checkpoint(tmp_path / "ckpt")
    dtypes = {value.dtype for name, value in acting.model.named_parameters() if "lora_" in name}
    assert dtypes == {torch.bfloat16}, "no call rounds them again"
    batch = padded_batch(recipe, loaded)
    expected = model(**batch).logits
    assert torch.equal(acting.model(**batch).logits, expected)
    in_training = LoadedCheckpoint(
        model.get_base_model(), loaded.processor, prompt_format(recipe), recipe, "trained"
    )
    one, other = (TorchEngine(each, 8, constrained=True) for each in (acting, in_training))
    for t in range(3):
        assert one.predict(episode(1, 3).history(t)) == other.predict(episode(1, 3).history(t))
    assert not torch.equal(merge_adapters(model)(**batch).logits, expected)


def test_a_large_update_is_merged(root: Path, tmp_path: Path) -> None:
    recipe, loaded, model = trained(root, "qwen_vl", "bfloat16", 0.3)
    adapters.save(model, loaded, "", tmp_path)
    assert not lora_layers(adapters.load(recipe, tmp_path)[1])


@pytest.mark.parametrize("update", [1e-4, 0.3])
def test_merge_warns_of_what_rounding_loses(root: Path, tmp_path: Path, update: float) -> None:
    recipe, loaded, model = trained(root, "qwen_vl", "bfloat16", update)
    checkpoint.save(tmp_path / "ckpt", model, loaded, recipe, None, 0.0, "")
    worst = max(merge_errors(model))
    result = CliRunner().invoke(app, ["merge", str(tmp_path / "ckpt"), "--out", str(tmp_path / "base")])
    assert result.exit_code == 0
    assert (tmp_path / "base" / "config.json").is_file()
    warned = re.search(r"rounding to bfloat16 changed .* by up to (\d+)%: use .*ckpt itself", result.stderr)
    assert (warned is None) == (update == 0.3)
    if warned:
        assert int(warned[1]) == round(100 * worst)
