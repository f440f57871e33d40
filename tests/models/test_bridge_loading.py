"""A bridge's base: saving and loading its folder, and the errors for damaged ones."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.helpers.model_examples import example_of
from tests.helpers.tiny_models import base, bridge, tokenizer
from uivlm.models.bridge.files import load_base, save_base


@torch.inference_mode()
@pytest.mark.parametrize("tied", [False, True])
def test_a_saved_base_is_the_same_base(tmp_path: Path, tied: bool) -> None:
    model = bridge(tie_word_embeddings=tied)
    ids, _, pixels = example_of(model)
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "README.md").write_text("kept")
    save_base(tmp_path / "base", model, tokenizer(), torch.float32)
    loaded, read = load_base(tmp_path / "base")
    assert {f.name for f in (tmp_path / "base").iterdir()} == {
        "README.md", "config.json", "model.safetensors", "tokenizer.json",
    }  # fmt: skip
    assert [f.name for f in tmp_path.iterdir()] == ["base"]
    assert torch.equal(loaded(ids, pixels).logits, model(ids, pixels).logits)
    assert read.to_str() == tokenizer().to_str()


def test_a_base_of_half_precision_is_read_as_float32_or_bfloat16(tmp_path: Path) -> None:
    model = bridge()
    save_base(tmp_path / "base", model, tokenizer())
    kept = load_file(tmp_path / "base" / "model.safetensors")
    assert {value.dtype for value in kept.values()} == {torch.float16}
    for dtype in (torch.float32, torch.bfloat16):
        loaded, _ = load_base(tmp_path / "base", dtype)
        assert {value.dtype for value in loaded.parameters()} == {dtype}
    ids, _, pixels = example_of(model)
    with torch.inference_mode():
        assert loaded(ids, pixels).logits.isfinite().all()


def broken(folder: Path, what: str) -> None:
    weights = folder / "model.safetensors"
    kept = load_file(weights)
    name = "projection.bias"
    match what:
        case "missing":
            del kept[name]
        case "unexpected":
            kept["extra.weight"] = torch.zeros(1)
        case "shape":
            kept[name] = torch.zeros(3)
        case "torn":
            weights.write_bytes(weights.read_bytes()[:1000])
            return
        case "tokenizer":
            (folder / "tokenizer.json").write_text("{}")
            return
        case "config":
            (folder / "config.json").write_text('{"visual_tokens": "every"}')
            return
        case "ids":
            tree = json.loads((folder / "config.json").read_text())
            (folder / "config.json").write_text(json.dumps(tree | {"image_token_id": 9999}))
            return
        case file:
            (folder / file).unlink()
            return
    save_file(kept, weights)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("missing", "lacks 1 of .* projection.bias"),
        ("unexpected", "1 weights that the model does not have, such as extra.weight"),
        ("shape", r"projection.bias has shape \[3\] where the model has \[32\]"),
        ("torn", "damaged or incomplete"),
        ("tokenizer", "cannot be read as a tokenizer"),
        ("config", "visual_tokens: got 'every'"),
        ("ids", "image_token_id: got 9999"),
        ("tokenizer.json", "not a bridge base: it has no tokenizer.json"),
        ("model.safetensors", "not a bridge base: it has no model.safetensors"),
    ],
)
def test_a_broken_base_says_so(tmp_path: Path, what: str, says: str) -> None:
    broken(base(tmp_path / "base"), what)
    with pytest.raises(ValueError, match=says):
        load_base(tmp_path / "base")


def test_no_base(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="model.base_model: got .*nothing"):
        load_base(tmp_path / "nothing")
