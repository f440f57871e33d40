"""Qwen-VL's layers and forward pass at a small size, against torch and transformers."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import Qwen2Config, Qwen2ForCausalLM

from tests.helpers.qwen_vl_models import prompt, small_qwen_vl
from uivlm.episodes.encode import IGNORE, Example
from uivlm.models.multimodal import trained_tokens
from uivlm.models.qwen_vl.config import QwenVLConfig
from uivlm.models.qwen_vl.language_model import ntk_alpha
from uivlm.models.qwen_vl.model import QwenVL
from uivlm.models.qwen_vl.vision_encoder import interpolate_positions
from uivlm.training.collator import LOSS_KEYS, Collator


@pytest.mark.parametrize(("tokens", "alpha"), [(1, 1), (2048, 1), (2049, 3), (4096, 3), (4097, 7), (8192, 7)])
def test_ntk_factors(tokens: int, alpha: int) -> None:
    assert ntk_alpha(tokens, 2048) == alpha


def test_positions_stretched_down_keep_a_slope() -> None:
    """Bicubic resizing without a filter reproduces a straight line inside; rows and columns stay apart."""
    rows, columns = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    table = torch.stack([rows + 0.5, columns + 0.5], -1).flatten(0, 1)
    inside = interpolate_positions(table, 64).unflatten(0, (8, 8))[1:-1, 1:-1]
    wanted = 2 * (torch.arange(1, 7) + 0.5)
    assert torch.allclose(inside[..., 0], wanted[:, None].expand(6, 6), atol=1e-4)
    assert torch.allclose(inside[..., 1], wanted.expand(6, 6), atol=1e-4)


@torch.inference_mode()
def test_resampler_is_torchs_multihead_attention() -> None:
    pool = small_qwen_vl().transformer.visual.attn_pool
    reference = nn.MultiheadAttention(256, 2, batch_first=True).eval()
    reference.load_state_dict(pool.attn.state_dict())
    query, key, value = torch.randn(9, 256), torch.randn(3, 16, 256), torch.randn(3, 16, 256)
    wanted = reference(query.expand(3, 9, 256), key, value, need_weights=False)[0]
    assert torch.allclose(pool.attn(query, key, value), wanted, atol=1e-5)


@torch.inference_mode()
def test_text_tower_is_qwen2() -> None:
    model = small_qwen_vl()
    config, given = model.config, model.state_dict()
    reference = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=480,
            hidden_size=256,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=8,
            num_key_value_heads=8,
            rms_norm_eps=config.layer_norm_epsilon,
            tie_word_embeddings=False,
        )
    ).eval()
    weights = {
        "model.embed_tokens.weight": given["transformer.wte.weight"],
        "lm_head.weight": given["lm_head.weight"],
    }
    weights["model.norm.weight"] = given["transformer.ln_f.weight"]
    names = {"attn.c_proj": "self_attn.o_proj", "mlp.w2": "mlp.gate_proj", "mlp.w1": "mlp.up_proj"}
    names |= {"mlp.c_proj": "mlp.down_proj", "ln_1": "input_layernorm", "ln_2": "post_attention_layernorm"}
    for i in range(2):
        for ours, theirs in names.items():
            weights[f"model.layers.{i}.{theirs}.weight"] = given[f"transformer.h.{i}.{ours}.weight"]
        for kind in ("weight", "bias"):
            for letter, third in zip(
                "qkv", given[f"transformer.h.{i}.attn.c_attn.{kind}"].chunk(3), strict=True
            ):
                weights[f"model.layers.{i}.self_attn.{letter}_proj.{kind}"] = third
    reference.load_state_dict(weights)
    ids = torch.randint(0, 256, (2, 40))
    assert torch.allclose(model(ids).logits, reference(ids).logits, atol=2e-4)


@torch.inference_mode()
def test_logits_of_trained_positions_are_those_of_the_full_forward() -> None:
    model = small_qwen_vl()
    ids, labels, pixels = prompt(model.config)
    full = model(ids, pixels).logits[0]
    before = [i - 1 for i, label in enumerate(labels[0].tolist()) if label != IGNORE]
    some = model(ids, pixels, trained_positions=trained_tokens(labels)[0]).logits
    assert torch.allclose(some, full[before], atol=1e-4)
    assert torch.allclose(model(ids, features=model.get_image_features(pixels)).logits[0], full, atol=1e-5)


@pytest.mark.parametrize(
    ("screens", "says"),
    [(1, "18 placeholders, .* 9 visual tokens"), (0, "18 placeholders, .* 0 visual tokens")],
)
def test_places_and_screens_must_agree(screens: int, says: str) -> None:
    model = small_qwen_vl()
    ids, _, pixels = prompt(model.config)
    with pytest.raises(ValueError, match=says):
        model(ids, pixels[:screens])


def test_a_screen_in_pieces_is_refused() -> None:
    model = small_qwen_vl()
    ids, _, pixels = prompt(model.config)
    first = int((ids[0] == model.config.image_token_id).nonzero()[0])
    ids[0, [first, 0]] = ids[0, [0, first]]
    with pytest.raises(ValueError, match="a screen has 1 placeholders in the text; expected 9"):
        model(ids, pixels)


def test_screens_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match=r"pixels: got \[3, 16, 16\]; .* \[3, 32, 32\]"):
        small_qwen_vl().get_image_features(torch.zeros(1, 3, 16, 16, dtype=torch.uint8))


@torch.inference_mode()
def test_rows_of_a_batch_do_not_see_each_other() -> None:
    model = small_qwen_vl()
    rows = []
    for num_screens in (1, 3):
        ids, labels, pixels = prompt(model.config, num_screens)
        tokens = (model.config.num_queries,) * num_screens
        none = np.zeros(0, np.int64)
        rows.append(Example(ids[0].numpy(), labels[0].numpy(), none, tokens, pixels=tuple(pixels.numpy())))
    collate: Any = Collator(256, model.config.image_token_id)

    def batched(*some: Example) -> dict[str, Any]:
        return {name: part for name, part in collate(list(some)).items() if name not in LOSS_KEYS}

    batch = batched(*rows)
    alone = [model(**batched(row)).logits for row in rows]
    assert torch.allclose(model(**batch).logits, torch.cat(alone), atol=1e-4)


def test_a_process_without_screens_runs_the_vision_tower_too() -> None:
    model, ids = small_qwen_vl().train(), torch.randint(0, 256, (1, 12))
    weight = model.transformer.visual.conv1.weight
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        with_tower = model(ids)
    finally:
        torch.distributed.destroy_process_group()
    with_tower.logits.sum().backward()
    assert weight.grad is not None
    assert float(weight.grad.abs().max()) == 0
    assert torch.equal(with_tower.logits, model(ids).logits)


def test_full_size() -> None:
    """The official index: 853 tensors, 19,313,870,336 bytes in bfloat16."""
    with torch.device("meta"):
        weights = QwenVL(QwenVLConfig()).to(torch.bfloat16).state_dict()
    assert len(weights) == 853
    assert sum(value.nbytes for value in weights.values()) == 19_313_870_336
    sizes: dict[str, int] = {}
    for name, value in weights.items():
        part = re.match(r"transformer\.visual\.(attn_pool|ln_post|proj)|transformer\.visual|", name)
        assert part is not None
        sizes[part[0]] = sizes.get(part[0], 0) + value.numel()
    assert sizes[""] == 7_721_324_544
    assert sizes["transformer.visual"] == 1_842_770_688
    assert sizes["transformer.visual.attn_pool"] == 76_054_528
    assert sizes["transformer.visual.ln_post"] + sizes["transformer.visual.proj"] == 16_785_408
