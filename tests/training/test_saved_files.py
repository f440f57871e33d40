"""A run that wrote incomplete files says so and keeps its state."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.helpers.training_runs import small
from uivlm.models import adapters
from uivlm.models.build import build
from uivlm.training.train import train

pytestmark = pytest.mark.slow

BROKEN = [("adapter_model", "lora_B.weight"), ("projector", "weight"), ("model", "q_proj.weight")]


@pytest.mark.parametrize(("name", "broken"), BROKEN)
def test_an_empty_tensor_keeps_the_state(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, broken: str
) -> None:
    """A sharded weight that nobody gathered is written as a tensor of no elements."""
    save = adapters.save

    def save_broken(model: torch.nn.Module, loaded: object, base: str, folder: Path) -> None:
        save(model, loaded, base, folder)  # type: ignore[arg-type]
        (file,) = folder.rglob(f"{name}.safetensors")
        tensors = load_file(file)
        first = next(key for key in tensors if key.endswith(broken))
        save_file(tensors | {first: torch.empty(0)}, file)

    monkeypatch.setattr(adapters, "save", save_broken)
    recipe = small(root, save_minutes=1e-9)
    if name == "model":
        recipe = replace(recipe, model=replace(recipe.model, lora=None))
    with pytest.raises(ValueError, match=rf"{broken} has shape \[0\]|holds \d+ weights"):
        train(recipe, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert list((tmp_path / "out.state").glob("checkpoint-*"))


def test_expected_shapes_are_those_of_peft(root: Path, tmp_path: Path) -> None:
    loaded = build(small(root))
    model = adapters.attach_adapters(loaded, 0)
    adapters.save(model, loaded, "base", tmp_path)
    shapes = {
        name: tuple(value.shape) for name, value in load_file(tmp_path / "adapter_model.safetensors").items()
    }
    assert adapters._adapter_shapes(model) == shapes
