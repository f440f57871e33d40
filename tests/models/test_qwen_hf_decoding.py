"""Qwen2-VL and later: decoding with a cached prefix or with left padding gives the same output."""

import itertools
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from tests.helpers.engines import next_logits
from tests.helpers.hf_generate import generate_qwen_hf
from tests.helpers.qwen_hf_rows import SIZES, padded, row
from tests.helpers.tiny_models import episode
from uivlm.episodes.encode import encode
from uivlm.episodes.sentence import PromptFormat
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import LoadedCheckpoint
from uivlm.models.qwen_hf.model import QwenHF
from uivlm.models.qwen_hf.processor import QwenHFProcessor


@torch.inference_mode()
@pytest.mark.parametrize("cut", [1, 4, 5, 9, 14, 15, 30, 33])
def test_a_kept_beginning_may_end_anywhere(module: QwenHF, reader: QwenHFProcessor, cut: int) -> None:
    """Also inside a screen: the rest of its features comes with the rest."""
    ids, _, pixels = row(reader, SIZES)
    past = DynamicCache()
    whole = module(ids, pixels, cache=past).logits[0]
    past.crop(cut - ids.shape[1])
    seen = int((ids[0, :cut] == reader.image_token_id).sum())
    rest = torch.cat(list(module.get_image_features(pixels)))[seen:][None]
    parted = module(ids[:, cut:], features=rest, cache=past).logits[0]
    assert torch.allclose(parted, whole[cut:], atol=1e-4)


@pytest.mark.slow
@torch.inference_mode()
def test_acting_with_and_without_a_kept_beginning(module: QwenHF, reader: QwenHFProcessor) -> None:
    """Each step's prompt begins with the previous one; the class's own `generate` gives the same text."""
    of, grammar = episode(0, 5), PromptFormat(max_screens=3)
    loaded: Any = LoadedCheckpoint(module, reader, grammar, None, "small")  # type: ignore[arg-type]
    keeping, fresh = (
        TorchEngine(loaded, max_new_tokens=6),
        TorchEngine(loaded, max_new_tokens=6, use_cache=False),
    )
    for t in range(5):
        history = of.history(t)
        assert torch.allclose(next_logits(keeping, history), next_logits(fresh, history), atol=1e-4)
        assert keeping.predict(history).text == fresh.predict(history).text
        example = encode(grammar.prompt(history), reader)
        ids = torch.from_numpy(example.input_ids)[None]
        said = generate_qwen_hf(
            module,
            ids,
            [torch.from_numpy(screen) for screen in example.pixels],
            max_new_tokens=6,
            do_sample=False,
        )
        said = list(itertools.takewhile(reader.is_text_token, said[0, ids.shape[1] :].tolist()))
        assert reader.decode(said) == keeping.predict(history).text


@torch.inference_mode()
def test_cached_decoding_is_uncached_decoding(module: QwenHF, reader: QwenHFProcessor) -> None:
    ids, _, pixels = row(reader, SIZES)
    past = DynamicCache()
    logits = module(ids, pixels, cache=past).logits[0, -1]
    for _ in range(6):
        token = logits.argmax().reshape(1, 1)
        ids = torch.cat([ids, token if int(token) != reader.image_token_id else torch.tensor([[0]])], 1)
        logits = module(ids[:, -1:], cache=past).logits[0, -1]
        assert torch.allclose(logits, module(ids, pixels, logits_to_keep=1).logits[0, -1], atol=1e-4)


@torch.inference_mode()
def test_left_padded_rows_are_generated_as_if_alone(module: QwenHF, reader: QwenHFProcessor) -> None:
    rows = [row(reader, SIZES), row(reader, SIZES[2:])]
    ids, mask = padded([one[0] for one in rows], left=True)
    asked: dict[str, Any] = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}
    both = generate_qwen_hf(module, ids, rows[0][2] + rows[1][2], attention_mask=mask.long(), **asked)
    for said, (alone, _, pixels) in zip(both, rows, strict=True):
        assert torch.equal(said[-4:], generate_qwen_hf(module, alone, pixels, **asked)[0, -4:])
