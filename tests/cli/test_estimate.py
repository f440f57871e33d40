"""What a recipe costs: compared with Qwen-VL's published memory, torch's FLOP counter and closed forms."""

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from tests.helpers.hf_checkpoints import write
from tests.helpers.tiny_models import base as bridge_base
from tests.helpers.tiny_models import episode, prepare, recipe
from uivlm import recipe as recipes
from uivlm.cli.estimate import _checkpointing_summary, parse_gigabytes
from uivlm.cli.main import app
from uivlm.episodes.encode import encode
from uivlm.episodes.window_index import index_windows
from uivlm.models import cost
from uivlm.models.build import build, prompt_format
from uivlm.models.cost import (
    BYTES_PER_QUANTIZED_WEIGHT,
    CUDA_RUNTIME_BYTES,
    ModelShape,
    SentenceSize,
    estimate_memory,
    hardware_flops,
    model_flops,
    prepare_and_measure,
    sentence_sizes,
    typical_episode,
)
from uivlm.models.multimodal import token_losses, trained_tokens
from uivlm.models.qwen_vl.config import QwenVLConfig, to_original
from uivlm.recipe import DistributedArgs

ALONE = DistributedArgs()


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> recipes.Recipe:
    """The full-size Qwen-VL's configuration, and single bytes for tokens: no weights."""
    root = tmp_path_factory.mktemp("qwen")
    (root / "config.json").write_text(json.dumps(to_original(QwenVLConfig())))
    # control ids follow the last rank, as the configuration says: so many ranks there must be

    ranks = [bytes([i]) for i in range(256)] + [b"%07d" % i for i in range(256, 151643)]
    lines = (base64.b64encode(token) + b" %d" % i for i, token in enumerate(ranks))
    (root / "qwen.tiktoken").write_bytes(b"\n".join(lines))
    return recipes.override(recipes.load("recipes/qwenvl.py"), [f"model.base_model={root}"])


@pytest.fixture(scope="module")
def full(qwen: recipes.Recipe) -> ModelShape:
    return prepare_and_measure(build(qwen, "meta"), 0)[1]


@pytest.mark.slow
def test_parameters_by_hand(full: ModelShape) -> None:
    """Of Qwen-VL's layers, r (inputs + outputs) each; and 9,656,935,168 in all."""
    layers = [(4096, 3 * 4096), (4096, 4096), (4096, 11008), (4096, 11008), (11008, 4096)]
    assert full.num_trainable == 32 * sum(64 * (a + b) for a, b in layers) == 143_130_624
    assert full.linear_parameters == 32 * sum(a * b for a, b in layers)
    assert full.num_parameters == 9_656_935_168
    assert (full.hidden_size, full.num_layers, full.vocab_size) == (4096, 32, 151_936)


@pytest.mark.parametrize(("tokens", "published"), [(384, 23.3), (2048, 27.3)])
def test_memory_of_the_original_scripts(
    qwen: recipes.Recipe, full: ModelShape, tokens: int, published: float
) -> None:
    """LoRA on one A100, one image, every token trained, four types of layers (112.2 M): within 15 %."""
    row = SentenceSize(tokens, tokens, 1, 1024, 256)
    found = estimate_memory(qwen, replace(full, num_trainable=112_200_000), [row], 1, ALONE).total / 1e9
    assert found == pytest.approx(published, rel=0.15)


def test_memory_is_shared_out_by_stage(qwen: recipes.Recipe, full: ModelShape) -> None:
    row = SentenceSize(1000, 50, 4, 4096, 1024)
    one, two = (estimate_memory(qwen, full, [row], 8, DistributedArgs(stage)) for stage in (1, 2))
    assert one.optimizer == two.optimizer == full.num_trainable * 12 / 8
    assert (one.gradients, two.gradients) == (full.num_trainable * 2, full.num_trainable * 2 / 8)
    assert one.weights == two.weights == (full.num_parameters + full.num_trainable) * 2
    alone = estimate_memory(qwen, full, [row], 1, ALONE)
    assert alone.optimizer + alone.gradients == full.num_trainable * 12
    assert alone.total == pytest.approx(
        alone.weights + alone.gradients + alone.optimizer + alone.activations + CUDA_RUNTIME_BYTES
    )
    assert (alone.host, two.host) == (0, 0)
    for how in ("nf4", "int8"):
        small = estimate_memory(recipes.override(qwen, [f"model.quantize={how}"]), full, [row], 1, ALONE)
        assert alone.weights - small.weights == pytest.approx(
            full.linear_parameters * (2 - BYTES_PER_QUANTIZED_WEIGHT[how])
        )
    whole = recipes.override(qwen, ["model.lora=null", "distributed.zero_stage=2"])
    every = replace(full, num_trainable=full.num_parameters)
    trains_all = estimate_memory(whole, every, [row], 8, whole.distributed)
    assert trains_all.weights == full.num_parameters * 2
    assert trains_all.gradients + trains_all.optimizer == full.num_parameters * 14 / 8


def test_activations_without_checkpointing(qwen: recipes.Recipe, full: ModelShape) -> None:
    """Every block keeps what one block needs, in place of its input alone."""
    row = SentenceSize(1000, 50, 4, 4096, 1024)
    kept = recipes.override(qwen, ["train.activation_checkpointing=false"])
    recomputed, whole = (estimate_memory(one, full, [row], 1, DistributedArgs()) for one in (qwen, kept))
    block = 1000 * 2 * (14 * full.hidden_size + 5 * full.intermediate_size)
    inputs = 1000 * 2 * full.hidden_size * full.num_layers
    assert whole.activations - recomputed.activations == (full.num_layers - 1) * block - inputs
    assert whole.weights == recomputed.weights
    assert "fits without: --set" in _checkpointing_summary(qwen, recomputed, whole, 80.0)
    assert "does not fit without" in _checkpointing_summary(qwen, recomputed, whole, 20.0)
    assert _checkpointing_summary(kept, recomputed, whole, 80.0).endswith("GB)")


def test_memory_of_sharded_weights(qwen: recipes.Recipe, full: ModelShape) -> None:
    """By hand for Qwen-VL in bfloat16: 16 bytes of each trained weight and 2 of others are divided by 8."""
    row = SentenceSize(1000, 50, 4, 4096, 1024)
    adapters = estimate_memory(qwen, full, [row], 8, DistributedArgs(fsdp=True))
    gathered = (2 * 151_936 * 4096 + full.linear_parameters / 16) * 2  # embeddings, head, 2 of 32 blocks
    frozen, trained = full.num_parameters * 2, full.num_trainable * 16
    parts = adapters.weights + adapters.gradients + adapters.optimizer
    assert parts == pytest.approx((frozen + trained) / 8 + gathered)
    assert adapters.host == full.num_trainable * 4 * 8  # each process makes them whole
    whole = recipes.override(qwen, ["model.lora=null", "distributed.fsdp=true"])
    every = replace(full, num_trainable=full.num_parameters)
    trains_all = estimate_memory(whole, every, [row], 8, whole.distributed)
    parts = trains_all.weights + trains_all.gradients + trains_all.optimizer
    assert parts == pytest.approx(full.num_parameters * 16 / 8 + gathered)
    away = estimate_memory(whole, every, [row], 8, DistributedArgs(fsdp=True, cpu_offload=True))
    assert (away.weights, away.gradients, away.optimizer) == (pytest.approx(gathered), 0, 0)
    assert away.host == full.num_parameters * 16 + 151_936 * 4096 * 2  # and the largest weight


def test_operations_are_those_that_torch_counts(tmp_path: Path) -> None:
    """Forward and backward of one training step, counted while it runs."""
    data = prepare(tmp_path / "data", [episode(0, 4)])
    one = recipe(bridge_base(tmp_path / "base", hidden_size=64, intermediate_size=96), data)
    built = build(one)
    index = index_windows([episode(0, 4)], prompt_format(one), built.processor)
    (rows,) = sentence_sizes(index, built.model)
    made, told = prepare_and_measure(built, 0)
    model: Any = made.train()
    example = encode(
        prompt_format(one).sentence(next(prompt_format(one).windows(episode(0, 4)))), built.processor
    )
    ids, labels = (torch.from_numpy(part)[None] for part in (example.input_ids, example.labels))
    with FlopCounterMode(display=False) as counter:
        screens = torch.from_numpy(np.stack(example.pixels))
        positions, ids_of_trained = trained_tokens(labels)
        outputs = model(ids, pixels=screens, trained_positions=positions)
        token_losses(outputs, ids_of_trained).sum().backward()
    trained = int((example.labels != -100).sum())
    assert rows[0] == SentenceSize(len(example.input_ids), trained, 4, 4 * 24, sum(example.num_visual_tokens))
    assert hardware_flops(told, rows[0], False) == pytest.approx(counter.get_total_flops(), rel=0.15)
    pixels = int(np.stack(example.pixels)[:, 0].size)
    assert model_flops(told, [len(ids[0])], trained, pixels) == hardware_flops(told, rows[0], False)
    assert hardware_flops(told, rows[0], True) > hardware_flops(told, rows[0], False)


def test_lengths_are_those_of_training(tmp_path: Path) -> None:
    one = recipe(bridge_base(tmp_path / "base"), tmp_path, screens=3)
    built, of = build(one), episode(1, 7)
    (rows,) = sentence_sizes(index_windows([of], prompt_format(one), built.processor), built.model)
    wanted = [
        encode(prompt_format(one).sentence(window), built.processor)
        for window in prompt_format(one).windows(of)
    ]
    assert [row.num_tokens for row in rows] == [len(example.input_ids) for example in wanted]
    assert [row.num_screens for row in rows] == [len(example.num_visual_tokens) for example in wanted]
    assert len(typical_episode().steps) == cost.TYPICAL_STEPS


@pytest.mark.parametrize("kind", ["Qwen2VL", "Qwen2_5_VL", "Qwen3VL"])
def test_the_command_without_weights(kind: str, tmp_path: Path) -> None:
    root = write(tmp_path / "base", kind)
    (root / "model.safetensors").unlink()
    data = prepare(tmp_path / "data", [episode(0, 4), episode(1, 9)])
    arguments = [
        "estimate",
        "recipes/qwen3vl.py",
        "--set",
        f"model.base_model={root}",
        "--data",
        str(data),
        "--gpus",
        "2",
    ]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "2 episodes of" in result.output
    assert "0 (the recipe)" in result.output
    assert "visual tokens per screen" in result.output
    fits = CliRunner().invoke(app, [*arguments, "--memory", "80GB"], catch_exceptions=False)
    assert fits.exit_code == 0, fits.output
    assert "with activation checkpointing" in fits.output
    assert "fits without: --set train.activation_checkpointing=false" in fits.output
    for limit in ("1", "1GB", "0.9 GiB"):
        with pytest.raises(
            ValueError, match=f"--memory: got {limit}; .* GB are needed .* model.quantize=nf4"
        ):
            CliRunner().invoke(
                app,
                [*arguments, "--set", "train.max_packed_tokens=500000", "--memory", limit],
                catch_exceptions=False,
            )


def test_memory_is_said_as_people_say_it() -> None:
    assert [parse_gigabytes(text) for text in ("80", "80GB", "80 gb", "24.5GB")] == [80, 80, 80, 24.5]
    assert parse_gigabytes("80GiB") == pytest.approx(85.899346)
    for text in ("", "much", "-80", "0GB", "80MB", "80GB of it"):
        with pytest.raises(ValueError, match=f"--memory: got {text!r}; .*80GB"):
            parse_gigabytes(text)
