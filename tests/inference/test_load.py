"""A saved checkpoint is the same model; a folder that is not a checkpoint is refused in one sentence."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.helpers.engines import (
    Saved,
    next_logits,
)
from tests.helpers.foreign_checkpoints import sign
from tests.helpers.tiny_models import (
    episode,
    qwen_base,
    qwen_recipe,
)
from uivlm.episodes.encode import encode
from uivlm.episodes.sentence import PromptFormat
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import LoadedCheckpoint, load_checkpoint
from uivlm.models.build import build
from uivlm.training import checkpoint


@torch.inference_mode()
def test_a_loaded_checkpoint_gives_the_logits_of_the_saved_model(
    saved: Saved, loaded: LoadedCheckpoint
) -> None:
    """Merged and cached against adapters beside the weights, in one forward from pixels."""
    engine, untuned = TorchEngine(loaded), build(saved.recipe).model
    for t in (0, 3, 6):
        history = episode(1, 9).history(t)
        example = encode(loaded.prompt_format.prompt(history), loaded.processor)
        ids, pixels = torch.tensor(example.input_ids)[None], torch.tensor(example.pixels)
        logits = next_logits(engine, history).cpu()
        assert torch.allclose(logits, saved.model(ids, pixels).logits[0, -1], atol=1e-4)
        assert not torch.allclose(logits, untuned(ids, pixels).logits[0, -1], atol=1e-2)


def test_what_is_loaded(saved: Saved, loaded: LoadedCheckpoint) -> None:
    assert loaded.recipe == saved.recipe
    assert loaded.prompt_format == PromptFormat(100, 4, 3)
    assert loaded.name == "ckpt"
    assert not loaded.model.training
    assert not any(value.requires_grad for value in loaded.model.parameters())


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Checkpoints: adapters, and all weights."""
    root = tmp_path_factory.mktemp("qwen")
    folder = qwen_base(root / "base")
    made = {"lora": qwen_recipe(folder, root), "full": qwen_recipe(folder, root, lora=None)}
    return {name: checkpoint.save_base_checkpoint(one, root / name) for name, one in made.items()}


@pytest.mark.parametrize(
    ("kind", "change", "says"),
    [
        (
            "lora",
            "adapter_model.safetensors missing",
            "is not a checkpoint: it has no adapter_model.safetensors",
        ),
        (
            "lora",
            "projector.safetensors added",
            "holds projector.safetensors, which does not belong to a qwen_vl checkpoint",
        ),
        ("lora", "model added", "holds model, which does not belong to a qwen_vl checkpoint"),
        ("full", "model missing", "is not a checkpoint: it has no model"),
        (
            "full",
            "adapter_model.safetensors added",
            "holds adapter_model.safetensors, which does not belong to a qwen_vl checkpoint",
        ),
        ("full", "model/qwen.tiktoken missing", "has no qwen.tiktoken"),
        ("full", "model/model.safetensors missing", "lacks model/model.safetensors, which card.json lists"),
    ],
)
def test_files_of_another_checkpoint_are_refused(
    qwen: dict[str, Path], tmp_path: Path, kind: str, change: str, says: str
) -> None:
    copy = shutil.copytree(qwen[kind], tmp_path / "copy")
    load_checkpoint(copy)  # whole: the change alone is refused
    name, _, how = change.partition(" ")
    if how == "added":
        (copy / name).write_bytes(b"")
    elif (copy / name).is_dir():
        shutil.rmtree(copy / name)
    else:
        (copy / name).unlink()
    with pytest.raises(ValueError, match=says) as caught:
        load_checkpoint(copy)
    assert "\n" not in str(caught.value)


def damage(folder: Path, what: str) -> None:
    file, _, how = what.partition(" ")
    path = folder / file
    match how:
        case "missing":
            path.unlink()
        case "cut":
            path.write_bytes(path.read_bytes()[:-100])
        case "empty":
            path.write_bytes(b"")
        case "foreign":
            save_file({"other": torch.zeros(3)}, path)
        case "shape":
            kept = load_file(path)
            save_file(kept | {sorted(kept)[0]: torch.zeros(3)}, path)
        case "field":
            path.write_text(json.dumps(json.loads(path.read_text()) | {"colour": 1}))
        case "rank":
            path.write_text(json.dumps(json.loads(path.read_text()) | {"r": 5}))
        case _:
            raise AssertionError(what)
    if file.endswith(".safetensors") and how != "missing":
        sign(folder)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        *((f"{name} missing", f"is not a checkpoint: it has no {name}") for name in (
            "recipe.json", "adapter_model.safetensors", "adapter_config.json", "projector.safetensors",
        )),
        ("adapter_model.safetensors cut", "adapter_model.safetensors is damaged or incomplete"),
        ("projector.safetensors cut", "projector.safetensors is damaged or incomplete"),
        ("adapter_model.safetensors empty", "adapter_model.safetensors is damaged or incomplete"),
        ("adapter_model.safetensors foreign", r"lacks 28 of 28 weights"),
        ("projector.safetensors foreign", r"lacks 2 of 2 weights"),
        ("adapter_model.safetensors shape", r"has shape \[3\]; expected rank 4"),
        ("recipe.json empty", "recipe.json is not a recipe of this version"),
        ("recipe.json field", "not a recipe of this version .*colour"),
        ("adapter_config.json empty", "adapter_config.json is not JSON"),
        ("adapter_config.json field", "adapter_config.json: colour: got 1; LoRA adapters have no such field"),
        ("adapter_config.json rank", "adapter_config.json: r: got 5; expected 4, as in recipe.json"),
    ],
)  # fmt: skip
def test_a_bad_checkpoint_says_so(saved: Saved, tmp_path: Path, what: str, says: str) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in saved.folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    load_checkpoint(copy)  # whole: the damage alone is refused
    damage(copy, what)
    with pytest.raises(ValueError, match=says) as caught:
        load_checkpoint(copy)
    assert "\n" not in str(caught.value)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no checkpoint folder .*nothing"):
        load_checkpoint(tmp_path / "nothing")


def test_another_grammar_is_refused(saved: Saved) -> None:
    with pytest.raises(
        ValueError, match=r"has PromptFormat\(num_bins=100, .*expected PromptFormat\(num_bins=64"
    ):
        load_checkpoint(saved.folder, PromptFormat(64, 4, 3))
    assert load_checkpoint(saved.folder, PromptFormat(100, 4, 3)).prompt_format == PromptFormat(100, 4, 3)
