"""Qwen2-VL and later: the processor's pixels, visual token budgets and token ids."""

import itertools
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from tests.helpers.hf_checkpoints import CLIP, HALF, PLAIN, SPECIAL, tokenizer_json
from tests.helpers.qwen_hf_rows import large_episode, screen
from tests.helpers.tiny_models import episode
from uivlm.episodes.encode import encode
from uivlm.episodes.sentence import PromptFormat, ScreenPiece
from uivlm.models.pretrained import RGBFloats
from uivlm.models.qwen_hf import files
from uivlm.models.qwen_hf.model import QwenHF
from uivlm.models.qwen_hf.processor import QwenHFProcessor, VisualTokenBudget, smart_resize

ROUNDING = 5e-7  # of float32: normalized colors are at most 3


@pytest.mark.parametrize("kind", ["Qwen2VL"], indirect=True)  # patches are cut alike for all three
@pytest.mark.parametrize("shape", [(96, 41), (412, 732), (30, 30), (5, 90), (64, 64), (251, 27)])
@pytest.mark.parametrize(("patch", "scale"), [(14, CLIP), (16, HALF)])
def test_pixels_are_those_of_transformers(
    module: QwenHF, shape: tuple[int, int], patch: int, scale: tuple[RGBFloats, RGBFloats]
) -> None:
    """Those of its processor that runs without torchvision, but for the rounding of float32."""
    module.patch_size, module.merge_size, module.temporal_patch_size = patch, 2, 2
    module.mean, module.std = scale
    shown, sight = screen(1, *shape), VisualTokenBudget(max_tokens=60, min_tokens=9)
    area = (2 * patch) ** 2
    theirs = Qwen2VLImageProcessorPil(
        patch_size=patch,
        image_mean=scale[0],
        image_std=scale[1],
        size={"shortest_edge": 9 * area, "longest_edge": 60 * area},
    )(shown.screen.pixels, return_tensors="pt")
    module.config.vision_config.patch_size = patch
    ours = QwenHFProcessor(Tokenizer.from_str(tokenizer_json()), module.config, 0, 0, sight)
    values, grids = module.to_patches(torch.from_numpy(ours.pixel_values(shown))[None])
    assert torch.equal(grids, theirs["image_grid_thw"])
    assert torch.allclose(values, theirs["pixel_values"], rtol=0, atol=ROUNDING)
    assert len(ours.image_token_ids(shown)) == int(grids.prod()) // 4 + 2


@pytest.mark.parametrize(
    ("shape", "counts"),
    [
        ((732, 412), (252, 390, 390, 252, 299, 299)),
        ((1280, 720), (252, 480, 1196, 252, 480, 880)),
        ((2400, 1080), (230, 495, 1272, 230, 495, 1272)),
        ((3120, 1440), (230, 495, 1248, 230, 495, 1248)),
    ],
)
def test_tokens_of_a_phone(shape: tuple[int, int], counts: tuple[int, ...]) -> None:
    asked = itertools.product((28, 32), (256, 512, 1280))
    for (factor, most), wanted in zip(asked, counts, strict=True):
        height, width = smart_resize(*shape, factor, 4, most)
        assert height * width == wanted * factor**2


def test_sizes_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="10 x 2001 pixels: its aspect ratio must be at most 200 : 1"):
        smart_resize(10, 2001, 28, 4, 512)
    with pytest.raises(ValueError, match="min_tokens: got 0"):
        VisualTokenBudget(min_tokens=0)
    with pytest.raises(ValueError, match="max_tokens_by_age: got 600; expected min_tokens, 4"):
        VisualTokenBudget(max_tokens=512, max_tokens_by_age=(256, 600))


TWENTY = episode(0, 20)


def seen_ages(grammar: PromptFormat, t: int) -> list[int]:
    return [piece.age for piece in grammar.prompt(TWENTY.history(t)) if isinstance(piece, ScreenPiece)]


def test_ages_count_back_from_the_first_action_of_the_window() -> None:
    assert seen_ages(PromptFormat(max_screens=4), 3) == [0, 0, 0, 0]
    assert seen_ages(PromptFormat(max_screens=4), 4) == [
        2,
        1,
        0,
    ]  # the window begins at step 2 and acts from step 4 on
    assert seen_ages(PromptFormat(max_screens=4), 5) == [2, 1, 0, 0]
    assert seen_ages(PromptFormat(max_screens=4), 6) == [2, 1, 0]
    assert seen_ages(PromptFormat(max_screens=1), 5) == [0]
    for screens, t in itertools.product(range(1, 7), range(20)):
        grammar = PromptFormat(max_screens=screens)
        found = next((a, b, c) for a, b, c in grammar.spans(20) if b <= t < c)
        assert seen_ages(grammar, t) == [max(0, found[1] - i) for i in range(found[0], t + 1)]
    assert [VisualTokenBudget(64, (16, 9)).max_tokens_at(age) for age in (0, 1, 2, 3)] == [64, 16, 9, 9]
    assert VisualTokenBudget(64).max_tokens_at(5) == 64


def tokens(reader: QwenHFProcessor, sentence: Any) -> list[int]:
    ids: list[int] = encode(sentence, reader, with_pixels=False).input_ids.tolist()
    return ids


@pytest.mark.parametrize("kind", ["Qwen2_5_VL"], indirect=True)
def test_a_prompt_is_the_sentence_cut_before_the_action(folder: Callable[[str], Path], kind: str) -> None:
    """Also if older screens are shrunk: each equals a screen of a processor with that budget alone."""
    grammar, of = PromptFormat(max_screens=4), large_episode(7)
    reader = files.load_processor(folder(kind), VisualTokenBudget(max_tokens=40, max_tokens_by_age=(20, 10)))
    seen: set[int] = set()
    for window, (start, first, stop) in zip(grammar.windows(of), grammar.spans(len(of.steps)), strict=True):
        sentence = grammar.sentence(window)
        whole = encode(sentence, reader)
        for t in range(first, stop):
            ids = tokens(reader, grammar.prompt(of.history(t)))
            assert whole.input_ids[: len(ids)].tolist() == ids
            said = [*reader.encode(grammar.action_text.format(of.steps[t].action)), reader.eos_id]
            assert whole.input_ids[len(ids) : len(ids) + len(said)].tolist() == said
        for step, age, pixels, count in zip(
            of.steps[start:stop],
            seen_ages(grammar, stop - 1),
            whole.pixels,
            whole.num_visual_tokens,
            strict=True,
        ):
            alone = files.load_processor(folder(kind), VisualTokenBudget(max_tokens=(40, 20, 10)[age]))
            assert np.array_equal(pixels, alone.pixel_values(ScreenPiece(step.screen)))
            assert pixels[0].size == count * reader.factor**2
            seen.add(count)
    assert len(seen) == 3


@cache
def plain_reader(root: Path) -> QwenHFProcessor:
    return files.load_processor(root)


@pytest.mark.parametrize("kind", ["Qwen3VL"], indirect=True)
@given(text=st.text() | st.lists(st.sampled_from([*SPECIAL, *PLAIN, "a", " "])).map("".join))
def test_text_never_yields_control_tokens(folder: Callable[[str], Path], kind: str, text: str) -> None:
    reader = plain_reader(folder(kind))
    ids = reader.encode(text)
    assert not reader.special_ids & set(ids)
    assert all(map(reader.is_text_token, ids))
    assert reader.decode(ids) == text


def test_reader_reads_text_and_screens(reader: QwenHFProcessor) -> None:
    ids = Tokenizer.from_str(tokenizer_json()).get_vocab()
    shown = reader.image_token_ids(screen(0))
    places = [
        ids["<|image_pad|>"]
    ] * 10  # 40 x 20 pixels become 5 x 2 tokens of 8 x 8: 2.5 is rounded to even
    assert shown == [ids["<|vision_start|>"], *places, ids["<|vision_end|>"]]
    assert (reader.eos_id, reader.pad_id, reader.max_length) == (
        ids["<|im_end|>"],
        ids["<|endoftext|>"],
        4096,
    )
    pixels = reader.pixel_values(screen(0))
    assert (pixels.shape, pixels.dtype) == ((3, 40, 16), np.uint8)
    said = reader.encode("press <tool_call>")
    assert reader.decode([*said, reader.eos_id, *shown]) == "press <tool_call>"
    assert not any(map(reader.is_text_token, [*shown, reader.eos_id, ids["<tool_call>"], len(ids), -1]))
