"""Qwen-VL's files: saving and loading a checkpoint, and the errors for damaged ones."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.helpers.qwen_vl_models import QWENVL, bytewise, prompt, small_config, small_qwen_vl
from uivlm.models import pretrained
from uivlm.models.qwen_vl import files
from uivlm.models.qwen_vl.model import QwenVL


@torch.inference_mode()
@pytest.mark.parametrize("shards", ["5GB", "400KB"])
def test_a_saved_model_is_the_same_model(tmp_path: Path, shards: str) -> None:
    model = small_qwen_vl(long_context="original")
    ids, _, pixels = prompt(model.config)
    (tmp_path / "qwen.tiktoken").write_bytes(
        b"\n".join(base64.b64encode(bytes([i])) + b" %d" % i for i in range(256))
    )
    files.save(tmp_path / "saved", model, tmp_path / "qwen.tiktoken", shards)
    many = len(list((tmp_path / "saved").glob("*.safetensors"))) > 1
    assert many is (shards == "400KB")
    again = files.load(tmp_path / "saved", torch.float32)
    assert torch.equal(again(ids, pixels).logits, model(ids, pixels).logits)
    assert again.config.long_context == "original"
    assert files.load(tmp_path / "saved").dtype == torch.bfloat16
    assert len(files.load_tokenizer(tmp_path / "saved")) == len(bytewise())
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["architectures"] == [
        "QWenLMHeadModel"
    ]
    with pytest.raises(ValueError, match="already exists"):
        files.save(tmp_path / "saved", model)


def sharded(root: Path) -> dict[str, dict[str, Tensor]]:
    """The golden weights as the hub has Qwen-VL: `.bin` shards and an index."""
    weights = load_file(QWENVL / "model.safetensors")
    names, shards = sorted(weights), {}
    for i in range(3):
        shards[f"pytorch_model-0000{i + 1}-of-00003.bin"] = {name: weights[name] for name in names[i::3]}
    for file, part in shards.items():
        torch.save(part, root / file)
    index = {"metadata": {}, "weight_map": {name: file for file, part in shards.items() for name in part}}
    (root / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    (root / "config.json").write_bytes((QWENVL / "config.json").read_bytes())
    return shards


def test_sharded_bin_files(tmp_path: Path, golden_qwen_vl: QwenVL) -> None:
    sharded(tmp_path)
    found, wanted = files.load(tmp_path, torch.float32).state_dict(), golden_qwen_vl.state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("this ran",))


def damage(root: Path, what: str) -> None:
    shards = sharded(root)
    file, part = next(iter(shards.items()))
    name = next(iter(part))
    config = json.loads((root / "config.json").read_text())
    match what:
        case "torn":
            (root / file).write_bytes((root / file).read_bytes()[:5000])
        case "empty":
            (root / file).write_bytes(b"")
        case "code":
            torch.save(part | {name: Harmful()}, root / file)
        case "no dict":
            torch.save([1], root / file)
        case "shard":
            (root / file).unlink()
        case "missing":
            torch.save({k: v for k, v in part.items() if k != name}, root / file)
        case "more":
            torch.save(part | {"extra.weight": torch.zeros(1)}, root / file)
        case "shape":
            torch.save(part | {name: torch.zeros(3)}, root / file)
        case "twice":
            torch.save(shards[sorted(shards)[1]] | part, root / file)
        case "index":
            (root / "pytorch_model.bin.index.json").write_text("[]")
        case "weights":
            (root / "pytorch_model.bin.index.json").unlink()
        case "safetensors":
            save_file(part, root / "model.safetensors")
            (root / "model.safetensors").write_bytes((root / "model.safetensors").read_bytes()[:-9])
        case "no config":
            (root / "config.json").unlink()
        case "config":
            (root / "config.json").write_text("{")
        case "architecture":
            (root / "config.json").write_text(json.dumps(config | {"architectures": ["LlamaForCausalLM"]}))
        case "text only":
            (root / "config.json").write_text(json.dumps(config | {"visual": None}))
        case "gptq":
            (root / "config.json").write_text(json.dumps(config | {"quantization_config": {"bits": 4}}))
        case "dropout":
            (root / "config.json").write_text(json.dumps(config | {"attn_dropout_prob": 0.1}))
        case "visual":
            del config["visual"]["heads"]
            (root / "config.json").write_text(json.dumps(config))
        case _:
            raise AssertionError(what)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("torn", "00001-of-00003.bin is damaged"),
        ("empty", "00001-of-00003.bin is damaged"),
        ("code", "holds more than weights"),
        ("no dict", "holds more than weights"),
        ("shard", "names pytorch_model-00001-of-00003.bin, which is not there"),
        ("missing", "lacks 1 of [0-9]+ weights, such as "),
        ("more", "1 weights that the model does not have, such as extra.weight"),
        ("shape", r" has shape \[3\] where the model has \["),
        ("twice", "which another shard holds as well"),
        ("index", "index.json is damaged"),
        ("weights", "has no weights: expected model.safetensors or pytorch_model.bin"),
        ("safetensors", "model.safetensors is damaged"),
        ("no config", "is not a Qwen-VL: it has no config.json"),
        ("config", "config.json does not describe a supported Qwen-VL"),
        ("architecture", "architectures: got LlamaForCausalLM; expected QWenLMHeadModel"),
        ("text only", "with a visual part"),
        ("gptq", "use the bfloat16 weights"),
        ("dropout", "attn_dropout_prob: got 0.1; expected 0.0"),
        ("visual", "its visual part has no heads"),
    ],
)
def test_a_broken_folder_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, says: str
) -> None:
    damage(tmp_path, what)
    with pytest.raises(ValueError, match=says) as raised:
        files.load(tmp_path)
    assert "\n" not in str(raised.value)
    assert "this ran" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("visual", "says"),
    [
        ({"output_dim": 128}, "output_dim is 128, hidden_size 256"),
        ({"patch_size": 7}, "image_size 32 is not a multiple of patch_size 7"),
        ({"n_queries": 8}, "n_queries is 8: it must be a square"),
        ({"heads": 5}, "width 24 is not a multiple of its 5 heads"),
        ({"image_start_id": 478}, "image_start_id is 478"),
    ],
)
def test_a_configuration_that_cannot_be(tmp_path: Path, visual: dict[str, Any], says: str) -> None:
    files.save(tmp_path / "saved", small_qwen_vl())
    told = json.loads((tmp_path / "saved" / "config.json").read_text())
    told["visual"] |= visual
    (tmp_path / "saved" / "config.json").write_text(json.dumps(told))
    with pytest.raises(ValueError, match=says):
        files.read_config(tmp_path / "saved")


def test_a_hub_id_is_fetched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def given_by_hub(name: str, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(QWENVL)

    monkeypatch.setattr(pretrained, "snapshot_download", given_by_hub)
    assert files.load("Qwen/Qwen-VL").dtype == torch.bfloat16
    assert [name for name, _ in asked] == ["Qwen/Qwen-VL"]
    assert "qwen.tiktoken" in asked[0][1]


def test_long_context_is_named() -> None:
    with pytest.raises(ValueError, match="long_context is 'ntk'"):
        small_config(long_context="ntk")
