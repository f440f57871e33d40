"""Qwen2-VL and later: saving and loading a checkpoint, and the errors for damaged ones."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.helpers.hf_checkpoints import HALF, write
from tests.helpers.qwen_hf_rows import SIZES, row
from uivlm.models import pretrained
from uivlm.models.qwen_hf import files
from uivlm.models.qwen_hf.model import QwenHF
from uivlm.models.qwen_hf.processor import QwenHFProcessor


@torch.inference_mode()
def test_a_saved_model_is_the_same_model(
    tmp_path: Path, folder: Callable[[str], Path], kind: str, module: QwenHF, reader: QwenHFProcessor
) -> None:
    files.save(tmp_path / "saved", module, folder(kind))
    again = files.load(tmp_path / "saved", torch.float32)
    ids, _, pixels = row(reader, SIZES)
    assert torch.equal(again(ids, pixels).logits, module(ids, pixels).logits)
    wanted, found = (load_file(root / "model.safetensors") for root in (folder(kind), tmp_path / "saved"))
    assert wanted.keys() == found.keys()
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    assert files.load(tmp_path / "saved").lm_head.weight.dtype == torch.bfloat16
    assert files.load_processor(tmp_path / "saved").encode("tap at 1 2") == reader.encode("tap at 1 2")
    told = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert told["architectures"] == [f"{kind}ForConditionalGeneration"]
    with pytest.raises(ValueError, match="already exists"):
        files.save(tmp_path / "saved", module, folder(kind))


def test_weights_have_the_names_of_the_class(module: QwenHF) -> None:
    assert module.state_dict().keys() == module.hf_model.state_dict().keys()
    assert sum(1 for _ in module.parameters()) == sum(1 for _ in module.hf_model.parameters())


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def damage(root: Path, what: str) -> None:
    weights = load_file(root / "model.safetensors")
    name = "visual.patch_embed.proj.weight"
    match what:
        case "torn":
            file = root / "model.safetensors"
            file.write_bytes(file.read_bytes()[:5000])
        case "missing":
            save_file({n: v for n, v in weights.items() if n != name}, root / "model.safetensors")
        case "more":
            save_file(weights | {"extra.weight": torch.zeros(1)}, root / "model.safetensors")
        case "shape":
            save_file(weights | {name: torch.zeros(3)}, root / "model.safetensors")
        case "no weights":
            (root / "model.safetensors").unlink()
        case "no config":
            (root / "config.json").unlink()
        case "config":
            (root / "config.json").write_text("{")
        case "architecture":
            edit(root / "config.json", architectures=["LlamaForCausalLM"])
        case "heads":
            edit(root / "config.json", num_attention_heads="two")
        case "no tokenizer":
            (root / "tokenizer.json").unlink()
        case "tokenizer":
            (root / "tokenizer.json").write_text('{"version": "1.0"}')
        case "ids":
            edit(root / "config.json", image_token_id=7)
        case "vocabulary":
            edit(root / "config.json", vocab_size=100)
        case "ends":
            edit(root / "tokenizer_config.json", eos_token=None)
        case "no pixels":
            (root / "preprocessor_config.json").unlink()
        case "pixels":
            edit(root / "preprocessor_config.json", image_std=[1, 1])
        case "patch":
            edit(root / "preprocessor_config.json", patch_size=14)
        case _:
            raise AssertionError(what)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("torn", "Qwen2_5_VLForConditionalGeneration in .* cannot be loaded"),
        ("missing", "1 missing keys, such as .*patch_embed.proj.weight"),
        ("more", "1 unexpected keys, such as extra.weight"),
        ("shape", "cannot be loaded|mismatched"),
        ("no weights", "cannot be loaded"),
        ("no config", "does not contain a Qwen2-VL or later: it has no config.json"),
        ("config", "config.json is not JSON"),
        ("architecture", "architectures: got LlamaForCausalLM; expected one of Qwen2VLFor"),
        ("heads", "cannot be loaded|does not describe"),
        ("no tokenizer", "it has no tokenizer.json"),
        ("tokenizer", "cannot be read as a tokenizer"),
        ("ids", "image_token_id is 7, not a control token"),
        ("vocabulary", "the model only 100 embeddings"),
        ("ends", "eos_token is None, not a control token"),
        ("no pixels", "it has no preprocessor_config.json"),
        ("pixels", "has no image_mean and image_std"),
        ("patch", "patch_size: got 14; expected 4, as in config.json"),
    ],
)
def test_a_broken_folder_says_so(tmp_path: Path, what: str, says: str) -> None:
    root = write(tmp_path / "base", "Qwen2_5_VL")
    damage(root, what)

    def both() -> None:
        files.load_processor(root)
        files.load(root)

    with pytest.raises(ValueError, match=says) as raised:
        both()
    assert "\n" not in str(raised.value)
    assert re.search(re.escape(str(tmp_path)), str(raised.value))


def test_scale_may_lie_in_the_newer_file(tmp_path: Path) -> None:
    root = write(tmp_path / "base", "Qwen3VL")
    told = json.loads((root / "preprocessor_config.json").read_text())
    (root / "preprocessor_config.json").unlink()
    (root / "processor_config.json").write_text(json.dumps({"image_processor": told}))
    module = files.load(root)
    assert (module.mean, module.std) == HALF


def test_a_hub_id_is_fetched(monkeypatch: pytest.MonkeyPatch, folder: Callable[[str], Path]) -> None:
    asked = []

    def given_by_hub(name: str, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(folder("Qwen3VL"))

    monkeypatch.setattr(pretrained, "snapshot_download", given_by_hub)
    assert files.load("Qwen/Qwen3-VL-2B-Instruct").config.model_type == "qwen3_vl"
    assert files.load_processor("Qwen/Qwen3-VL-2B-Instruct").max_length == 4096
    assert [name for name, _ in asked] == ["Qwen/Qwen3-VL-2B-Instruct"] * 2
    assert {"config.json", "tokenizer.json", "preprocessor_config.json"} <= set(asked[0][1])
