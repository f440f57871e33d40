"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: positions and logits equal those of transformers' classes."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.helpers.hf_generate import hf_inputs
from tests.helpers.qwen_hf_rows import SIZES, padded, row, screen
from uivlm.models.qwen_hf import files
from uivlm.models.qwen_hf.model import QwenHF
from uivlm.models.qwen_hf.positions import mrope_position_ids
from uivlm.models.qwen_hf.processor import QwenHFProcessor


def test_positions_written_by_hand() -> None:
    """Two tokens, a screen of 2 rows and 3 columns, two tokens: time, row and column of each."""
    places = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 0, 0]]).bool()
    spots = torch.tensor([[y, x] for y in range(2) for x in range(3)])
    found = mrope_position_ids(places, spots, torch.ones_like(places), None)
    assert found[:, 0].tolist() == [
        [0, 1, 2, 2, 2, 2, 2, 2, 5, 6],
        [0, 1, 2, 2, 2, 3, 3, 3, 5, 6],
        [0, 1, 2, 3, 4, 2, 3, 4, 5, 6],
    ]


def test_a_screen_that_does_not_go_on() -> None:
    spots = torch.tensor([[1, 0], [1, 1]])
    places = torch.ones(1, 2, dtype=torch.bool)
    before = mrope_position_ids(places, torch.tensor([[0, 0], [0, 1]]), places, None)
    found = mrope_position_ids(places, spots, places, before)
    assert found[:, 0].tolist() == [[0, 0], [1, 1], [0, 1]]
    for kept in (None, before[..., :0], torch.cat([before, torch.full((3, 1, 1), 2)], -1)):
        with pytest.raises(ValueError, match="placeholders is not that of its visual tokens"):
            mrope_position_ids(places, spots + torch.tensor([[1, 0]]), places, kept)


@torch.inference_mode()
def test_rows_and_columns_are_exact_in_bfloat16(folder: Callable[[str], Path], kind: str) -> None:
    module = files.load(folder(kind))
    seen = module.get_image_features([torch.zeros(3, 8 * 256, 8, dtype=torch.uint8)])[0]
    assert seen.dtype == torch.bfloat16
    assert seen[:, -2:].tolist() == [[y, 0] for y in range(256)]
    with pytest.raises(ValueError, match="2056 x 8 pixels: .* at most 2048"):
        module.get_image_features([torch.zeros(3, 8 * 257, 8, dtype=torch.uint8)])


@torch.inference_mode()
@pytest.mark.parametrize("left", [False, True])
def test_positions_are_those_of_the_class(module: QwenHF, reader: QwenHFProcessor, left: bool) -> None:
    rows = [row(reader, SIZES), row(reader, SIZES[:1], "another goal\n"), row(reader, SIZES[1:])]
    ids, mask = padded([one[0] for one in rows], left)
    pixels = [one for each in rows for one in each[2]]
    told = hf_inputs(module, ids, pixels)
    assert told["mm_token_type_ids"].sum() * 4 == len(told["pixel_values"])
    wanted, _ = module.model.get_rope_index(
        ids, told["mm_token_type_ids"], image_grid_thw=told["image_grid_thw"], attention_mask=mask
    )
    spots = torch.cat(list(module.get_image_features(pixels)))[:, -2:].long()
    assert torch.equal(mrope_position_ids(ids == reader.image_token_id, spots, mask, None), wanted)


@torch.inference_mode()
def test_logits_are_those_of_the_class(module: QwenHF, reader: QwenHFProcessor) -> None:
    rows = [row(reader, SIZES), row(reader, SIZES[:1], "another goal\n")]
    ids, mask = padded([one[0] for one in rows])
    pixels = rows[0][2] + rows[1][2]
    told = hf_inputs(module, ids, pixels)
    wanted = module.hf_model(input_ids=ids, attention_mask=mask, **told).logits[mask]
    assert torch.allclose(module(ids, pixels, mask).logits[mask], wanted, atol=1e-5)
    assert torch.allclose(
        module(ids, features=module.get_image_features(pixels), attention_mask=mask).logits[mask],
        wanted,
        atol=1e-5,
    )
    told["image_grid_thw"] = told["image_grid_thw"][:, [0, 2, 1]]
    turned = module.hf_model(input_ids=ids, attention_mask=mask, **told).logits[mask]
    assert not torch.allclose(turned, wanted, atol=1e-2)  # so rows and columns matter here


@torch.inference_mode()
def test_text_alone(module: QwenHF, reader: QwenHFProcessor) -> None:
    ids = torch.tensor([reader.encode("tap at 5 5 and go home")])
    assert torch.allclose(module(ids).logits, module.hf_model(input_ids=ids).logits, atol=1e-5)


@torch.inference_mode()
def test_screens_are_seen_alone_and_together(module: QwenHF, reader: QwenHFProcessor) -> None:
    shown = [torch.from_numpy(reader.pixel_values(screen(i))) for i in range(3)]
    together = module.get_image_features(torch.stack(shown))
    assert isinstance(together, Tensor)
    for one, alone in zip(together, shown, strict=True):
        assert torch.allclose(one, module.get_image_features([alone])[0], atol=1e-5)
    places = module.config.vision_config
    levels = 1 + len(getattr(places, "deepstack_visual_indexes", ()))
    assert together.shape == (3, len(reader.image_token_ids(screen(0))) - 2, levels * 32 + 2)
    with pytest.raises(ValueError, match="9 x 16 pixels: both sides must be multiples of 8"):
        module.get_image_features(torch.zeros(1, 3, 9, 16, dtype=torch.uint8))


def test_places_and_screens_must_agree(module: QwenHF, reader: QwenHFProcessor) -> None:
    ids, _, pixels = row(reader, SIZES)
    each = [len(reader.image_token_ids(screen(0, *shape))) - 2 for shape in SIZES]
    assert len(set(each)) > 1
    with pytest.raises(ValueError, match=f"{sum(each)} placeholders, .* {each[0]} visual tokens"):
        module(ids, pixels[:1])
    with pytest.raises(ValueError, match=f"{sum(each)} placeholders, .* 0 visual tokens"):
        module(ids)
    with pytest.raises(ValueError, match="placeholders is not that of its visual tokens"):
        module(ids, pixels[::-1])  # as many in sum
    first = int((ids[0] == reader.image_token_id).nonzero()[1])
    ids[0, [first, 0]] = ids[0, [0, first]]
    with pytest.raises(ValueError, match="placeholders is not that of its visual tokens"):
        module(ids, pixels)


def test_a_process_without_screens_runs_the_vision_tower_too(module: QwenHF, reader: QwenHFProcessor) -> None:
    module.train()
    ids = torch.tensor([reader.encode("tap at 5 5")])
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        with_tower = module(ids)
    finally:
        torch.distributed.destroy_process_group()
    with_tower.logits.sum().backward()
    weight = module.model.visual.patch_embed.proj.weight
    assert weight.grad is not None
    assert float(weight.grad.abs().max()) == 0
    assert torch.equal(with_tower.logits, module(ids).logits)
