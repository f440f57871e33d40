"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: ours against transformers' classes used as their documentation says.

Tiny random checkpoints are written in the hub's format (names of weights and fields as published) and loaded
as any.
"""

import itertools
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig as PeftLora
from peft import PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor
from transformers import DynamicCache
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from tests.helpers.engines import next_logits
from tests.helpers.hf_checkpoints import CLIP, HALF, KINDS, PLAIN, SPECIAL, tokenizer_json, write
from tests.helpers.hf_generate import generate_qwen_hf, hf_inputs
from tests.helpers.tiny_models import episode, prepare
from uivlm import recipe as recipes
from uivlm.episodes.encode import IGNORE, encode
from uivlm.episodes.episode import Episode, Screen, Step
from uivlm.episodes.sentence import PromptFormat, ScreenPiece
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import LoadedCheckpoint, load_checkpoint
from uivlm.models import adapters as lora
from uivlm.models import pretrained
from uivlm.models.multimodal import token_losses
from uivlm.models.quantize import quantization_options
from uivlm.models.qwen_hf import files
from uivlm.models.qwen_hf.model import QwenHF, lora_targets
from uivlm.models.qwen_hf.positions import mrope_position_ids
from uivlm.models.qwen_hf.processor import Normalizer, QwenHFProcessor, VisualTokenBudget, smart_resize
from uivlm.training.checkpoint import save_base_checkpoint
from uivlm.training.collator import LOG_ONLY_KEYS, Collator
from uivlm.training.dataset import encode_window
from uivlm.training.train import train


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return cache(lambda kind: write(tmp_path_factory.mktemp(kind) / "base", kind))


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def module(folder: Callable[[str], Path], kind: str) -> QwenHF:
    return files.load(folder(kind), torch.float32)


@pytest.fixture
def reader(folder: Callable[[str], Path], kind: str) -> QwenHFProcessor:
    return files.load_processor(folder(kind), VisualTokenBudget(max_tokens=12))


def screen(seed: int, height: int = 40, width: int = 20) -> ScreenPiece:
    return ScreenPiece(Screen(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)))


SIZES = ((40, 20), (22, 33), (16, 16))


def row(
    reader: QwenHFProcessor, sizes: tuple[tuple[int, int], ...], goal: str = "go\n"
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Ids and labels [1, T], and the screens' pixels [3, h, w], of other sizes each."""
    ids, labels, pixels = reader.encode(goal), [IGNORE] * len(reader.encode(goal)), []
    for i, (height, width) in enumerate(sizes):
        shown = screen(i, height, width)
        said = [*reader.encode(f"tap at {i} 5"), reader.eos_id]
        ids += [*reader.image_token_ids(shown), *said]
        labels += [IGNORE] * len(reader.image_token_ids(shown)) + said
        pixels.append(torch.from_numpy(reader.pixel_values(shown)))
    return torch.tensor([ids]), torch.tensor([labels]), pixels


def padded(rows: list[Tensor], left: bool = False) -> tuple[Tensor, Tensor]:
    """Ids and mask [B, T] of rows [1, T]."""
    longest = max(one.shape[1] for one in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros(len(rows), longest, dtype=torch.bool)
    for i, one in enumerate(rows):
        at = slice(longest - one.shape[1], None) if left else slice(one.shape[1])
        ids[i, at], mask[i, at] = one[0], True
    return ids, mask


# -- pixels


@pytest.mark.parametrize("kind", ["Qwen2VL"], indirect=True)  # patches are cut alike for all three
@pytest.mark.parametrize("shape", [(96, 41), (412, 732), (30, 30), (5, 90), (64, 64), (251, 27)])
@pytest.mark.parametrize(("patch", "scale"), [(14, CLIP), (16, HALF)])
def test_pixels_are_those_of_transformers(
    module: QwenHF, shape: tuple[int, int], patch: int, scale: Normalizer
) -> None:
    """Bit for bit those of its processor that runs without torchvision."""
    module.patch_size, module.merge_size, module.temporal_patch_size = patch, 2, 2
    shown, sight = screen(1, *shape), VisualTokenBudget(max_tokens=60, min_tokens=9)
    area = (2 * patch) ** 2
    theirs = Qwen2VLImageProcessorPil(
        patch_size=patch,
        image_mean=scale.mean,
        image_std=scale.std,
        size={"shortest_edge": 9 * area, "longest_edge": 60 * area},
    )(shown.screen.pixels, return_tensors="pt")
    module.config.vision_config.patch_size = patch
    ours = QwenHFProcessor(Tokenizer.from_str(tokenizer_json()), module.config, scale, 0, 0, sight)
    values, grids = module.to_patches(torch.from_numpy(ours.pixel_values(shown))[None])
    assert torch.equal(grids, theirs["image_grid_thw"])
    assert torch.equal(values, theirs["pixel_values"])
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


# -- the budget by age


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


TWENTY = episode(0, 20)


def seen_ages(grammar: PromptFormat, t: int) -> list[int]:
    return [piece.age for piece in grammar.prompt(TWENTY.history(t)) if isinstance(piece, ScreenPiece)]


def big(num_steps: int) -> Episode:
    small = episode(0, num_steps)
    steps = tuple(Step(screen(t, 90, 50).screen, step.action) for t, step in enumerate(small.steps))
    return Episode(small.id, small.goal, small.subset, steps)


@pytest.mark.parametrize("kind", ["Qwen2_5_VL"], indirect=True)
def test_a_prompt_is_the_sentence_cut_before_the_action(folder: Callable[[str], Path], kind: str) -> None:
    """Also with older screens shrunk: each is as if that budget were the only one."""
    grammar, of = PromptFormat(max_screens=4), big(7)
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


def tokens(reader: QwenHFProcessor, sentence: Any) -> list[int]:
    ids: list[int] = encode(sentence, reader, with_pixels=False).input_ids.tolist()
    return ids


# -- positions


def test_positions_written_by_hand() -> None:
    """Two words, a screen of 2 rows and 3 columns, two words: time, row, column."""
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
    seen = module.get_image_features([torch.zeros(3, 8 * 256, 8)])[0]
    assert seen.dtype == torch.bfloat16
    assert seen[:, -2:].tolist() == [[y, 0] for y in range(256)]
    with pytest.raises(ValueError, match="2056 x 8 pixels: .* at most 2048"):
        module.get_image_features([torch.zeros(3, 8 * 257, 8)])


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
        module.get_image_features(torch.zeros(1, 3, 9, 16))


# -- reading in parts, and saying


@torch.inference_mode()
@pytest.mark.parametrize("cut", [1, 4, 5, 9, 14, 15, 30, 33])
def test_a_kept_beginning_may_end_anywhere(module: QwenHF, reader: QwenHFProcessor, cut: int) -> None:
    """Also inside a screen: the rest of its features comes with the rest."""
    ids, _, pixels = row(reader, SIZES)
    past = DynamicCache()
    whole = module(ids, pixels, past_key_values=past).logits[0]
    past.crop(cut - ids.shape[1])
    seen = int((ids[0, :cut] == reader.image_token_id).sum())
    rest = torch.cat(list(module.get_image_features(pixels)))[seen:][None]
    parted = module(ids[:, cut:], features=rest, past_key_values=past).logits[0]
    assert torch.allclose(parted, whole[cut:], atol=1e-4)


@torch.inference_mode()
def test_acting_with_and_without_a_kept_beginning(module: QwenHF, reader: QwenHFProcessor) -> None:
    """Each step's prompt begins with the one before; and the class's own `generate` says the same words."""
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
    logits = module(ids, pixels, past_key_values=past).logits[0, -1]
    for _ in range(6):
        token = logits.argmax().reshape(1, 1)
        ids = torch.cat([ids, token if int(token) != reader.image_token_id else torch.tensor([[0]])], 1)
        logits = module(ids[:, -1:], past_key_values=past).logits[0, -1]
        assert torch.allclose(logits, module(ids, pixels, logits_to_keep=1).logits[0, -1], atol=1e-4)


@torch.inference_mode()
def test_left_padded_rows_are_generated_as_if_alone(module: QwenHF, reader: QwenHFProcessor) -> None:
    rows = [row(reader, SIZES), row(reader, SIZES[2:])]
    ids, mask = padded([one[0] for one in rows], left=True)
    asked: dict[str, Any] = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}
    both = generate_qwen_hf(module, ids, rows[0][2] + rows[1][2], attention_mask=mask.long(), **asked)
    for said, (alone, _, pixels) in zip(both, rows, strict=True):
        assert torch.equal(said[-4:], generate_qwen_hf(module, alone, pixels, **asked)[0, -4:])


# -- training


@torch.inference_mode()
def test_rows_of_a_batch_and_their_loss(module: QwenHF, reader: QwenHFProcessor) -> None:
    """As training does it: sentence, example, row, batch, loss; against the full logits of each row alone."""
    grammar, rows, wanted = PromptFormat(max_screens=4), [], 0.0
    for seed, steps in ((0, 1), (1, 3)):
        (window,) = grammar.windows(episode(seed, steps))
        made = encode_window(
            window, first_window=True, prompt_format=grammar, processor=reader, episode_id=""
        )
        rows.append(made)
        logits = module(
            torch.from_numpy(made.input_ids)[None], [torch.from_numpy(screen) for screen in made.pixels or ()]
        ).logits[0]
        chances = logits.log_softmax(-1)
        trained = [(i - 1, label) for i, label in enumerate(made.labels.tolist()) if label != IGNORE]
        assert trained
        wanted -= sum(float(chances[i, label]) for i, label in trained)
    batch: dict[str, Any] = Collator(reader.pad_id, reader.image_token_id)(rows)
    inputs = {name: part for name, part in batch.items() if name not in LOG_ONLY_KEYS}
    found = token_losses(module(**inputs), batch["labels"]).sum()
    assert float(found) == pytest.approx(wanted, rel=1e-5)


def test_lora_trains_the_language_tower_alone(module: QwenHF, reader: QwenHFProcessor) -> None:
    pattern = lora_targets(module)
    parts = [f"self_attn.{x}_proj" for x in "qkvo"] + [f"mlp.{x}_proj" for x in ("gate", "up", "down")]
    wanted = {f"model.language_model.layers.{i}.{part}" for i in (0, 1) for part in parts}
    found = lora.lora_layers(module, pattern)
    assert set(found) == wanted
    assert "2 x model.language_model.layers.*.mlp.down_proj" in lora.summarize_layers(found).splitlines()
    assert len(lora.summarize_layers(found).splitlines()) == len(parts)
    ids, labels, pixels = row(reader, SIZES)
    before = module(ids, pixels, labels=labels).logits.detach()
    model = get_peft_model(module, PeftLora(r=2, lora_alpha=4, target_modules=pattern))
    assert isinstance(model, PeftModel)
    for name, value in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(value, std=0.1)
    model.train()
    module.gradient_checkpointing_enable()
    module.enable_input_require_grads()
    token_losses(model(ids, pixels=pixels, labels=labels), labels).sum().backward()
    trained = {
        name for name, value in model.named_parameters() if value.grad is not None and value.grad.any()
    }
    assert trained == {f"base_model.model.{name}.lora_{x}.default.weight" for name in wanted for x in "AB"}
    after = model.eval()(ids, pixels=pixels).logits.detach()
    assert not torch.allclose(model(ids, pixels=pixels, labels=labels).logits, before, atol=1e-3)
    told = hf_inputs(module, ids, pixels)
    assert torch.allclose(
        module.hf_model(input_ids=ids, **told).logits, after, atol=1e-5
    )  # adapters are there too


@torch.inference_mode()
def test_adapters_travel_as_files(
    module: QwenHF, folder: Callable[[str], Path], kind: str, reader: QwenHFProcessor
) -> None:
    """In PEFT's names, which are those of the class: they fit a model that was never wrapped here."""
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
            lora.lora_layers(module, r".*\.(gate|up|down)_proj")
    with pytest.raises(ValueError, match="the vision encoder stays frozen"):
        lora.lora_layers(module, r".*attn\.(qkv|q_proj)")


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


# -- places and screens


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


# -- the reader


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
    assert reader.pixel_values(screen(0)).shape == (3, 40, 16)
    said = reader.encode("press <tool_call>")
    assert reader.decode([*said, reader.eos_id, *shown]) == "press <tool_call>"
    assert not any(map(reader.is_text_token, [*shown, reader.eos_id, ids["<tool_call>"], len(ids), -1]))


# -- files


@torch.inference_mode()
def test_a_saved_model_is_the_same_model(
    tmp_path: Path, folder: Callable[[str], Path], kind: str, module: QwenHF, reader: QwenHFProcessor
) -> None:
    files.save(tmp_path / "saved", module, folder(kind))
    again = files.load(tmp_path / "saved", torch.float32)
    ids, _, pixels = row(reader, SIZES)
    assert torch.equal(again(ids, pixels).logits, module(ids, pixels).logits)
    wanted, found = (load_file(root / "model.safetensors") for root in (folder(kind), tmp_path / "saved"))
    assert wanted.keys() == found.keys()
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    assert files.load(tmp_path / "saved").lm_head.weight.dtype == torch.bfloat16
    assert files.load_processor(tmp_path / "saved").encode("tap at 1 2") == reader.encode("tap at 1 2")
    told = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert told["architectures"] == [f"{kind}ForConditionalGeneration"]
    with pytest.raises(ValueError, match="already exists"):
        files.save(tmp_path / "saved", module, folder(kind))


def test_weights_have_the_names_of_the_class(module: QwenHF) -> None:
    assert module.state_dict().keys() == module.hf_model.state_dict().keys()
    assert sum(1 for _ in module.parameters()) == sum(1 for _ in module.hf_model.parameters())


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def damage(root: Path, what: str) -> None:
    weights = load_file(root / "model.safetensors")
    name = "visual.patch_embed.proj.weight"
    match what:
        case "torn":
            file = root / "model.safetensors"
            file.write_bytes(file.read_bytes()[:5000])
        case "missing":
            save_file({n: v for n, v in weights.items() if n != name}, root / "model.safetensors")
        case "more":
            save_file(weights | {"extra.weight": torch.zeros(1)}, root / "model.safetensors")
        case "shape":
            save_file(weights | {name: torch.zeros(3)}, root / "model.safetensors")
        case "no weights":
            (root / "model.safetensors").unlink()
        case "no config":
            (root / "config.json").unlink()
        case "config":
            (root / "config.json").write_text("{")
        case "architecture":
            edit(root / "config.json", architectures=["LlamaForCausalLM"])
        case "heads":
            edit(root / "config.json", num_attention_heads="two")
        case "no tokenizer":
            (root / "tokenizer.json").unlink()
        case "tokenizer":
            (root / "tokenizer.json").write_text('{"version": "1.0"}')
        case "ids":
            edit(root / "config.json", image_token_id=7)
        case "vocabulary":
            edit(root / "config.json", vocab_size=100)
        case "ends":
            edit(root / "tokenizer_config.json", eos_token=None)
        case "no pixels":
            (root / "preprocessor_config.json").unlink()
        case "pixels":
            edit(root / "preprocessor_config.json", image_std=[1, 1])
        case "patch":
            edit(root / "preprocessor_config.json", patch_size=14)
        case _:
            raise AssertionError(what)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("torn", "Qwen2_5_VLForConditionalGeneration in .* cannot be loaded"),
        ("missing", "1 missing keys, such as .*patch_embed.proj.weight"),
        ("more", "1 unexpected keys, such as extra.weight"),
        ("shape", "cannot be loaded|mismatched"),
        ("no weights", "cannot be loaded"),
        ("no config", "does not contain a Qwen2-VL or later: it has no config.json"),
        ("config", "config.json is not JSON"),
        ("architecture", "architectures: got LlamaForCausalLM; expected one of Qwen2VLFor"),
        ("heads", "cannot be loaded|does not describe"),
        ("no tokenizer", "it has no tokenizer.json"),
        ("tokenizer", "cannot be read as a tokenizer"),
        ("ids", "image_token_id is 7, not a control token"),
        ("vocabulary", "the model only 100 embeddings"),
        ("ends", "eos_token is None, not a control token"),
        ("no pixels", "it has no preprocessor_config.json"),
        ("pixels", "has no image_mean and image_std"),
        ("patch", "patch_size: got 14; expected 4, as in config.json"),
    ],
)
def test_a_broken_folder_says_so(tmp_path: Path, what: str, says: str) -> None:
    root = write(tmp_path / "base", "Qwen2_5_VL")
    damage(root, what)

    def both() -> None:
        files.load_processor(root)
        files.load(root)

    with pytest.raises(ValueError, match=says) as raised:
        both()
    assert "\n" not in str(raised.value)
    assert re.search(re.escape(str(tmp_path)), str(raised.value))


def test_scale_may_lie_in_the_newer_file(tmp_path: Path) -> None:
    root = write(tmp_path / "base", "Qwen3VL")
    told = json.loads((root / "preprocessor_config.json").read_text())
    (root / "preprocessor_config.json").unlink()
    (root / "processor_config.json").write_text(json.dumps({"image_processor": told}))
    assert files.load_processor(root).normalizer == HALF


def test_a_hub_id_is_fetched(monkeypatch: pytest.MonkeyPatch, folder: Callable[[str], Path]) -> None:
    asked = []

    def given_by_hub(name: str, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(folder("Qwen3VL"))

    monkeypatch.setattr(pretrained, "snapshot_download", given_by_hub)
    assert files.load("Qwen/Qwen3-VL-2B-Instruct").config.model_type == "qwen3_vl"
    assert files.load_processor("Qwen/Qwen3-VL-2B-Instruct").max_length == 4096
    assert [name for name, _ in asked] == ["Qwen/Qwen3-VL-2B-Instruct"] * 2
    assert {"config.json", "tokenizer.json", "preprocessor_config.json"} <= set(asked[0][1])


# -- the whole way


def part(folder: Path, data: Path, **model: Any) -> recipes.Recipe:
    grammar = recipes.PromptArgs(max_screens=3, max_past_actions=3)
    train = recipes.TrainArgs(per_device_batch_size=2, precision="float32")
    sight = {
        "max_visual_tokens": 40,
        "max_visual_tokens_by_age": (20, 9),
        "lora": recipes.LoraArgs(2, 4, 0.0),
    }
    return recipes.Recipe(
        "small",
        recipes.QwenHFArgs(str(folder), **(sight | model)),
        grammar,
        recipes.DataArgs(str(data)),
        train,
        recipes.OptimArgs(lr=1e-3),
    )


@pytest.mark.parametrize("lora", [recipes.LoraArgs(2, 4, 0.0), None], ids=["lora", "full"])
def test_a_trained_checkpoint_acts(
    tmp_path: Path, folder: Callable[[str], Path], kind: str, lora: recipes.LoraArgs | None
) -> None:
    """Screens of several sizes, smaller as they age: train, save, load, decode with and without cache."""
    data = prepare(tmp_path / "data", [big(5), episode(1, 4), episode(2, 2)])
    train(part(folder(kind), data, lora=lora), tmp_path / "out")
    save_base_checkpoint(part(folder(kind), data, lora=lora), tmp_path / "base")
    losses = [json.loads(line)["loss"] for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert len(losses) == 3
    assert all(map(math.isfinite, losses))
    tuned, untuned = load_checkpoint(tmp_path / "out"), load_checkpoint(tmp_path / "base")
    keeping, fresh = (
        TorchEngine(tuned, max_new_tokens=6),
        TorchEngine(tuned, max_new_tokens=6, use_cache=False),
    )
    for t in range(5):
        history = big(5).history(t)
        assert torch.allclose(next_logits(keeping, history), next_logits(fresh, history), atol=1e-3)
        assert keeping.predict(history).text == fresh.predict(history).text
        assert not torch.allclose(next_logits(keeping, history), next_logits(TorchEngine(untuned), history))
    ages = [
        piece.age for piece in tuned.prompt_format.prompt(big(5).history(4)) if isinstance(piece, ScreenPiece)
    ]
    assert ages == [2, 1, 0]


def test_kept_features_train_alike(
    tmp_path: Path, folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uivlm.training.feature_cache.SCREENS_PER_FORWARD", 4)
    data = prepare(tmp_path / "data", [big(5), episode(1, 4), episode(2, 2)])
    losses = []
    for keep in (False, True):
        wanted = part(folder("Qwen3VL"), data, max_visual_tokens_by_age=())
        out = tmp_path / f"{keep}"
        train(replace(wanted, train=replace(wanted.train, cache_vision_features=keep)), out)
        losses.append([json.loads(line)["loss"] for line in (out / "log.jsonl").read_text().splitlines()])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_the_vision_tower_is_never_quantised(folder: Callable[[str], Path], kind: str) -> None:
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    kept = quantization_options("nf4", torch.float32)
    module = files.load(folder(kind), torch.float32, **kept)
    names = {name for name, one in module.named_modules() if type(one).__name__ == "Linear4bit"}
    assert names == set(lora.lora_layers(module, lora_targets(module)))
