"""Packing: each of several sentences in one row gives the same result as alone, for every model."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.helpers import hf_checkpoints
from tests.helpers.hf_llama_vit_parts import write_llama, write_vision
from tests.helpers.packed_rows import ALL_LOGITS, KINDS, batched, mixed, packing_recipe, rows_of, tower
from tests.helpers.tiny_models import base, episode, prepare, qwen_base
from uivlm.devices.sim.expert import record_demonstration
from uivlm.devices.sim.tasks import make_task
from uivlm.episodes.encode import IGNORE, Example
from uivlm.models import adapters
from uivlm.models.build import build, prompt_format
from uivlm.models.loaded_model import LoadedModel
from uivlm.models.multimodal import token_losses
from uivlm.models.packed_attention import PACKED_ATTENTION, VISION_ATTENTION
from uivlm.recipe import load
from uivlm.training.dataset import encode_window
from uivlm.training.train import train


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("packing")
    inner = 64  # a multiple of 32, as in published models: else silu rounds the end of a row differently
    base(made / "llama_vit", intermediate_size=inner)
    qwen_base(made / "qwen_vl")
    write_llama(made / "llama_parts", intermediate_size=inner)
    write_vision(made / "dinov2", "dinov2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(hf_checkpoints.TEXT, "intermediate_size", inner)
        for kind in KINDS[3:]:
            hf_checkpoints.write(made / kind, kind)
    prepare(made / "data", [episode(i, n) for i, n in enumerate((1, 4, 2, 3, 1, 2))])
    return made


def steady(module: nn.Module, rows: int) -> bool:
    """Whether a row of a product keeps its bits among more rows: not if a thread has few rows."""
    layers = {part.weight.shape: part for part in module.modules() if isinstance(part, nn.Linear)}
    for layer in layers.values():
        many = torch.randn(999, layer.in_features, generator=torch.Generator().manual_seed(0))
        if not torch.equal(layer(many)[:rows], layer(many[:rows])):
            return False
    return True


def same(found: Tensor, wanted: Tensor, bits: bool) -> None:
    assert torch.equal(found, wanted) if bits else torch.allclose(found, wanted, atol=1e-5)


def compare(built: LoadedModel, rows: list[Example]) -> int:
    """Compare packed with single sentences: logits and losses are equal to the last bit.

    Return the number of sentences with a screen.
    """
    packed = batched(built, rows, pack=True)
    lengths = [len(row.input_ids) for row in rows]
    trained = [int((row.labels != IGNORE).sum()) for row in rows]
    outputs = built.model(**packed)
    found = zip(
        rows,
        built.model(**packed | ALL_LOGITS).logits[0].split(lengths),
        outputs.logits.split(trained),
        token_losses(outputs, packed["labels"]).split(trained),
        strict=True,
    )
    exact = 0
    for row, every, wanted, nats in found:
        alone = batched(built, [row], pack=False)
        seen = bool(row.pixels)
        bits = steady(built.model, 64) and (seen or steady(built.model, len(row.input_ids)))
        same(every, built.model(**alone | ALL_LOGITS).logits[0], bits)
        told = built.model(**alone)
        same(wanted, told.logits, bits)
        same(nats, token_losses(told, alone["labels"]), bits)
        exact += seen
    return exact


def need_steady(built: LoadedModel) -> None:
    """Skip the bitwise part on a machine whose products change with the number of rows."""
    if not steady(built.model, 64):
        pytest.skip("linear layers of this machine round a row otherwise where there are more; held to 1e-5")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_packed_sentences_read_as_alone(root: Path, kind: str, seed: int) -> None:
    one = packing_recipe(root, kind)
    built = build(one)
    rows = mixed(one, built, seed)
    assert batched(built, rows, pack=True)["input_ids"].shape == (1, sum(len(row.input_ids) for row in rows))
    exact = compare(built, rows)
    need_steady(built)
    assert exact


@pytest.mark.slow
@torch.inference_mode()
def test_packed_episodes_of_the_phone_read_as_alone() -> None:
    """The base that comes with the package, on episodes of its training task."""
    one = load("tiny")
    built = build(one)
    spoken = prompt_format(one)
    episodes = [record_demonstration(make_task(seed, "train")) for seed in range(6)]
    rows = [
        encode_window(window, True, spoken, built.processor, "")
        for each in episodes
        for window in spoken.windows(each)
    ]
    exact = compare(built, rows)
    need_steady(built)
    assert exact


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_a_sentence_reads_the_same_in_any_company(root: Path, kind: str) -> None:
    """Bit for bit, also for the shortest sentence."""
    one = packing_recipe(root, kind)
    built = build(one)
    need_steady(built)
    rows = mixed(one, built, 3)
    told = [batched(built, part, pack=True) | ALL_LOGITS for part in (rows, rows[::-1])]
    there, back = (built.model(**each).logits[0].split(each["cu_seq_lens"].diff().tolist()) for each in told)
    assert all(torch.equal(*pair) for pair in zip(there, reversed(back), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_packed_gradients_are_those_of_separate_forwards(root: Path, kind: str) -> None:
    """Up to rounding, as their sums run over more rows. Recomputed blocks see the same sentences."""
    one = packing_recipe(root, kind)
    module = (built := build(one)).model
    rows = mixed(one, built, 4)
    module.train().requires_grad_(True)

    def gradients(*parts: list[Example]) -> dict[str, Tensor]:
        module.zero_grad()
        for part in parts:
            batch = batched(built, part, pack=len(part) > 1)
            token_losses(module(**batch), batch["labels"]).sum().backward()
        return {
            name: value.grad.clone() for name, value in module.named_parameters() if value.grad is not None
        }

    alone, packed = gradients(*([row] for row in rows)), gradients(rows)
    assert alone.keys() == packed.keys()
    whole = torch.cat([value.flatten() for value in alone.values()]).norm()
    for name, value in packed.items():
        assert (value - alone[name]).norm() <= 1e-5 * max(alone[name].norm(), 1e-3 * whole), name
    module.activation_checkpointing_enable({"use_reentrant": False})
    again = gradients(rows)
    assert all(torch.equal(again[name], value) for name, value in packed.items())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "qwen_vl"])
@torch.inference_mode()
def test_without_packing_attention_is_the_ordinary_one(root: Path, kind: str) -> None:
    one = packing_recipe(root, kind)
    built = build(one)
    assert tower(built.model).config._attn_implementation == PACKED_ATTENTION
    vision = VISION_ATTENTION if kind.startswith("Qwen") else "sdpa"
    assert built.model.config.vision_config._attn_implementation == vision
    batch = batched(built, rows_of(one, built, (3, 1, 2)), pack=False)
    found = built.model(**batch).logits
    tower(built.model).set_attn_implementation("sdpa")
    assert torch.equal(built.model(**batch).logits, found)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["llama_vit", "Qwen2_5_VL"])
@torch.inference_mode()
def test_another_attention_packs_too(root: Path, kind: str, attention: str) -> None:
    """It does not attend sentence by sentence, so bits may differ; nothing leaks."""
    one = packing_recipe(root, kind)
    built = build(one)
    tower(built.model).set_attn_implementation(attention)
    rows = rows_of(one, built, (3, 1, 2))
    for taken in ({}, ALL_LOGITS):
        alone = [built.model(**batched(built, [row], pack=False) | taken).logits for row in rows]
        packed = built.model(**batched(built, rows, pack=True) | taken).logits
        assert torch.allclose(packed, torch.cat(alone, -2), atol=1e-5)


@torch.inference_mode()
def test_packed_sentences_keep_their_sliding_window(root: Path, tmp_path: Path) -> None:
    """A layer that sees only the last few tokens does so within each sentence."""
    shutil.copytree(root / "Qwen2VL", tmp_path / "base")
    told = json.loads((tmp_path / "base" / "config.json").read_text())
    window = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    (tmp_path / "base" / "config.json").write_text(json.dumps(told | window))
    plain, sliding = packing_recipe(root, "Qwen2VL"), packing_recipe(root, "Qwen2VL")
    sliding = replace(sliding, model=replace(sliding.model, base_model=str(tmp_path / "base")))
    far, near = build(plain), build(sliding)
    rows = rows_of(plain, far, (3, 1, 2))
    packed = batched(near, rows, pack=True)
    alone = [near.model(**batched(near, [row], pack=False)).logits for row in rows]
    found = near.model(**packed).logits
    assert torch.allclose(found, torch.cat(alone), atol=1e-5)
    assert not torch.allclose(found, far.model(**packed).logits, atol=1e-2)


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_nothing_leaks_from_one_sentence_into_another(root: Path, kind: str) -> None:
    """Another first sentence of the same length, other screens: not a bit of the second changes."""
    one = packing_recipe(root, kind)
    built = build(one)
    first, second = rows_of(one, built, (2, 3))
    words = first.input_ids.copy()
    words[1:4] = words[1:4][::-1]
    other = replace(first, input_ids=words, pixels=tuple(255 - screen for screen in first.pixels))
    count = int((first.labels != -100).sum())
    found = [built.model(**batched(built, [row, second], pack=True)).logits[count:] for row in (first, other)]
    assert torch.equal(*found)
    changed = [built.model(**batched(built, [row], pack=True)).logits for row in (first, other)]
    assert not torch.equal(*changed), "the change is one that the model sees"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama_vit", "qwen_vl", "Qwen2_5_VL"])
def test_a_packed_run_is_a_padded_one(root: Path, tmp_path: Path, kind: str) -> None:
    """Loss and gradient of each step; the adapters move on from the same gradients."""
    logs = []
    for packing in (False, True):
        sizes = {"per_device_batch_size": 1, "max_packed_tokens": 600} if packing else {}
        # one step an epoch, since other rows share a forward pass
        one = packing_recipe(root, kind, **sizes, gradient_accumulation_steps=6, epochs=2.0)
        one = replace(one, model=replace(one.model, lora=replace(one.model.lora, dropout=0.0)))
        out = train(one, tmp_path / str(packing))
        logs.append([json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()])
    assert len(logs[0]) == len(logs[1]) == 2
    for padded, packed in zip(*logs, strict=True):
        for name in ("loss", "grad_norm", "loss_macro"):
            assert packed[name] == pytest.approx(padded[name], rel=1e-4), name


def test_packed_rows_of_features(root: Path) -> None:
    one = packing_recipe(root, "llama_vit")
    built = build(one)
    rows = rows_of(one, built, (3, 1))
    seen = [
        replace(row, pixels=(), features=tuple(look(built, screen) for screen in row.pixels)) for row in rows
    ]
    with torch.inference_mode():
        found = [built.model(**batched(built, part, pack=True)).logits for part in (rows, seen)]
    assert torch.allclose(*found, atol=1e-5)


@torch.inference_mode()
def look(built: LoadedModel, screen: np.ndarray) -> np.ndarray:
    return built.model.get_image_features(torch.from_numpy(screen)[None])[0].numpy()


def test_tune_leaves_packing_to_the_model(root: Path) -> None:
    """With adapters, the wrapped model also takes the sentences' bounds."""
    one = packing_recipe(root, "qwen_vl")
    built = build(one)
    model = adapters.prepare_for_training(built, 0)
    batch = batched(built, rows_of(one, built, (1, 2)), pack=True)
    model.train()(**batch).logits.sum().backward()
    assert any(value.grad is not None and value.grad.abs().sum() > 0 for value in model.parameters())
