"""Several sentences in one row: each reads as if it were alone, for every model."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bridges import base, episode, prepare, qwen_base, qwen_recipe, recipe
from successors import write

from uivlm.models import tune
from uivlm.models.model import Built, build, grammar, nll
from uivlm.recipe import Data, QwenHF, Recipe
from uivlm.training.collator import ASIDE, Collator, Row, encoded
from uivlm.training.trainer import train

KINDS = ["llama_vit", "qwen_vl", "Qwen2VL", "Qwen2_5_VL", "Qwen3VL"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("packing")
    base(made / "llama_vit")
    qwen_base(made / "qwen_vl")
    for kind in KINDS[2:]:
        write(made / kind, kind)
    prepare(made / "data", [episode(i, n) for i, n in enumerate((1, 4, 2, 3, 1, 2))])
    return made


def wanted(root: Path, kind: str, **part: Any) -> Recipe:
    if kind == "qwen_vl":
        made = qwen_recipe(root / kind, root / "data")
    else:
        made = recipe(root / "llama_vit", root / "data")
        if kind != "llama_vit":
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


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_packed_sentences_read_as_alone(root: Path, kind: str) -> None:
    one = wanted(root, kind)
    built = build(one)
    rows = rows_of(one, built, (3, 1, 2))
    packed = batched(built, rows, pack=True)
    assert packed["input_ids"].shape == (1, sum(len(row.input_ids) for row in rows))
    together = built.module(**packed).logits
    alone = [built.module(**batched(built, [row], pack=False)).logits for row in rows]
    assert torch.allclose(together, torch.cat(alone), atol=1e-5)
    nats = nll(built.module(**packed), packed["labels"])
    padded = batched(built, rows, pack=False)
    assert torch.allclose(nats, nll(built.module(**padded), padded["labels"]), atol=1e-4)


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
