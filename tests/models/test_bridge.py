"""The bridge, its folder, LoRA, and Qwen-VL as a recipe builds it: shapes, closed forms, what is trained,
what is refused.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn

from tests.helpers.tiny_models import (
    PICTURE,
    base,
    bridge,
    config,
    episode,
    prepare,
    qwen_base,
    qwen_recipe,
    recipe,
    tokenizer,
)
from uivlm.episodes.encode import IGNORE, encode
from uivlm.episodes.episode import Screen
from uivlm.episodes.sentence import PromptFormat, ScreenPiece
from uivlm.models import adapters, quantize
from uivlm.models.bridge.files import load_base, save_base
from uivlm.models.bridge.model import BridgeProcessor, LlamaVit
from uivlm.models.build import build, prompt_format
from uivlm.models.loaded_model import LoadedModel
from uivlm.models.multimodal import token_losses
from uivlm.recipe import LlamaVitArgs, Recipe, from_dict, to_dict
from uivlm.training import checkpoint
from uivlm.training.train import train

FIRST = tokenizer().get_vocab_size()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    root = tmp_path_factory.mktemp("small")
    return recipe(base(root / "base"), prepare(root / "data", [episode(0, 3)]))


@pytest.mark.parametrize(("visual_tokens", "tokens"), [("pooled", 1), ("grid", 4), ("all", 24)])
def test_visual_tokens(visual_tokens: str, tokens: int) -> None:
    model = bridge(visual_tokens)
    assert model.get_image_features(torch.zeros(2, 3, 48, 32)).shape == (2, tokens, 24)
    assert (
        len(
            BridgeProcessor(tokenizer(), model.config).image_token_ids(
                ScreenPiece(episode(0, 1).steps[0].screen)
            )
        )
        == tokens
    )


def test_busy_are_the_patches_that_show_something() -> None:
    """A line through the second patch of the third row, a shade too faint to matter in the fourth: the first
    patch always counts, so a black screen has one token.
    """
    pixels = np.full((96, 64, 3), 200, np.uint8)  # 6 x 4 patches of 16 x 16
    pixels[40, 16:32] = 0
    pixels[50, 2] = 195
    lined, black = (ScreenPiece(Screen(one)) for one in (pixels, np.zeros_like(pixels)))
    model, whole = bridge("non_blank"), bridge("all")
    whole.load_state_dict(model.state_dict())
    reader = BridgeProcessor(tokenizer(), model.config)
    assert [len(reader.image_token_ids(one)) for one in (lined, black)] == [2, 1]
    seen = torch.from_numpy(np.stack([reader.pixel_values(one) for one in (lined, black)]))
    for one, kept in zip(model.get_image_features(seen), ([0, 9], [0]), strict=True):
        of = 0 if len(kept) == 2 else 1
        assert torch.equal(one, whole.get_image_features(seen)[of][kept])
    assert len(model.get_image_features(seen.bfloat16().float())[0]) == 2  # rounding makes no patch busy


def test_grid_is_the_mean_of_its_patches() -> None:
    """6 x 4 patches in 2 x 2 cells: each the mean of 3 x 2 patches, CLS left out, rows before columns."""
    pixels = torch.rand(2, 3, 48, 32)
    patches = bridge("all").get_image_features(pixels).reshape(2, 6, 4, 24)
    cells = [patches[:, 3 * r : 3 * r + 3, 2 * c : 2 * c + 2].mean((1, 2)) for r in (0, 1) for c in (0, 1)]
    assert torch.allclose(bridge("grid").get_image_features(pixels), torch.stack(cells, 1), atol=1e-6)


def test_reader_gives_vits_own_pixels() -> None:
    """One colour stays that colour: 2 x / 255 - 1."""
    reader = BridgeProcessor(tokenizer(), config())
    pixels = np.broadcast_to(np.array([0, 51, 255], np.uint8), (60, 30, 3)).copy()
    seen = reader.pixel_values(ScreenPiece(Screen(pixels)))
    assert seen.shape == (3, 48, 32)
    assert np.allclose(seen[:, 5, 7], [-1, -0.6, 1], atol=1e-6)


@pytest.mark.parametrize("size", [(96, 64), (601, 299), (48, 32), (20, 31)])
def test_screens_are_made_smaller_as_pillow_does(size: tuple[int, int]) -> None:
    """And larger. No value is more than one of 255 levels away, few are at all."""
    rng = np.random.default_rng(sum(size))
    pixels = rng.integers(0, 256, (*size, 3), np.uint8)
    pixels[: size[0] // 2] = 255 * rng.integers(0, 2, 3, np.uint8)
    pixels.setflags(write=False)
    seen = BridgeProcessor(tokenizer(), config()).pixel_values(ScreenPiece(Screen(pixels)))
    ours = np.round((seen.transpose(1, 2, 0) + 1) * 255 / 2)
    narrow = Image.fromarray(pixels).resize((32, size[0]), Image.Resampling.BICUBIC)
    # Width first: Pillow 13 alone begins with the height of a tall picture, and rounds other values in
    # between.
    theirs = np.asarray(narrow.resize((32, 48), Image.Resampling.BICUBIC), np.float32)
    apart = np.abs(ours - theirs)
    assert apart.max() <= 1
    assert (apart > 0).mean() < 0.005


def example_of(model: LlamaVit, num_steps: int = 4) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    spoken, of = PromptFormat(), episode(1, num_steps)
    example = encode(spoken.sentence(next(spoken.windows(of))), BridgeProcessor(tokenizer(), model.config))
    return (
        torch.tensor(example.input_ids)[None],
        torch.tensor(example.labels)[None],
        torch.tensor(np.stack(example.pixels)),
    )


@torch.inference_mode()
@pytest.mark.parametrize("visual_tokens", ["pooled", "grid", "all", "non_blank"])
def test_logits_of_trained_positions_are_those_of_the_full_forward(visual_tokens: str) -> None:
    model = bridge(visual_tokens)
    ids, labels, pixels = example_of(model)
    full = model(ids, pixels).logits[0]
    before = [i - 1 for i, label in enumerate(labels[0].tolist()) if label != IGNORE]
    some = model(ids, pixels, labels=labels)
    assert torch.allclose(some.logits, full[before], atol=1e-5)
    by_hand = torch.stack([-full[i].log_softmax(-1)[ids[0, i + 1]] for i in before])
    assert torch.allclose(token_losses(some, labels), by_hand, atol=1e-3)


@torch.inference_mode()
@pytest.mark.parametrize("right", [True, False])
def test_padding_on_either_side_leaves_the_loss_as_it_is(right: bool) -> None:
    model = bridge()
    (ids, labels, pixels), blank = example_of(model, 3), torch.full((1, 7), FIRST + 2)
    kept = torch.ones_like(ids, dtype=torch.bool)

    def padded(row: torch.Tensor, filler: torch.Tensor) -> torch.Tensor:
        return torch.cat([row, filler] if right else [filler, row], 1)

    mask = padded(kept, torch.zeros_like(blank, dtype=torch.bool))
    wide = padded(labels, torch.full_like(blank, IGNORE))
    outputs = model(padded(ids, blank), pixels, mask, wide)
    assert torch.allclose(
        token_losses(outputs, wide), token_losses(model(ids, pixels, labels=labels), labels), atol=1e-3
    )


@torch.inference_mode()
def test_padding_and_neighbours_change_nothing() -> None:
    model = bridge()
    (ids, _, pixels), (long, _, more) = example_of(model, 2), example_of(model, 4)
    rows = torch.full((2, long.shape[1]), FIRST + 2)
    rows[0, : ids.shape[1]], rows[1] = ids[0], long[0]
    mask = torch.zeros_like(rows, dtype=torch.bool)
    mask[0, : ids.shape[1]], mask[1] = True, True
    both = model(rows, torch.cat([pixels, more]), mask).logits
    assert torch.allclose(both[0, : ids.shape[1]], model(ids, pixels).logits[0], atol=1e-4)
    assert torch.allclose(both[1], model(long, more).logits[0], atol=1e-4)


def test_each_screen_stands_at_its_own_place() -> None:
    model = bridge()
    ids, _, pixels = example_of(model, 3)
    features = model.get_image_features(pixels)
    embeds = model.embed(ids, features)
    places = (ids[0] == FIRST + PICTURE).nonzero().flatten()
    assert torch.allclose(embeds[0, places], model.projection(features).flatten(0, 1))
    others = ids[0] != FIRST + PICTURE
    assert torch.equal(embeds[0, others], model.get_input_embeddings()(ids)[0, others])


@pytest.mark.parametrize(
    ("screens", "numbers"),
    [(2, "12 placeholders, .* 8 visual tokens"), (0, "12 placeholders, .* 0 visual tokens")],
)
def test_places_and_screens_must_agree(screens: int, numbers: str) -> None:
    model = bridge()
    ids, _, pixels = example_of(model, 3)
    with pytest.raises(ValueError, match=numbers):
        model(ids, pixels[:screens])


# -- the folder of a base


@torch.inference_mode()
@pytest.mark.parametrize("tied", [False, True])
def test_a_saved_base_is_the_same_base(tmp_path: Path, tied: bool) -> None:
    model = bridge(tie_word_embeddings=tied)
    ids, _, pixels = example_of(model)
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "README.md").write_text("kept")
    save_base(tmp_path / "base", model, tokenizer(), torch.float32)
    loaded, read = load_base(tmp_path / "base")
    assert {f.name for f in (tmp_path / "base").iterdir()} == {
        "README.md", "config.json", "model.safetensors", "tokenizer.json",
    }  # fmt: skip
    assert [f.name for f in tmp_path.iterdir()] == ["base"]
    assert torch.equal(loaded(ids, pixels).logits, model(ids, pixels).logits)
    assert read.to_str() == tokenizer().to_str()


def test_a_base_of_half_precision_is_read_as_float32_or_bfloat16(tmp_path: Path) -> None:
    model = bridge()
    save_base(tmp_path / "base", model, tokenizer())
    kept = load_file(tmp_path / "base" / "model.safetensors")
    assert {value.dtype for value in kept.values()} == {torch.float16}
    for dtype in (torch.float32, torch.bfloat16):
        loaded, _ = load_base(tmp_path / "base", dtype)
        assert {value.dtype for value in loaded.parameters()} == {dtype}
    ids, _, pixels = example_of(model)
    with torch.inference_mode():
        assert loaded(ids, pixels).logits.isfinite().all()


def broken(folder: Path, what: str) -> None:
    weights = folder / "model.safetensors"
    kept = load_file(weights)
    name = "projection.bias"
    match what:
        case "missing":
            del kept[name]
        case "unexpected":
            kept["extra.weight"] = torch.zeros(1)
        case "shape":
            kept[name] = torch.zeros(3)
        case "torn":
            weights.write_bytes(weights.read_bytes()[:1000])
            return
        case "tokenizer":
            (folder / "tokenizer.json").write_text("{}")
            return
        case "config":
            (folder / "config.json").write_text('{"visual_tokens": "every"}')
            return
        case "ids":
            tree = json.loads((folder / "config.json").read_text())
            (folder / "config.json").write_text(json.dumps(tree | {"image_token_id": 9999}))
            return
        case file:
            (folder / file).unlink()
            return
    save_file(kept, weights)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("missing", "lacks 1 of .* projection.bias"),
        ("unexpected", "1 weights that the model does not have, such as extra.weight"),
        ("shape", r"projection.bias has shape \[3\] where the model has \[32\]"),
        ("torn", "damaged or incomplete"),
        ("tokenizer", "cannot be read as a tokenizer"),
        ("config", "visual_tokens: got 'every'"),
        ("ids", "image_token_id: got 9999"),
        ("tokenizer.json", "not a bridge base: it has no tokenizer.json"),
        ("model.safetensors", "not a bridge base: it has no model.safetensors"),
    ],
)
def test_a_broken_base_says_so(tmp_path: Path, what: str, says: str) -> None:
    broken(base(tmp_path / "base"), what)
    with pytest.raises(ValueError, match=says):
        load_base(tmp_path / "base")


def test_no_base(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="model.base_model: got .*nothing"):
        load_base(tmp_path / "nothing")


# -- adapters


def test_exactly_adapters_and_projection_are_trained(small: Recipe) -> None:
    model = adapters.attach_adapters(build(small), 0)
    layers = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"]
    layers += ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
    top = "base_model.model."
    expected = {f"{top}projection.{name}" for name in ("weight", "bias")}
    for layer in (0, 1):
        for name in layers:
            for half in "AB":
                expected.add(f"{top}language.model.layers.{layer}.{name}.lora_{half}.default.weight")
    assert set(adapters.trainable_parameter_names(model)) == expected


def test_the_check_of_what_is_trained_can_fail(small: Recipe) -> None:
    built = build(small)
    model = adapters.attach_adapters(built, 0)
    model.get_submodule("base_model.model.language.lm_head").requires_grad_(True)
    with pytest.raises(AssertionError, match="lm_head"):
        adapters.check_trainable_parameters(model, built)


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        (r"nothing\.\d+", "no module matches"),
        (r".*(q_proj|attention\.query|projection|query|dense|fc1)", "vision encoder stays frozen"),
        (r"language\.model\.norm", "not a linear layer"),
    ],
)
def test_targets_are_refused(pattern: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        adapters.lora_layers(bridge(), pattern)


def test_seed_decides_the_adapters(small: Recipe) -> None:
    def first(seed: int) -> torch.Tensor:
        torch.rand(3)  # whatever was drawn before
        model = adapters.attach_adapters(build(small), seed)
        return next(value for name, value in model.named_parameters() if "lora_A" in name)

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))


def shaken(built: LoadedModel) -> "adapters.PeftModel":
    """Adapters and projection away from where they begin."""
    model = shaken_by(adapters.attach_adapters(built, 0))
    assert isinstance(model, adapters.PeftModel)
    return model


@torch.inference_mode()
def test_fresh_adapters_change_nothing(small: Recipe) -> None:
    built, plain = build(small), build(small)
    ids, _, pixels = example_of(bridge())
    assert torch.equal(
        adapters.attach_adapters(built, 0).eval()(ids, pixels).logits, plain.model(ids, pixels).logits
    )


@torch.inference_mode()
def test_merging_adds_b_a_scale(small: Recipe) -> None:
    built = build(small)
    before = {k: v.clone() for k, v in built.model.state_dict().items()}
    model = shaken(built)
    name = "language.model.layers.1.mlp.up_proj"
    part = model.get_submodule(f"base_model.model.{name}")
    delta = part.lora_B["default"].weight @ part.lora_A["default"].weight * 8 / 4  # type: ignore[index,operator,union-attr]
    module = adapters.merge_adapters(model)
    after = module.get_submodule(name).weight
    assert torch.allclose(after, before[f"{name}.weight"] + delta, atol=1e-6)
    assert float(delta.abs().max()) > 1e-3


@torch.inference_mode()
def test_saved_adapters_are_the_same_adapters(small: Recipe, tmp_path: Path) -> None:
    built = build(small)
    model = shaken(built)
    ids, _, pixels = example_of(bridge())
    wanted = model(ids, pixels).logits
    adapters.save_adapters(model, built, "tiny", tmp_path)
    assert sorted(f.name for f in tmp_path.iterdir()) == [
        "adapter_config.json", "adapter_model.safetensors", "projector.safetensors",
    ]  # fmt: skip
    again = adapters.load_adapters(build(small), tmp_path).eval()
    assert torch.equal(again(ids, pixels).logits, wanted)
    assert torch.allclose(adapters.merge_adapters(again)(ids, pixels).logits, wanted, atol=1e-4)
    assert not torch.allclose(build(small).model(ids, pixels).logits, wanted, atol=1e-2)


def test_the_grammar_is_the_recipes(small: Recipe) -> None:
    assert prompt_format(small) == PromptFormat(num_bins=100, max_screens=4, max_past_actions=3)
    assert from_dict(to_dict(small)) == small


def test_full_fine_tuning_of_a_bridge_trains_all_but_the_vision_encoder(
    small: Recipe, tmp_path: Path
) -> None:
    one = replace(
        small, model=LlamaVitArgs(small.model.base_model, lora=None), train=replace(small.train, epochs=3)
    )
    built = build(one)
    before = {name: value.clone() for name, value in built.model.state_dict().items()}
    train(one, tmp_path / "full")
    again, module = adapters.load(one, tmp_path / "full")
    after = module.state_dict()
    moved = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert moved == {name for name in before if not name.startswith("vision.")}
    assert {file.name for file in (tmp_path / "full").iterdir()} == set(checkpoint.checkpoint_files(one))
    assert again.lora is None


@torch.inference_mode()
def test_what_was_trained_in_full_of_a_bridge_is_saved(small: Recipe, tmp_path: Path) -> None:
    one = replace(small, model=LlamaVitArgs(small.model.base_model, lora=None))
    built = build(one)
    model = shaken_by(adapters.prepare_for_training(built, 0))
    ids, _, pixels = example_of(cast(LlamaVit, built.model))
    adapters.save(model, built, one.model.base_model, tmp_path)
    assert torch.equal(adapters.load(one, tmp_path)[1](ids, pixels).logits, model(ids, pixels).logits)


# -- Qwen-VL as a recipe builds it


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return qwen_base(tmp_path_factory.mktemp("qwen") / "base")


def qwen_example(built: LoadedModel) -> tuple[torch.Tensor, torch.Tensor]:
    spoken, of = PromptFormat(), episode(1, 3)
    example = encode(spoken.sentence(next(spoken.windows(of))), built.processor)
    return torch.tensor(example.input_ids)[None], torch.tensor(np.stack(example.pixels))


def shaken_by(model: nn.Module) -> nn.Module:
    """Whatever is trained, away from where it begins."""
    torch.manual_seed(5)
    with torch.no_grad():
        for value in model.parameters():
            if value.requires_grad:
                value += 0.05 * torch.randn_like(value)
    return model.eval()


LAYERS = ("attn.c_attn", "attn.c_proj", "mlp.w1", "mlp.w2", "mlp.c_proj")


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


def test_qwenvl_is_built_as_the_recipe_says(qwen: Path) -> None:
    plain = build(qwen_recipe(qwen, Path("data"), {"precision": "bfloat16"}))
    assert {value.dtype for value in plain.model.parameters()} == {torch.bfloat16}
    assert (plain.processor.max_length, plain.supports_prefix_cache, plain.projector_name) == (
        512,
        True,
        None,
    )
    assert plain.model.config.long_context == "none"  # type: ignore[union-attr]
    original = build(qwen_recipe(qwen, Path("data"), dynamic_ntk=True))
    assert (original.processor.max_length, original.supports_prefix_cache) == (1024, False)
    assert original.model.config.long_context == "original"  # type: ignore[union-attr]
    assert build(qwen_recipe(qwen, Path("data"), max_length=700)).processor.max_length == 700
    with pytest.raises(ValueError, match=r"model.max_length: got 1025; .* has positions for 1024 tokens"):
        build(qwen_recipe(qwen, Path("data"), max_length=1025))


def test_no_qwenvl(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no folder .*nothing/here with a Qwen-VL"):
        build(qwen_recipe(tmp_path / "nothing" / "here", Path("data")))


@pytest.mark.parametrize("how", ["nf4", "int8"])
def test_without_bitsandbytes(qwen: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(quantize, "find_spec", lambda _: None)
    with pytest.raises(
        ValueError, match=f"model.quantize is '{how}', but bitsandbytes is not installed"
    ) as caught:
        build(qwen_recipe(qwen, Path("data"), quantize=how))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("how", "kind"), [("nf4", "Linear4bit"), ("int8", "Linear8bitLt")])
def test_quantised_is_the_language_model_alone(
    qwen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, kind: str
) -> None:
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    one = qwen_recipe(qwen, Path("data"), quantize=how)
    built = build(one)
    found = {name for name, part in built.model.named_modules() if type(part).__name__ == kind}
    assert found == {f"transformer.h.{i}.{layer}" for i in (0, 1) for layer in LAYERS}
    plain = build(qwen_recipe(qwen, Path("data")))
    same = dict(plain.model.named_parameters())
    for name, value in built.model.named_parameters():
        if name.removesuffix(".weight") not in found:
            assert torch.equal(value, same[name]), name
    ids, pixels = qwen_example(built)
    model = shaken_by(adapters.prepare_for_training(built, 0))
    with torch.inference_mode():
        wanted = model(ids, pixels).logits
        adapters.save(model, built, str(qwen), tmp_path)
        _, again = adapters.load(one, tmp_path)
        assert torch.equal(again(ids, pixels).logits, wanted)
    assert adapters.trainable_parameter_names(again) == []


def test_four_bit_layers_compute_alike_on_every_processor(
    qwen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an evaluation too: bitsandbytes packs them anew where a processor has AVX512-BF16."""
    modules = pytest.importorskip("bitsandbytes.nn.modules", reason="bitsandbytes is not installed")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(modules, "has_avx512bf16", lambda: True)
    built = build(qwen_recipe(qwen, Path("data"), quantize="nf4"))
    ids, pixels = qwen_example(built)
    model = shaken_by(adapters.prepare_for_training(built, 0))
    with torch.inference_mode():
        before = model.eval()(ids, pixels).logits
    model.train()(ids, pixels).logits.sum().backward()
    first = next(value for name, value in model.named_parameters() if "h.0" in name and value.requires_grad)
    assert first.grad is not None
    assert first.grad.abs().sum() > 0
    monkeypatch.setattr(modules, "has_avx512bf16", lambda: False)
    plain = shaken_by(
        adapters.prepare_for_training(build(qwen_recipe(qwen, Path("data"), quantize="nf4")), 0)
    )
    with torch.inference_mode():
        assert torch.equal(plain.eval()(ids, pixels).logits, before)
