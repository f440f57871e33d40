"""A checkpoint of a stranger runs no code, loads no other model than its recipe's, and blocks nothing."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.engines import Saved
from tests.helpers.foreign_checkpoints import change_json, change_model, copy_of, set_weight, sign
from tests.helpers.hf_checkpoints import write
from uivlm.inference.load import load_checkpoint
from uivlm.models.bridge import files as bridge_files
from uivlm.models.pretrained import read_model_config
from uivlm.models.qwen_hf import files as qwen_files

WEIGHTS = "adapter_model.safetensors"


def refusal(folder: Path) -> str:
    with pytest.raises(ValueError, match=".") as refused:
        load_checkpoint(folder)
    sentence = str(refused.value)
    assert "\n" not in sentence
    assert len(sentence) < 600
    return sentence


def test_no_module_named_in_a_checkpoint_is_imported(
    saved: Saved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m uivlm` has the working folder on its path, where the checkpoint `megatron` is a package."""
    (tmp_path / "megatron").mkdir()
    (tmp_path / "megatron" / "payload.py").write_text("open('ran', 'w').close()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    fields = {"megatron_config": {"x": 1}, "megatron_core": "megatron.payload"}
    sentence = refusal(copy_of(saved.folder, tmp_path / "copy", **fields))
    assert "megatron_config: got a list or an object; expected None, as in recipe.json" in sentence
    assert not (tmp_path / "ran").exists()
    assert "megatron.payload" not in sys.modules


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("megatron_core", "os"),
        ("use_rslora", True),
        ("lora_alpha", 100_000),
        ("alpha_pattern", {"q_proj": 1000}),
        ("rank_pattern", {"q_proj": 1}),
        ("init_lora_weights", "pissa"),
        ("init_lora_weights", "olora"),
        ("target_modules", "(([a-z.])+.)+[A-Z]([a-z])+$"),  # matching it takes ages
        ("r", "x"),
        ("r", 10**8),
        ("use_dora", True),
        ("bias", "all"),
        ("modules_to_save", ["lm_head"]),
        ("loftq_config", {"loftq_bits": 4}),
        ("auto_mapping", {"base_model_class": "X", "parent_library": "payload"}),
        ("lora_dropout", float("nan")),
        ("layer_replication", [[0, 2]]),
    ],
)
def test_adapter_settings_come_from_the_recipe_alone(
    saved: Saved, tmp_path: Path, field: str, value: Any
) -> None:
    sentence = refusal(copy_of(saved.folder, tmp_path / "copy", **{field: value}))
    assert f"adapter_config.json: {field}: got " in sentence
    assert "; expected " in sentence


@pytest.mark.parametrize("name", ["adapter_config.json", "recipe.json", "card.json"])
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[]", "", "{", "null", "\xff\xfe"])
def test_damaged_json_is_one_sentence(saved: Saved, tmp_path: Path, name: str, text: str) -> None:
    copy = copy_of(saved.folder, tmp_path / "copy")
    (copy / name).write_text(text, "latin-1")
    assert str(copy / name) in refusal(copy)


@pytest.mark.parametrize(
    "fields", [{"version": 2}, {"version": "1"}, {"weights_sha256": []}, {"weights_sha256": {WEIGHTS: "x"}}]
)
def test_a_card_has_types(saved: Saved, tmp_path: Path, fields: dict[str, Any]) -> None:
    copy = copy_of(saved.folder, tmp_path / "copy")
    change_json(copy / "card.json", **fields)
    assert f"card.json.{next(iter(fields))}" in refusal(copy)


def test_a_huge_rank_in_the_recipe_allocates_nothing(saved: Saved, tmp_path: Path) -> None:
    copy = copy_of(saved.folder, tmp_path / "copy", r=10**9)
    change_model(copy, lora=json.loads((copy / "recipe.json").read_text())["model"]["lora"] | {"r": 10**9})
    assert "expected rank 1000000000" in refusal(copy)


@pytest.mark.parametrize("name", [WEIGHTS, "projector.safetensors"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_refused(
    saved: Saved, tmp_path: Path, name: str, value: float
) -> None:
    copy = copy_of(saved.folder, tmp_path / "copy")
    weight = set_weight(copy / name, value)
    sign(copy)
    assert f"{name}: {weight} holds values that are not finite" in refusal(copy)


@pytest.mark.parametrize("name", [WEIGHTS, "projector.safetensors"])
def test_a_flipped_bit_of_the_weights_is_refused(saved: Saved, tmp_path: Path, name: str) -> None:
    copy = copy_of(saved.folder, tmp_path / "copy")
    content = bytearray((copy / name).read_bytes())
    content[-9] ^= 1
    (copy / name).write_bytes(content)
    sentence = refusal(copy)
    assert f"{name} is damaged: its SHA-256 is " in sentence
    change_json(copy / "card.json", version=None)  # a card of uivlm 0.2 has no digests
    load_checkpoint(copy)


@pytest.mark.parametrize("name", [WEIGHTS, "adapter_config.json", "projector.safetensors", "recipe.json"])
@pytest.mark.parametrize("kind", ["pipe", "link", "device"])
def test_only_plain_files_are_opened(saved: Saved, tmp_path: Path, name: str, kind: str) -> None:
    copy = copy_of(saved.folder, tmp_path / "copy")
    (copy / name).unlink()
    match kind:
        case "pipe":
            os.mkfifo(copy / name)  # opening it would wait for a writer
        case "link":
            (copy / name).symlink_to(saved.folder / name)
        case _:
            (copy / name).symlink_to("/dev/zero")
    assert name in refusal(copy)


@pytest.fixture(scope="module")
def evil_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base whose config.json names code of its own for an unknown `model_type`."""
    folder = write(tmp_path_factory.mktemp("evil") / "base", "Qwen2VL")
    change_json(folder / "config.json", model_type="evil", auto_map={"AutoConfig": "payload.Config"})
    (folder / "payload.py").write_text("raise SystemExit('the code of a base ran')")
    return folder


def test_a_base_never_asks_to_run_its_code(evil_base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", lambda _: pytest.fail("transformers asked to run the base's code"))
    for load in (qwen_files.load_processor, qwen_files.load):
        with pytest.raises(ValueError, match="model_type: got 'evil'; expected 'qwen2_vl'"):
            load(evil_base)


@pytest.mark.parametrize("value", ["evil/kernel", "flash_attention_2", {"text_config": "evil/kernel"}])
@pytest.mark.parametrize("name", ["attn_implementation", "_attn_implementation"])
def test_a_base_never_chooses_attention_code_of_the_hub(tmp_path: Path, name: str, value: Any) -> None:
    """With the package `kernels`, transformers would download that code and run it."""
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 8, "vision_config": {name: value}}))
    with pytest.raises(ValueError, match=f"{name}: got .*; expected eager or sdpa"):
        read_model_config(tmp_path / "config.json", "model")


@pytest.mark.parametrize("load", [qwen_files.from_config, qwen_files.load, bridge_files.from_config])
def test_every_loader_checks_the_attention_code(saved: Saved, tmp_path: Path, load: Any) -> None:
    bridge = load is bridge_files.from_config
    base = write(tmp_path / "base", "Qwen2VL") if not bridge else tmp_path / "base"
    if bridge:
        shutil.copytree(saved.recipe.model.base_model, base)
    change_json(base / "config.json", attn_implementation="evil/kernel")
    with pytest.raises(ValueError, match="attn_implementation: got 'evil/kernel'; expected eager or sdpa"):
        load(base, torch.float32)


def test_the_base_of_a_stranger_is_never_fetched_unasked(
    saved: Saved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import snapshot_download

    def download(repo_id: str, local_files_only: bool = False, **_: Any) -> str:
        if not local_files_only:
            pytest.fail(f"{repo_id} was fetched unasked")
        return snapshot_download(repo_id, local_files_only=True)

    for module in ("base_models", "pretrained"):
        monkeypatch.setattr(f"uivlm.models.{module}.snapshot_download", download)
    copy = copy_of(saved.folder, tmp_path / "copy")
    lora = json.loads((copy / "recipe.json").read_text())["model"]["lora"]
    (copy / "projector.safetensors").unlink()
    change_json(copy / "recipe.json", model={"type": "qwen_hf", "base_model": "evil/repo", "lora": lora})
    sign(copy)
    sentence = refusal(copy)
    assert "names the base evil/repo, which is not on this machine" in sentence
    assert sentence.endswith("add --fetch if you trust its owner, evil")
