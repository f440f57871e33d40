"""What a recipe costs: against published memory of Qwen-VL's own scripts, torch's count of operations, closed forms."""

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bridges import base as bridge_base
from bridges import episode, prepare, recipe
from successors import write
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from uivlm import recipe as recipes
from uivlm.cli import app
from uivlm.models import cost
from uivlm.models.cost import (
    QUANTISED,
    RUNTIME,
    Shape,
    Size,
    begun,
    memory,
    needed,
    operations,
    sizes,
    usual_episode,
)
from uivlm.models.model import build, grammar, nll
from uivlm.models.qwen_vl.config import QwenVLConfig, to_original
from uivlm.plan import gigabytes
from uivlm.sentences.encode import encode


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> recipes.Recipe:
    """The full-size Qwen-VL's configuration, and single bytes for tokens: no weights."""
    root = tmp_path_factory.mktemp("qwen")
    (root / "config.json").write_text(json.dumps(to_original(QwenVLConfig())))
    # control ids follow the last rank, as the configuration says: so many ranks there must be

    ranks = [bytes([i]) for i in range(256)] + [b"%07d" % i for i in range(256, 151643)]
    lines = (base64.b64encode(token) + b" %d" % i for i, token in enumerate(ranks))
    (root / "qwen.tiktoken").write_bytes(b"\n".join(lines))
    return recipes.override(recipes.load("recipes/qwenvl.py"), [f"model.base={root}"])


@pytest.fixture(scope="module")
def full(qwen: recipes.Recipe) -> Shape:
    return begun(build(qwen, "meta"), 0)[1]


def test_parameters_by_hand(full: Shape) -> None:
    """Of Qwen-VL's layers, r (inputs + outputs) each; and 9,656,935,168 in all."""
    layers = [(4096, 3 * 4096), (4096, 4096), (4096, 11008), (4096, 11008), (11008, 4096)]
    assert full.trained == 32 * sum(64 * (a + b) for a, b in layers) == 143_130_624
    assert full.linear == 32 * sum(a * b for a, b in layers)
    assert full.parameters == 9_656_935_168
    assert (full.width, full.layers, full.vocabulary) == (4096, 32, 151_936)


@pytest.mark.parametrize(("tokens", "published"), [(384, 23.3), (2048, 27.3)])
def test_memory_of_the_original_scripts(
    qwen: recipes.Recipe, full: Shape, tokens: int, published: float
) -> None:
    """LoRA on one A100, one image, every token trained, four kinds of layers (112.2 M): within 15 % of what is published."""
    row = Size(tokens, tokens, 1, 1024, 256)
    found = memory(qwen, replace(full, trained=112_200_000), [row], 1, 0).total / 1e9
    assert found == pytest.approx(published, rel=0.15)


def test_memory_is_shared_out_by_stage(qwen: recipes.Recipe, full: Shape) -> None:
    row = Size(1000, 50, 4, 4096, 1024)
    one, two, three = (memory(qwen, full, [row], 8, zero) for zero in (1, 2, 3))
    assert one.optimizer == two.optimizer == full.trained * 12 / 8
    assert (one.gradients, two.gradients) == (full.trained * 2, full.trained * 2 / 8)
    assert three.weights == two.weights / 8 == (full.parameters + full.trained) * 2 / 8
    assert one.activations == three.activations
    alone = memory(qwen, full, [row], 1, 0)
    assert alone.optimizer + alone.gradients == full.trained * 12
    assert alone.total == pytest.approx(
        alone.weights + alone.gradients + alone.optimizer + alone.activations + RUNTIME
    )
    for how in ("nf4", "int8"):
        small = memory(recipes.override(qwen, [f"model.quantise={how}"]), full, [row], 1, 0)
        assert alone.weights - small.weights == pytest.approx(full.linear * (2 - QUANTISED[how]))
    whole = recipes.override(qwen, ["model.lora=null", "train.zero=2"])
    trains_all = memory(whole, replace(full, trained=full.parameters), [row], 8, 2)
    assert trains_all.weights == full.parameters * 2
    assert trains_all.gradients + trains_all.optimizer == full.parameters * 14 / 8


def test_operations_are_those_that_torch_counts(tmp_path: Path) -> None:
    """Forward and backward of one training step, counted while it runs."""
    data = prepare(tmp_path / "data", [episode(0, 4)])
    one = recipe(bridge_base(tmp_path / "base", hidden_size=64, intermediate_size=96), data)
    built = build(one)
    (rows,) = sizes(one, built, [episode(0, 4)])
    made, told = begun(built, 0)
    model: Any = made.train()
    example = encode(grammar(one).sentence(next(grammar(one).windows(episode(0, 4)))), built.reader)
    ids, labels = (torch.from_numpy(part)[None] for part in (example.input_ids, example.labels))
    with FlopCounterMode(display=False) as counter:
        nll(
            model(ids, pixels=torch.from_numpy(np.stack(example.pixels)), labels=labels), labels
        ).sum().backward()
    trained = int((example.labels != -100).sum())
    assert rows[0] == Size(len(example.input_ids), trained, 4, 4 * 24, sum(example.tokens))
    assert operations(told, rows[0]) == pytest.approx(counter.get_total_flops(), rel=0.15)
    pixels = int(np.stack(example.pixels)[:, 0].size)
    assert needed(told, [len(ids[0])], trained, pixels) == operations(told, rows[0])
    assert needed(replace(told, recompute=True), [len(ids[0])], trained, pixels) == operations(told, rows[0])
    assert operations(replace(told, recompute=True), rows[0]) > operations(told, rows[0])


def test_lengths_are_those_of_training(tmp_path: Path) -> None:
    one = recipe(bridge_base(tmp_path / "base"), tmp_path, screens=3)
    built, of = build(one), episode(1, 7)
    (rows,) = sizes(one, built, [of])
    wanted = [encode(grammar(one).sentence(window), built.reader) for window in grammar(one).windows(of)]
    assert [row.tokens for row in rows] == [len(example.input_ids) for example in wanted]
    assert [row.screens for row in rows] == [len(example.tokens) for example in wanted]
    assert len(usual_episode().steps) == cost.STEPS
    built.reader.context = 100
    with pytest.raises(ValueError, match="'usual' has .* tokens, the model reads 100: lower grammar.screens"):
        sizes(one, built, [usual_episode()])


@pytest.mark.parametrize("kind", ["Qwen2VL", "Qwen2_5_VL", "Qwen3VL"])
def test_the_command_without_weights(kind: str, tmp_path: Path) -> None:
    root = write(tmp_path / "base", kind)
    (root / "model.safetensors").unlink()
    data = prepare(tmp_path / "data", [episode(0, 4), episode(1, 9)])
    said = ["plan", "recipes/qwen3vl.py", "--set", f"model.base={root}", "--data", str(data), "--gpus", "2"]
    told = CliRunner().invoke(app, said, catch_exceptions=False)
    assert told.exit_code == 0, told.output
    assert "2 episodes of" in told.output
    assert "0 (the recipe)" in told.output
    assert "visual tokens a screen" in told.output
    fits = CliRunner().invoke(app, [*said, "--memory", "80GB"], catch_exceptions=False)
    assert fits.exit_code == 0, fits.output
    for limit in ("1", "1GB", "0.9 GiB"):
        says = f"GB are needed on each GPU, --memory says {limit}: try --set model.quantise=nf4"
        with pytest.raises(ValueError, match=says):
            CliRunner().invoke(
                app, [*said, "--set", "train.batch=500", "--memory", limit], catch_exceptions=False
            )


def test_memory_is_said_as_people_say_it() -> None:
    assert [gigabytes(text) for text in ("80", "80GB", "80 gb", "24.5GB")] == [80, 80, 80, 24.5]
    assert gigabytes("80GiB") == pytest.approx(85.899346)
    for text in ("", "much", "-80", "0GB", "80MB", "80GB of it"):
        with pytest.raises(ValueError, match=f"--memory is {text!r}: say what one GPU has, such as 80GB"):
            gigabytes(text)
