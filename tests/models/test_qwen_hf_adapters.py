"""Qwen2-VL and later: LoRA and quantization apply to the language model only."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig as PeftLora
from peft import PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict

from tests.helpers.hf_generate import hf_inputs
from tests.helpers.qwen_hf_rows import SIZES, row
from uivlm.models.lora_layers import lora_layers, summarize_layers
from uivlm.models.multimodal import token_losses, trained_tokens
from uivlm.models.quantize import loading_options
from uivlm.models.qwen_hf import files
from uivlm.models.qwen_hf.model import QwenHF, lora_targets
from uivlm.models.qwen_hf.processor import QwenHFProcessor


def test_lora_trains_the_language_tower_alone(module: QwenHF, reader: QwenHFProcessor) -> None:
    pattern = lora_targets(module)
    parts = [f"self_attn.{x}_proj" for x in "qkvo"] + [f"mlp.{x}_proj" for x in ("gate", "up", "down")]
    wanted = {f"model.language_model.layers.{i}.{part}" for i in (0, 1) for part in parts}
    found = lora_layers(module, pattern)
    assert set(found) == wanted
    assert "2 x model.language_model.layers.*.mlp.down_proj" in summarize_layers(found).splitlines()
    assert len(summarize_layers(found).splitlines()) == len(parts)
    ids, labels, pixels = row(reader, SIZES)
    positions, trained_ids = trained_tokens(labels)
    before = module(ids, pixels, trained_positions=positions).logits.detach()
    model = get_peft_model(module, PeftLora(r=2, lora_alpha=4, target_modules=pattern))
    assert isinstance(model, PeftModel)
    for name, value in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(value, std=0.1)
    model.train()
    module.activation_checkpointing_enable()
    module.enable_input_require_grads()
    token_losses(model(ids, pixels=pixels, trained_positions=positions), trained_ids).sum().backward()
    trained = {
        name for name, value in model.named_parameters() if value.grad is not None and value.grad.any()
    }
    assert trained == {f"base_model.model.{name}.lora_{x}.default.weight" for name in wanted for x in "AB"}
    after = model.eval()(ids, pixels=pixels).logits.detach()
    changed = model(ids, pixels=pixels, trained_positions=positions).logits
    assert not torch.allclose(changed, before, atol=1e-3)
    told = hf_inputs(module, ids, pixels)
    assert torch.allclose(
        module.hf_model(input_ids=ids, **told).logits, after, atol=1e-5
    )  # adapters are there too


@torch.inference_mode()
def test_adapters_travel_as_files(
    module: QwenHF, folder: Callable[[str], Path], kind: str, reader: QwenHFProcessor
) -> None:
    """Their names are PEFT's for the class, so they also fit a plain transformers model."""
    told = PeftLora(r=2, lora_alpha=4, target_modules=lora_targets(module))
    model: Any = get_peft_model(module, told)
    for name, value in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(value, std=0.1)
    weights = get_peft_model_state_dict(model)
    assert len(weights) == 28
    assert all(name.startswith("base_model.model.model.language_model.layers.") for name in weights)
    ids, _, pixels = row(reader, SIZES)
    wanted = model(ids, pixels=pixels).logits
    again = files.load(folder(kind), torch.float32)
    for bare in (again, files.load(folder(kind), torch.float32).hf_model):
        other: Any = get_peft_model(bare, told).eval()
        assert not set_peft_model_state_dict(other, weights).unexpected_keys
        asked = {"pixels": pixels} if bare is again else hf_inputs(module, ids, pixels)
        assert torch.allclose(other(input_ids=ids, **asked).logits, wanted, atol=1e-5)
    merged = model.merge_and_unload()
    assert torch.allclose(merged(ids, pixels).logits, wanted, atol=1e-3)
    assert torch.allclose(
        merged.hf_model(input_ids=ids, **hf_inputs(module, ids, pixels)).logits, wanted, atol=1e-3
    )


def test_targets_that_touch_the_vision_encoder_are_refused(module: QwenHF) -> None:
    if module.config.model_type == "qwen2_5_vl":
        with pytest.raises(
            ValueError, match="match model.visual.blocks.0.mlp.gate_proj: the vision encoder stays frozen"
        ):
            lora_layers(module, r".*\.(gate|up|down)_proj")
    with pytest.raises(ValueError, match="the vision encoder stays frozen"):
        lora_layers(module, r".*attn\.(qkv|q_proj)")


def test_the_vision_tower_is_never_quantised(folder: Callable[[str], Path], kind: str) -> None:
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    kept = loading_options("nf4", torch.float32, torch.device("cpu"))
    module = files.load(folder(kind), torch.float32, **kept)
    names = {name for name, one in module.named_modules() if type(one).__name__ == "Linear4bit"}
    assert names == set(lora_layers(module, lora_targets(module)))
