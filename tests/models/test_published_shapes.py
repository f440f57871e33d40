"""bench/gpu/models.py: folders of the published shapes, without the hub."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tests.helpers.paths import ROOT
from uivlm.models.build import build
from uivlm.recipe import load, override

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def published() -> ModuleType:
    spec = importlib.util.spec_from_file_location("models", ROOT / "bench" / "gpu" / "models.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("recipe", "name", "num_parameters"),  # as counted on the hub's pages of the published models
    [
        ("qwenvl", "qwen_vl", 9_656_935_168),
        ("qwen2_5vl", "qwen2_5_vl", 8_292_166_656),
        ("qwen3vl", "qwen3_vl", 8_767_123_696),
    ],
)
def test_published_sizes(
    published: ModuleType, tmp_path: Path, recipe: str, name: str, num_parameters: int
) -> None:
    folder = published.write_model(tmp_path / name, name)
    built = build(override(load(recipe), [f"model.base_model={folder}"]), "meta")
    assert sum(value.numel() for value in built.model.parameters()) == num_parameters
    assert {value.dtype for value in built.model.parameters()} == {torch.bfloat16}
    text = 'swipe from 77 50 to 32 51, Input text "é新"'
    ids = built.processor.encode(text)
    assert built.processor.decode(ids) == text
    assert len(ids) < len(text)


@pytest.mark.parametrize(("recipe", "name"), [("qwenvl", "qwen_vl"), ("qwen2_5vl", "qwen2_5_vl")])
def test_two_layers_of_the_published_widths(
    published: ModuleType, tmp_path: Path, recipe: str, name: str
) -> None:
    shapes = []
    for size, config in (("shallow", published.resize(name, published.SHALLOW)), ("whole", None)):
        folder = published.write_model(tmp_path / size, name, config=config)
        model = build(override(load(recipe), [f"model.base_model={folder}"]), "meta").model
        shapes.append({key: value.shape for key, value in model.named_parameters()})
    found, whole = shapes
    assert found.items() < whole.items()
    layers = {part for key in found for part in key.split(".") if part.isdigit()}
    assert {"0", "1"} <= layers


@pytest.mark.parametrize("name", ["qwen_vl", "qwen2_5_vl"])
def test_random_weights_load_as_published_ones(published: ModuleType, tmp_path: Path, name: str) -> None:
    config = published.resize(name, published.SMALL)
    folder = published.write_model(tmp_path / name, name, with_weights=True, config=config)
    recipe = override(load("qwenvl" if name == "qwen_vl" else "qwen2_5vl"), [f"model.base_model={folder}"])
    assert all(bool(value.isfinite().all()) for value in build(recipe).model.parameters())


def test_an_unknown_model(published: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.argv", ["models.py", str(tmp_path / "out"), "gpt"])
    with pytest.raises(SystemExit, match="2"):
        published.main()
    assert not (tmp_path / "out").exists()
