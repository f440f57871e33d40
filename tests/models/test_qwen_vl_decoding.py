"""Qwen-VL's decoding: cached prefixes and left padding do not change the output."""

from typing import Any

import pytest
import torch
from transformers import DynamicCache

from tests.helpers.engines import next_logits
from tests.helpers.hf_generate import generate_qwen_vl
from tests.helpers.qwen_vl_models import bytewise, prompt, small_qwen_vl
from tests.helpers.tiny_models import episode
from uivlm.episodes.sentence import PromptFormat
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import LoadedCheckpoint
from uivlm.models.qwen_vl.processor import QwenVLProcessor


@torch.inference_mode()
@pytest.mark.parametrize("cut", [3, 10, 11, 15, 19, 20, 40])
def test_a_kept_beginning_may_end_anywhere(cut: int) -> None:
    """Also inside a screen (the first one's places are 10 to 18): the rest of its features comes with the
    rest.
    """
    model, past = small_qwen_vl(), DynamicCache()
    ids, _, pixels = prompt(model.config)
    assert (ids[0, 10:19] == model.config.image_token_id).all()
    whole = model(ids, pixels, cache=past).logits[0]
    past.crop(cut - ids.shape[1])
    seen = int((ids[0, :cut] == model.config.image_token_id).sum())
    rest = model.get_image_features(pixels).flatten(0, 1)[None, seen:]
    parted = model(ids[:, cut:], features=rest if rest.shape[1] else None, cache=past).logits[0]
    assert torch.allclose(parted, whole[cut:], atol=1e-4)


def test_left_padded_rows_are_generated_as_if_alone() -> None:
    model = small_qwen_vl()
    (ids, _, pixels), (short, _, one) = prompt(model.config), prompt(model.config, 1)
    rows = torch.full((2, ids.shape[1]), 256)
    rows[0], rows[1, -short.shape[1] :] = ids[0], short[0]
    mask = (torch.arange(rows.shape[1]) >= torch.tensor([[0], [rows.shape[1] - short.shape[1]]])).int()
    asked: dict[str, Any] = {"max_new_tokens": 5, "do_sample": False}
    both = generate_qwen_vl(model, rows, pixels=torch.cat([pixels, one]), attention_mask=mask, **asked)
    assert torch.equal(both[0], generate_qwen_vl(model, ids, pixels=pixels, **asked)[0])
    assert torch.equal(both[1, -5:], generate_qwen_vl(model, short, pixels=one, **asked)[0, -5:])


@torch.inference_mode()
def test_kept_prefixes_change_no_answer() -> None:
    """As in the agent loop: each step's prompt begins with the previous prompt."""
    model, of = small_qwen_vl(seq_length=1024), episode(0, 4)
    loaded: Any = LoadedCheckpoint(
        model, QwenVLProcessor(bytewise(), model.config), PromptFormat(max_screens=3), None, "small"
    )  # type: ignore[arg-type]
    keeping, fresh = TorchEngine(loaded), TorchEngine(loaded, use_cache=False)
    for t in range(4):
        history = of.history(t)
        assert torch.allclose(next_logits(keeping, history), next_logits(fresh, history), atol=1e-4)
        assert keeping.predict(history).text == fresh.predict(history).text
