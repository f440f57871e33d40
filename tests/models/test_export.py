"""Checkpoints in other programs' formats: the same logits, whoever loads them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import AutoModelForImageTextToText, Qwen2ForCausalLM
from typer.testing import CliRunner

from tests.helpers.hf_checkpoints import write
from tests.helpers.hf_generate import hf_inputs
from tests.helpers.hf_llama_vit_parts import write_llama, write_vision
from tests.helpers.tiny_models import QWEN_CONTROL, base, episode, prepare, qwen_base, qwen_recipe, recipe
from uivlm import recipe as recipes
from uivlm.cli.main import app
from uivlm.episodes.encode import encode
from uivlm.models import adapters
from uivlm.models.build import build, prompt_format
from uivlm.models.export import merge
from uivlm.models.qwen_vl.to_qwen2 import to_qwen2
from uivlm.training.checkpoint import save, save_base_checkpoint


def checkpoint(one: recipes.Recipe, out: Path) -> tuple[nn.Module, Path]:
    """Adapters (or weights) shaken, as if trained: the model and its folder."""
    built = build(one)
    model = adapters.prepare_for_training(built, 0)
    torch.manual_seed(3)
    with torch.no_grad():
        for value in model.parameters():
            if value.requires_grad:
                value += 0.1 * torch.randn_like(value)
    save(out, model, built, one, None, 0.0, "")
    return model.eval(), out


def asked(one: recipes.Recipe) -> tuple[Tensor, list[Tensor]]:
    example = encode(prompt_format(one).prompt(episode(0, 3).history(2)), build(one).processor)
    return torch.from_numpy(example.input_ids)[None], [torch.from_numpy(screen) for screen in example.pixels]


def bases(root: Path, data: Path) -> dict[str, recipes.Recipe]:
    """A small recipe of every kind of model."""
    lora = recipes.LoraArgs(4, 8, 0.0)
    small = recipe(base(root / "bridge"), data)
    language, seeing = write_llama(root / "llama"), write_vision(root / "siglip", "siglip")
    return {
        "llama_vit": small,
        "llama_parts": replace(
            small, model=recipes.LlamaPartsArgs(str(language), str(seeing), lora, grid_size=2)
        ),
        "qwen_vl": qwen_recipe(qwen_base(root / "qwen"), data),
        "qwen_vl full": qwen_recipe(root / "qwen", data, lora=None),
        "qwen_hf": replace(
            small, model=recipes.QwenHFArgs(str(write(root / "hf", "Qwen2_5_VL")), lora, max_visual_tokens=12)
        ),
        "qwen_hf full": replace(
            small, model=recipes.QwenHFArgs(str(root / "hf"), None, max_visual_tokens=12)
        ),
    }


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, recipes.Recipe]:
    root = tmp_path_factory.mktemp("small")
    return bases(root, prepare(root / "data", [episode(0, 3)]))


@torch.inference_mode()
@pytest.mark.parametrize(
    "kind", ["llama_vit", "llama_parts", "qwen_vl", "qwen_vl full", "qwen_hf", "qwen_hf full"]
)
def test_a_merged_checkpoint_is_a_base_with_the_same_logits(
    small: dict[str, recipes.Recipe], kind: str, tmp_path: Path
) -> None:
    one = small[kind]
    model, folder = checkpoint(one, tmp_path / "ckpt")
    merge(one, folder, tmp_path / "merged")
    ids, pixels = asked(one)
    screens: Any = torch.stack(pixels)
    wanted = model(ids, pixels=screens).logits
    part: Any = one.model
    if kind == "llama_parts":  # one folder now
        part = recipes.LlamaVitArgs("")
    again = build(replace(one, model=replace(part, base_model=str(tmp_path / "merged"))))
    assert torch.allclose(again.model(ids, pixels=screens).logits, wanted, atol=1e-4)
    assert not torch.allclose(build(one).model(ids, pixels=screens).logits, wanted, atol=1e-2)
    with pytest.raises(ValueError, match="merged already exists"):
        merge(one, folder, tmp_path / "merged")


@torch.inference_mode()
def test_a_merged_successor_loads_anywhere(small: dict[str, recipes.Recipe], tmp_path: Path) -> None:
    """By transformers' own loader, which is how vLLM and others read it."""
    one = small["qwen_hf"]
    model, folder = checkpoint(one, tmp_path / "ckpt")
    merge(one, folder, tmp_path / "merged")
    theirs = AutoModelForImageTextToText.from_pretrained(tmp_path / "merged")
    ids, pixels = asked(one)
    inputs = hf_inputs(model.get_base_model(), ids, torch.stack(pixels))  # type: ignore[operator]
    wanted = model(ids, pixels=torch.stack(pixels)).logits
    assert torch.allclose(theirs(input_ids=ids, **inputs).logits, wanted, atol=1e-4)
    assert (tmp_path / "merged" / "tokenizer.json").is_file()


@torch.inference_mode()
@pytest.mark.parametrize("kind", ["qwen_vl", "qwen_vl full"])
def test_the_language_tower_is_a_qwen2(small: dict[str, recipes.Recipe], kind: str, tmp_path: Path) -> None:
    """The fused adapter is split exactly: text alone gives the same logits, with transformers' and PEFT's own
    classes.
    """
    one = small[kind]
    model, folder = checkpoint(one, tmp_path / "ckpt")
    to_qwen2(one, folder, tmp_path / "out")
    tower: Any = Qwen2ForCausalLM.from_pretrained(tmp_path / "out" / "base")
    plain = tower(input_ids := torch.randint(0, QWEN_CONTROL, (1, 40))).logits
    if kind == "qwen_vl":
        assert torch.allclose(plain, build(one).model(input_ids).logits, atol=1e-4)
        tower = PeftModel.from_pretrained(tower, str(tmp_path / "out" / "adapters"))
    wanted = model(input_ids).logits
    assert torch.allclose(tower(input_ids=input_ids).logits, wanted, atol=1e-4)
    assert (kind == "qwen_vl full") == torch.allclose(plain, wanted, atol=1e-2)
    assert (tmp_path / "out" / "base" / "qwen.tiktoken").is_file()
    with pytest.raises(ValueError, match="already exists"):
        to_qwen2(one, folder, tmp_path / "out")


def test_what_is_no_qwen2_is_refused(small: dict[str, recipes.Recipe], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="got a llama_vit checkpoint; expected qwen_vl"):
        to_qwen2(small["llama_vit"], tmp_path, tmp_path / "out")
    long: Any = replace(small["qwen_vl"], model=replace(small["qwen_vl"].model, dynamic_ntk=True))  # type: ignore[call-arg]
    _, folder = checkpoint(long, tmp_path / "ckpt")
    with pytest.raises(ValueError, match="model.dynamic_ntk: got true"):
        to_qwen2(long, folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_commands(small: dict[str, recipes.Recipe], tmp_path: Path) -> None:
    save_base_checkpoint(small["qwen_vl"], tmp_path / "ckpt")
    ckpt = str(tmp_path / "ckpt")
    for command in (["merge", ckpt], ["export", ckpt, "--to", "qwen2"]):
        out = tmp_path / command[0]
        told = CliRunner().invoke(app, [*command, "--out", str(out)], catch_exceptions=False)
        assert told.exit_code == 0, told.output
        assert out.is_dir()
