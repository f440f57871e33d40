"""Several sentences in one row: each reads as if it were alone, for every model."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import successors
import torch
from bridges import base, episode, prepare, qwen_base, qwen_recipe, recipe
from parts import write_llama, write_vision
from torch import Tensor, nn

from uivlm.devices.sim.expert import record
from uivlm.devices.sim.tasks import task
from uivlm.models import tune
from uivlm.models.attention import BY_SENTENCE
from uivlm.models.model import Built, build, grammar, nll
from uivlm.recipe import Data, LlamaParts, QwenHF, Recipe, load
from uivlm.sentences.encode import IGNORE
from uivlm.training.collator import ASIDE, Collator, Row, encoded
from uivlm.training.trainer import train

KINDS = ["llama_vit", "llama_parts", "qwen_vl", "Qwen2VL", "Qwen2_5_VL", "Qwen3VL"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("packing")
    inner = 64  # a multiple of 32, as in published models: else silu rounds the last few numbers of a row otherwise
    base(made / "llama_vit", intermediate_size=inner)
    qwen_base(made / "qwen_vl")
    write_llama(made / "llama_parts", intermediate_size=inner)
    write_vision(made / "dinov2", "dinov2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(successors.TEXT, "intermediate_size", inner)
        for kind in KINDS[3:]:
            successors.write(made / kind, kind)
    prepare(made / "data", [episode(i, n) for i, n in enumerate((1, 4, 2, 3, 1, 2))])
    return made


def wanted(root: Path, kind: str, **part: Any) -> Recipe:
    if kind == "qwen_vl":
        made = qwen_recipe(root / kind, root / "data")
    else:
        made = recipe(root / "llama_vit", root / "data")
        if kind == "llama_parts":
            parts = LlamaParts(str(root / kind), str(root / "dinov2"), made.model.lora, grid=2)
            made = replace(made, model=parts)
        elif kind != "llama_vit":
            made = replace(made, model=QwenHF(str(root / kind), made.model.lora))
    settings = {"batch": 3, "epochs": 1.0, "report_to": (), "precision": "float32"}
    return replace(made, data=Data(str(root / "data")), train=replace(made.train, **(settings | part)))


def rows_of(one: Recipe, built: Built, lengths: tuple[int, ...]) -> list[Row]:
    spoken = grammar(one)
    return [
        encoded(window, True, spoken, built.reader, "")
        for i, n in enumerate(lengths)
        for window in spoken.windows(episode(20 + i, n))
    ]


def batched(built: Built, rows: list[Row], pack: bool) -> dict[str, Any]:
    batch = Collator(built.reader.pad, built.reader.placeholder, pack)(rows)
    return {name: part for name, part in batch.items() if name not in ASIDE}


def words(built: Built, random: np.random.Generator, length: int) -> Row:
    """A sentence without a screen, of any words; every token but the first is trained."""
    ids = random.choice(built.reader.words("swipe from home to say tap"), length)
    return Row(ids, np.where(np.arange(length) > 0, ids, IGNORE), np.zeros(length - 1, np.int64), ())


def mixed(one: Recipe, built: Built, seed: int) -> list[Row]:
    """Episodes, and sentences of 1 to 400 tokens without a screen, in any order."""
    random = np.random.default_rng(seed)
    lengths = [1, *np.exp(random.uniform(0, 6, 3)).astype(int)]
    rows = rows_of(one, built, tuple(random.integers(1, 7, 3))) + [words(built, random, n) for n in lengths]
    return [rows[i] for i in random.permutation(len(rows))]


def steady(module: nn.Module, rows: int) -> bool:
    """Does a product of so many rows give each the bits that it has among more? Not where threads have three or fewer."""
    layers = {part.weight.shape: part for part in module.modules() if isinstance(part, nn.Linear)}
    for layer in layers.values():
        many = torch.randn(999, layer.in_features, generator=torch.Generator().manual_seed(0))
        if not torch.equal(layer(many)[:rows], layer(many[:rows])):
            return False
    return True


def same(found: Tensor, wanted: Tensor, bits: bool) -> None:
    assert torch.equal(found, wanted) if bits else torch.allclose(found, wanted, atol=1e-5)


def compare(built: Built, rows: list[Row]) -> int:
    """Packed against alone: logits of all tokens, those that training takes, and its nats. How many sentences with a screen
    were there? All of it has to be the same bits for each."""
    packed = batched(built, rows, pack=True)
    lengths = [len(row.input_ids) for row in rows]
    trained = [int((row.labels != IGNORE).sum()) for row in rows]
    outputs = built.module(**packed)
    found = zip(
        rows,
        built.module(**packed | {"labels": None}).logits[0].split(lengths),
        outputs.logits.split(trained),
        nll(outputs, packed["labels"]).split(trained),
        strict=True,
    )
    exact = 0
    for row, every, wanted, nats in found:
        alone = batched(built, [row], pack=False)
        seen = row.pixels is not None
        bits = steady(built.module, 64) and (seen or steady(built.module, len(row.input_ids)))
        same(every, built.module(**alone | {"labels": None}).logits[0], bits)
        told = built.module(**alone)
        same(wanted, told.logits, bits)
        same(nats, nll(told, alone["labels"]), bits)
        exact += seen
    return exact


def need_steady(built: Built) -> None:
    if not steady(built.module, 64):
        pytest.skip("linear layers of this machine round a row otherwise where there are more; held to 1e-5")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_packed_sentences_read_as_alone(root: Path, kind: str, seed: int) -> None:
    one = wanted(root, kind)
    built = build(one)
    rows = mixed(one, built, seed)
    assert batched(built, rows, pack=True)["input_ids"].shape == (1, sum(len(row.input_ids) for row in rows))
    exact = compare(built, rows)
    need_steady(built)
    assert exact


@torch.inference_mode()
def test_packed_episodes_of_the_phone_read_as_alone() -> None:
    """The base that comes with the package, and what it is trained on."""
    one = load("tiny")
    built = build(one)
    spoken = grammar(one)
    episodes = [record(task(seed, "train")) for seed in range(6)]
    rows = [
        encoded(window, True, spoken, built.reader, "")
        for each in episodes
        for window in spoken.windows(each)
    ]
    exact = compare(built, rows)
    need_steady(built)
    assert exact


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_a_sentence_reads_the_same_in_any_company(root: Path, kind: str) -> None:
    """Bit for bit the shortest, too."""
    one = wanted(root, kind)
    built = build(one)
    need_steady(built)
    rows = mixed(one, built, 3)
    told = [batched(built, part, pack=True) | {"labels": None} for part in (rows, rows[::-1])]
    there, back = (built.module(**each).logits[0].split(each["lengths"].tolist()) for each in told)
    assert all(torch.equal(*pair) for pair in zip(there, reversed(back), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_packed_gradients_are_those_of_separate_forwards(root: Path, kind: str) -> None:
    """Their sums run over more rows. Blocks that are computed again see the same sentences."""
    one = wanted(root, kind)
    module = (built := build(one)).module
    rows = mixed(one, built, 4)
    module.train().requires_grad_(True)

    def gradients(*parts: list[Row]) -> dict[str, Tensor]:
        module.zero_grad()
        for part in parts:
            batch = batched(built, part, pack=len(part) > 1)
            nll(module(**batch), batch["labels"]).sum().backward()
        return {
            name: value.grad.clone() for name, value in module.named_parameters() if value.grad is not None
        }

    alone, packed = gradients(*([row] for row in rows)), gradients(rows)
    assert alone.keys() == packed.keys()
    whole = torch.cat([value.flatten() for value in alone.values()]).norm()
    for name, value in packed.items():
        assert (value - alone[name]).norm() <= 1e-5 * max(alone[name].norm(), 1e-3 * whole), name
    module.gradient_checkpointing_enable({"use_reentrant": False})
    again = gradients(rows)
    assert all(torch.equal(again[name], value) for name, value in packed.items())


def tower(module: Any) -> Any:
    """The language model, as transformers has it."""
    return module.language if hasattr(module, "language") else module.model.language_model


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "qwen_vl"])
@torch.inference_mode()
def test_without_packing_attention_is_the_ordinary_one(root: Path, kind: str) -> None:
    one = wanted(root, kind)
    built = build(one)
    assert tower(built.module).config._attn_implementation == BY_SENTENCE
    assert built.module.config.vision_config._attn_implementation == "sdpa"
    batch = batched(built, rows_of(one, built, (3, 1, 2)), pack=False)
    found = built.module(**batch).logits
    tower(built.module).set_attn_implementation("sdpa")
    assert torch.equal(built.module(**batch).logits, found)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["llama_vit", "Qwen2_5_VL"])
@torch.inference_mode()
def test_another_attention_packs_too(root: Path, kind: str, attention: str) -> None:
    """It is not by sentence, so bits may differ; nothing leaks."""
    one = wanted(root, kind)
    built = build(one)
    tower(built.module).set_attn_implementation(attention)
    rows = rows_of(one, built, (3, 1, 2))
    for taken in ({}, {"labels": None}):
        alone = [built.module(**batched(built, [row], pack=False) | taken).logits for row in rows]
        packed = built.module(**batched(built, rows, pack=True) | taken).logits
        assert torch.allclose(packed, torch.cat(alone, -2), atol=1e-5)


@torch.inference_mode()
def test_packed_sentences_keep_their_sliding_window(root: Path, tmp_path: Path) -> None:
    """A layer that sees only the last few tokens does so within each sentence."""
    shutil.copytree(root / "Qwen2VL", tmp_path / "base")
    told = json.loads((tmp_path / "base" / "config.json").read_text())
    window = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    (tmp_path / "base" / "config.json").write_text(json.dumps(told | window))
    plain, sliding = wanted(root, "Qwen2VL"), wanted(root, "Qwen2VL")
    sliding = replace(sliding, model=replace(sliding.model, base=str(tmp_path / "base")))
    far, near = build(plain), build(sliding)
    rows = rows_of(plain, far, (3, 1, 2))
    packed = batched(near, rows, pack=True)
    alone = [near.module(**batched(near, [row], pack=False)).logits for row in rows]
    found = near.module(**packed).logits
    assert torch.allclose(found, torch.cat(alone), atol=1e-5)
    assert not torch.allclose(found, far.module(**packed).logits, atol=1e-2)


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_nothing_leaks_from_one_sentence_into_another(root: Path, kind: str) -> None:
    """Another first sentence of the same length, other screens: not a bit of the second changes."""
    one = wanted(root, kind)
    built = build(one)
    first, second = rows_of(one, built, (2, 3))
    assert first.pixels is not None
    words = first.input_ids.copy()
    words[1:4] = words[1:4][::-1]
    other = replace(first, input_ids=words, pixels=tuple(1 - screen for screen in first.pixels))
    count = int((first.labels != -100).sum())
    found = [
        built.module(**batched(built, [row, second], pack=True)).logits[count:] for row in (first, other)
    ]
    assert torch.equal(*found)
    changed = [built.module(**batched(built, [row], pack=True)).logits for row in (first, other)]
    assert not torch.equal(*changed), "the change is one that the model sees"


@pytest.mark.parametrize("kind", ["llama_vit", "qwen_vl", "Qwen2_5_VL"])
def test_a_packed_run_is_a_padded_one(
    root: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss and gradient of each step; the adapters move on from the same gradients."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    logs = []
    for pack in (False, True):
        one = wanted(root, kind, pack=pack)
        one = replace(one, model=replace(one.model, lora=replace(one.model.lora, dropout=0.0)))
        out = train(one, tmp_path / str(pack))
        logs.append([json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()])
    assert len(logs[0]) == len(logs[1]) == 2
    for padded, packed in zip(*logs, strict=True):
        for name in ("loss", "grad_norm", "loss_mean_of_kinds"):
            assert packed[name] == pytest.approx(padded[name], rel=1e-4), name


def test_packed_rows_of_features(root: Path) -> None:
    one = wanted(root, "llama_vit")
    built = build(one)
    rows = rows_of(one, built, (3, 1))
    seen = [
        replace(row, pixels=None, features=tuple(look(built, screen) for screen in row.pixels or ()))
        for row in rows
    ]
    with torch.inference_mode():
        found = [built.module(**batched(built, part, pack=True)).logits for part in (rows, seen)]
    assert torch.allclose(*found, atol=1e-5)


@torch.inference_mode()
def look(built: Built, screen: np.ndarray) -> np.ndarray:
    return built.module.look(torch.from_numpy(screen)[None])[0].numpy()


def test_tune_leaves_packing_to_the_model(root: Path) -> None:
    """Adapters on: the wrapped model takes `lengths` too."""
    one = wanted(root, "qwen_vl")
    built = build(one)
    model = tune.begin(built, 0)
    batch = batched(built, rows_of(one, built, (1, 2)), pack=True)
    model.train()(**batch).logits.sum().backward()
    assert any(value.grad is not None and value.grad.abs().sum() > 0 for value in model.parameters())
