"""Qwen-VL: which weights are trained, and their saving and loading."""

from pathlib import Path

import peft
import pytest
import torch

from tests.helpers.model_examples import LAYERS, qwen_example, shaken_by
from tests.helpers.qwen_vl_models import prompt, small_qwen_vl
from tests.helpers.tiny_models import qwen_recipe
from uivlm.models import adapters
from uivlm.models.build import build
from uivlm.models.multimodal import token_losses, trained_tokens
from uivlm.models.qwen_vl.model import LORA_TARGETS, QwenVL


def adapted(model: QwenVL, targets: str | list[str] = LORA_TARGETS) -> peft.PeftModel:
    made = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=8, target_modules=targets))
    torch.manual_seed(1)
    with torch.no_grad():
        for name, value in made.named_parameters():
            if "lora_" in name:
                value.normal_(std=0.1)
    assert isinstance(made, peft.PeftModel)
    return made


def test_lora_trains_the_language_model_alone() -> None:
    model = adapted(small_qwen_vl()).train()
    model.activation_checkpointing_enable()
    model.enable_input_require_grads()
    ids, labels, pixels = prompt(model.config)
    positions, trained = trained_tokens(labels)
    token_losses(model(ids, pixels=pixels, trained_positions=positions), trained).sum().backward()
    trained = {
        name for name, value in model.named_parameters() if value.grad is not None and value.grad.any()
    }
    layers = [
        f"{part}.{layer}"
        for part, layer in zip(
            ["attn"] * 2 + ["mlp"] * 3, ["c_attn", "c_proj", "w1", "w2", "c_proj"], strict=True
        )
    ]
    top = "base_model.model.transformer.h"
    assert trained == {f"{top}.{i}.{x}.lora_{h}.default.weight" for i in (0, 1) for x in layers for h in "AB"}


def test_qwenvl_trains_adapters_of_the_language_model(qwen: Path) -> None:
    built = build(qwen_recipe(qwen, Path("data")))
    top = "base_model.model.transformer.h"
    expected = {f"{top}.{i}.{x}.lora_{h}.default.weight" for i in (0, 1) for x in LAYERS for h in "AB"}
    assert set(adapters.trainable_parameter_names(adapters.prepare_for_training(built, 0))) == expected


def test_full_fine_tuning_trains_language_model_and_resampler(qwen: Path) -> None:
    built = build(qwen_recipe(qwen, Path("data"), lora=None))
    model = adapters.prepare_for_training(built, 0)
    assert model is built.model
    vision = {name for name, _ in model.named_parameters() if name.startswith("transformer.visual.")}
    pool = {name for name in vision if ".attn_pool." in name} - {"transformer.visual.attn_pool.pos_embed"}
    assert len(pool) == 10
    assert (
        set(adapters.trainable_parameter_names(model))
        == {n for n, _ in model.named_parameters()} - vision | pool
    )


@torch.inference_mode()
@pytest.mark.parametrize("part", [{}, {"lora": None}], ids=["lora", "full"])
def test_what_was_trained_of_qwenvl_is_saved(qwen: Path, tmp_path: Path, part: dict[str, None]) -> None:
    one = qwen_recipe(qwen, Path("data"), **part)
    built = build(one)
    model = shaken_by(adapters.prepare_for_training(built, 0))
    ids, pixels = qwen_example(built)
    wanted = model(ids, pixels).logits
    adapters.save(model, built, str(qwen), tmp_path)
    assert (
        {f.name for f in tmp_path.iterdir()}
        == set(adapters.checkpoint_files(one))
        == ({"model"} if part else {"adapter_config.json", "adapter_model.safetensors"})
    )
    _, again = adapters.load(one, tmp_path)
    assert not again.training
    assert torch.allclose(again(ids, pixels).logits, wanted, atol=1e-3)
    assert not torch.allclose(build(one).model(ids, pixels).logits, wanted, atol=0.1)
    if part:
        assert torch.equal(again(ids, pixels).logits, wanted)
    else:
        assert torch.equal(adapters.load_adapters(build(one), tmp_path).eval()(ids, pixels).logits, wanted)
