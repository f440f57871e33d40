"""Two processes, with and without DeepSpeed: losses and adapters of one process."""

import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.helpers.launched_runs import (
    ENVIRONMENT,
    alone,
    assert_same_run,
    log,
    program,
    settings,
    together,
)
from uivlm.training import deepspeed

pytestmark = pytest.mark.slow

LAUNCHED = ("qwen_vl", 2)  # begun as users do

PACKED = ["train.per_device_batch_size=1", "train.max_packed_tokens=120"]

needs_deepspeed = pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed")


def launched(program: list[str], tmp_path: Path) -> None:
    """Two processes that torch's launcher starts, as users do."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *program]
    run = subprocess.run(
        command, cwd=tmp_path, env=os.environ | ENVIRONMENT, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, f"{run.stdout[-2000:]}\n{run.stderr[-8000:]}"


@needs_deepspeed
@pytest.mark.parametrize(
    ("kind", "stage", "more"),
    [
        ("llama_vit", 0, []),
        ("qwen_vl", 2, []),
        ("Qwen2_5_VL", 1, []),
        ("llama_vit", 2, ["distributed.cpu_offload=true"]),
        ("llama_vit", 1, PACKED),
    ],
)
def test_two_processes_train_as_one(
    bases: Path, parent: ProcessPoolExecutor, kind: str, stage: int, more: list[str], tmp_path: Path
) -> None:
    changes = settings(bases, kind, 2, f"distributed.zero_stage={stage}", *more)
    words = program(kind, changes, tmp_path / "two")
    if (kind, stage) == LAUNCHED:
        launched(words, tmp_path)
    else:
        together(parent, words, tmp_path)
    same_steps = [*PACKED, "train.gradient_accumulation_steps=2"] if more == PACKED else []
    alone(kind, settings(bases, kind, 4) + same_steps, tmp_path / "one")
    assert [line["step"] for line in log(tmp_path / "two")] == [1, 2]
    assert_same_run(tmp_path / "one", tmp_path / "two")


def test_without_deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deepspeed, "find_spec", lambda _: None)
    assert deepspeed.deepspeed_config(0) is None
    with pytest.raises(ValueError, match="distributed.zero_stage: got 2, but DeepSpeed is not installed"):
        deepspeed.deepspeed_config(2)
