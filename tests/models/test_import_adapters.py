"""Adapters of other programs become checkpoints: PEFT's own model gives the same logits."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

from tests.helpers.hf_checkpoints import write
from tests.helpers.tiny_models import QWEN_CONTROL, qwen_base, qwen_recipe
from uivlm import recipe as recipes
from uivlm.cli.main import app
from uivlm.inference.load import load_checkpoint
from uivlm.models.build import build
from uivlm.models.import_adapters import import_adapters

ORIGINAL = ["c_attn", "attn.c_proj", "w1", "w2"]  # the target list of Qwen-VL's own fine-tuning
OLD = {
    "peft_type": "LORA",
    "r": 3,
    "lora_alpha": 8,
    "lora_dropout": 0.05,
    "bias": "none",
    "fan_in_fan_out": False,
}
OLD |= {"target_modules": ORIGINAL, "task_type": "CAUSAL_LM", "layers_pattern": None, "modules_to_save": None}
OLD |= {"inference_mode": True, "init_lora_weights": True, "a_field_of_old": None}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> recipes.Recipe:
    return qwen_recipe(qwen_base(tmp_path_factory.mktemp("qwen") / "base"), Path("data"))


def shaken(module: nn.Module, targets: Any) -> Any:
    """PEFT's own model on ours, its adapters far from nothing."""
    model = get_peft_model(module, LoraConfig(r=3, lora_alpha=8, target_modules=targets))  # type: ignore[arg-type]
    torch.manual_seed(1)
    for name, value in model.named_parameters():
        if "lora_" in name:
            nn.init.normal_(value, std=0.1)
    return model.eval()


def write_old(model: Any, root: Path, kind: str = "safetensors", **changes: Any) -> Path:
    """As PEFT 0.4 wrote it."""
    weights = {n.replace(".default", ""): v.clone() for n, v in model.state_dict().items() if "lora_" in n}
    root.mkdir()
    (root / "adapter_config.json").write_text(json.dumps(OLD | changes))
    if kind == "bin":
        torch.save(weights, root / "adapter_model.bin")
    else:
        save_file(weights, root / "adapter_model.safetensors")
    return root


@torch.inference_mode()
@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_adapters_in_original_names_become_a_checkpoint(
    small: recipes.Recipe, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of other rank and for fewer layers than the recipe has."""
    model = shaken(build(small).model, ORIGINAL)
    folder = write_old(model, tmp_path / "theirs", kind)
    source = tmp_path / "small.py"
    source.write_text(f"from uivlm.recipe import *\n\ndef recipe(): return {small!r}\n")
    said = ["import-adapter", str(source), str(folder), "--out", str(tmp_path / "ckpt")]
    told = CliRunner().invoke(app, said, catch_exceptions=False)
    assert told.exit_code == 0, told.output
    loaded = load_checkpoint(tmp_path / "ckpt")
    ids = torch.randint(0, QWEN_CONTROL, (1, 30))
    assert torch.allclose(loaded.model(ids).logits, model(ids).logits, atol=1e-4)
    assert not torch.allclose(build(small).model(ids).logits, model(ids).logits, atol=1e-2)
    assert loaded.recipe.model.lora == recipes.LoraArgs(3, 8, 0.05)


@torch.inference_mode()
def test_adapters_of_a_successor(small: recipes.Recipe, tmp_path: Path) -> None:
    """As PEFT saves them today, for transformers' own class."""
    one = replace(small, model=recipes.QwenHFArgs(str(write(tmp_path / "base", "Qwen2_5_VL"))))
    model = shaken(build(one).model.hf_model, r".*language_model.*\.(q_proj|v_proj)")  # type: ignore[arg-type]
    model.save_pretrained(tmp_path / "theirs")
    changed, _, ours = import_adapters(one, tmp_path / "theirs")
    ids = torch.arange(20)[None]
    assert torch.allclose(ours.eval()(ids).logits, model(input_ids=ids).logits, atol=1e-4)
    assert changed.model.lora is not None
    assert changed.model.lora.r == 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"r": 2}, r"has shape \[3, 128\]; expected rank 2"),
        ({"r": None}, "does not describe LoRA adapters"),
        ({"use_dora": True}, "use_dora: got True, which is not supported"),
        ({"modules_to_save": ["wte"]}, r"modules_to_save: got \['wte'\], which"),
        ({"peft_type": "LOHA"}, "peft_type: got 'LOHA'"),
    ],
)
def test_adapters_that_do_not_fit(
    small: recipes.Recipe, tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    folder = write_old(shaken(build(small).model, ORIGINAL), tmp_path / "theirs", **change)
    with pytest.raises(ValueError, match=says) as raised:
        import_adapters(small, folder)
    assert "\n" not in str(raised.value)


def test_adapters_of_another_model(small: recipes.Recipe, tmp_path: Path) -> None:
    other = replace(small, model=recipes.QwenHFArgs(str(write(tmp_path / "base", "Qwen2VL"))))
    folder = write_old(shaken(build(small).model, ORIGINAL), tmp_path / "theirs")
    with pytest.raises(
        ValueError, match="16 weights that the model does not have, such as .*transformer.h.0.attn.c_attn"
    ):
        import_adapters(other, folder)
    with pytest.raises(ValueError, match="does not contain adapters"):
        import_adapters(small, tmp_path)
