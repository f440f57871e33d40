"""Runs of every kind of recipe in two and four processes: killed and resumed, they end in the same bytes.

All combinations are marked `exhaustive`; `make test` has each kind and each sharding at least once. The runs
are those of `uivlm train` with the recipes' own settings, but for sizes that make eight steps of small data.
"""

import signal
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import two_process
from tests.helpers.launched_runs import (
    RECIPES,
    killed_at,
    log,
    paths,
    program,
    steps_of_unfinished,
    together,
)
from uivlm.training.callbacks import latest_checkpoint

SHARDINGS = {
    "none": [],
    "zero2": ["distributed.zero_stage=2"],
    "fsdp": ["distributed.fsdp=true"],
    "full": ["distributed.fsdp=true", "model.lora=null"],
}
IN_MAKE_TEST = {
    ("llama_vit", "none", 4),
    ("llama_parts", "zero2", 2),
    ("qwen_vl", "full", 2),
    ("Qwen2VL", "fsdp", 2),
    ("Qwen2_5_VL", "none", 2),
    ("Qwen3VL", "none", 2),
}
RUNS = list(product(RECIPES, SHARDINGS, (2, 4)))
SIZES = [
    "train.epochs=4",
    "train.num_workers=1",
    "train.report_to=[]",
    "optim.lr=0.001",  # a step changes weights of bfloat16
]
# tokens of a packed row: the small data is then five or six rows; unpacked, it is eight
PACKED = {"qwen_vl": 120, "Qwen2VL": 320, "Qwen2_5_VL": 320, "Qwen3VL": 320}
SAVING = "train.save_minutes=1e-9"  # a state at every step; the uninterrupted run has none
KILLED_AT = 4  # of eight steps, two in each epoch: the state of step 3 is whole


def settings(root: Path, kind: str, sharding: str, count: int) -> list[str]:
    """A step reads four rows. The recipe `tiny` has no dropout, and workers read no cached features."""
    rows = f"max_packed_tokens={PACKED[kind]}" if kind in PACKED else "per_device_batch_size=1"
    changes = [
        *SIZES,
        f"train.{rows}",
        f"train.gradient_accumulation_steps={4 // count}",
        *SHARDINGS[sharding],
    ]
    if kind == "llama_vit":
        changes.append("train.cache_vision_features=false")
        changes += [] if sharding == "full" else ["model.lora.dropout=0.1"]
    return [*paths(root, kind), *changes]


def files(out: Path) -> dict[str, bytes]:
    """Of a checkpoint, all files but those with times or `train.save_minutes`."""
    names = [path for path in sorted(out.rglob("*")) if path.is_file()]
    others = ("card.json", "log.jsonl", "curves.html", "recipe.json")
    return {str(path.relative_to(out)): path.read_bytes() for path in names if path.name not in others}


def steps(out: Path) -> list[dict[str, Any]]:
    """What the log has of each step, but for speed and memory."""
    kept = ("step", "epoch", "grad_norm", "learning_rate")
    return [{k: v for k, v in line.items() if k in kept or k.startswith("loss")} for line in log(out)]


def assert_no_workers(parent: ProcessPoolExecutor) -> None:
    """Those of a killed process end soon after it."""
    until = time.monotonic() + 20
    while two_process.num_running(parent) and time.monotonic() < until:
        time.sleep(0.01)
    assert two_process.num_running(parent) == 0


@pytest.mark.parametrize(
    ("kind", "sharding", "count"),
    [
        pytest.param(*run, marks=pytest.mark.slow if run in IN_MAKE_TEST else pytest.mark.exhaustive)
        for run in RUNS
    ],
)
def test_a_killed_run_resumes_to_the_same_bytes(
    bases: Path, parent: ProcessPoolExecutor, kind: str, sharding: str, count: int, tmp_path: Path
) -> None:
    """SIGKILL to all processes; then the same command with --resume."""
    if sharding == "zero2":
        pytest.importorskip("deepspeed")
    changes = settings(bases, kind, sharding, count)
    whole, out = tmp_path / "whole", tmp_path / "killed"
    together(parent, program(kind, changes, whole), tmp_path, count)
    assert len(log(whole)) == 8
    changes.append(SAVING)
    codes = killed_at(parent, program(kind, changes, out), out, KILLED_AT, tmp_path, count)
    assert codes == [-signal.SIGKILL] * count, (tmp_path / "said").read_text()[-8000:]
    assert KILLED_AT <= steps_of_unfinished(out) < 8
    assert not out.exists()
    assert_no_workers(parent)
    state = out.with_name("killed.state")
    with pytest.raises(ValueError, match=f"used {count} processes; got 1"):
        latest_checkpoint(state)
    together(parent, [*program(kind, changes, out), "--resume"], tmp_path, count)
    assert steps(out) == steps(whole)
    assert files(out) == files(whole)
