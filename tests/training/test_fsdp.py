"""Weights split over two and four processes: losses and files of one process."""

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.helpers.launched_runs import (
    alone,
    assert_same_run,
    program,
    settings,
    together,
    weights,
)
from tests.helpers.paths import ROOT

pytestmark = pytest.mark.slow

FULL = "model.lora=null"
FSDP = "distributed.fsdp=true"
TWO_FORWARDS = ["train.gradient_accumulation_steps=2", "train.epochs=2"]
PACKED = ["train.per_device_batch_size=1", "train.max_packed_tokens=120"]


@pytest.mark.parametrize(
    ("kind", "count", "both", "more"),
    [
        ("llama_vit", 2, ["data.eval_episodes=2", "optim.lr=0.01"], []),
        ("llama_vit", 2, [FULL, *TWO_FORWARDS, *PACKED], ["distributed.cpu_offload=true"]),
        ("Qwen2_5_VL", 4, [], []),
        ("Qwen2_5_VL", 2, [FULL], []),
    ],
)
def test_several_processes_train_as_one(
    bases: Path,
    parent: ProcessPoolExecutor,
    kind: str,
    count: int,
    both: list[str],
    more: list[str],
    tmp_path: Path,
) -> None:
    changes = settings(bases, kind, 4 // count, *both, FSDP, *more)
    together(parent, program(kind, changes, tmp_path / "many"), tmp_path, count)
    same_steps = [f"train.gradient_accumulation_steps={2 * count}"] if PACKED[1] in both else []
    alone(kind, settings(bases, kind, 4, *both, *same_steps), tmp_path / "one")
    assert_same_run(tmp_path / "one", tmp_path / "many")


def test_full_fine_tuning_in_bfloat16_keeps_float32_weights(
    bases: Path, parent: ProcessPoolExecutor, tmp_path: Path
) -> None:
    """Steps of 3e-4 are below bfloat16's resolution at 0.2, the weights' size: they add up all the same."""
    steps = ["train.epochs=6", "optim.lr=0.0003", FULL]
    changes = settings(bases, "llama_vit", 2, *steps, FSDP, "train.precision=bfloat16")
    together(parent, program("llama_vit", changes, tmp_path / "many"), tmp_path)
    alone("llama_vit", settings(bases, "llama_vit", 4, *steps), tmp_path / "one")
    name = "model.safetensors:language.model.layers.0.mlp.up_proj.weight"
    before, one, many = (weights(f)[name] for f in (bases / "llama_vit", tmp_path / "one", tmp_path / "many"))
    assert str(many.dtype) == "torch.bfloat16"
    assert float((many.float() - one).abs().mean()) < 0.35 * float((before - one).abs().mean())


def test_each_process_holds_its_share_and_keeps_step_without_screens(
    bases: Path, parent: ProcessPoolExecutor, tmp_path: Path
) -> None:
    helper = str(ROOT / "tests" / "helpers" / "two_process_fsdp.py")
    said = together(parent, [helper, str(bases / "qwen_vl"), str(tmp_path)], tmp_path)
    assert "process 0 is done" in said
    assert "process 1 is done" in said
