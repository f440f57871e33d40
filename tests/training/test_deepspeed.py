"""Two processes, with and without DeepSpeed: losses and adapters of one process, exact resume."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from random import Random

import pytest

from tests.helpers import two_process
from tests.helpers.launched_runs import (
    ENVIRONMENT,
    alone,
    assert_same_run,
    killed_at,
    log,
    program,
    settings,
    steps_of_unfinished,
    together,
    weights,
    write_bases,
)
from uivlm.training import deepspeed
from uivlm.training.callbacks import latest_checkpoint

pytestmark = pytest.mark.slow

# begun as users do: without DeepSpeed, and with the most of it
LAUNCHED = {("llama_vit", 0), ("qwen_vl", 2)}

PACKED = ["train.per_device_batch_size=1", "train.max_packed_tokens=120"]

needs_deepspeed = pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bases(tmp_path_factory.mktemp("zero"))


def launched(program: list[str], tmp_path: Path) -> None:
    """Two processes that torch's launcher starts, as users do."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *program]
    run = subprocess.run(
        command, cwd=tmp_path, env=os.environ | ENVIRONMENT, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, f"{run.stdout[-2000:]}\n{run.stderr[-8000:]}"


@pytest.fixture(scope="module")
def parent() -> Iterator[ProcessPoolExecutor]:
    with two_process.parent() as pool:
        yield pool


@needs_deepspeed
@pytest.mark.parametrize(
    ("kind", "stage", "more"),
    [
        ("llama_vit", 0, []),
        ("qwen_vl", 2, []),
        ("qwen_hf", 1, []),
        ("llama_vit", 2, ["distributed.cpu_offload=true"]),
        ("llama_vit", 1, PACKED),
    ],
)
def test_two_processes_train_as_one(
    root: Path, parent: ProcessPoolExecutor, kind: str, stage: int, more: list[str], tmp_path: Path
) -> None:
    changes = settings(root, kind, 2, f"distributed.zero_stage={stage}", *more)
    words = program(kind, changes, tmp_path / "two")
    if (kind, stage) in LAUNCHED and not more:
        launched(words, tmp_path)
    else:
        together(parent, words, tmp_path)
    same_steps = [*PACKED, "train.gradient_accumulation_steps=2"] if more == PACKED else []
    alone(kind, settings(root, kind, 4) + same_steps, tmp_path / "one")
    assert [line["step"] for line in log(tmp_path / "two")] == [1, 2]
    assert_same_run(tmp_path / "one", tmp_path / "two")


@needs_deepspeed
@pytest.mark.parametrize("stage", [0, 2])
def test_two_killed_processes_go_on_to_the_same_bytes(
    root: Path, parent: ProcessPoolExecutor, stage: int, tmp_path: Path
) -> None:
    """SIGKILL to all of them at a random step; then with --resume."""
    changes = settings(root, "llama_vit", 1, f"distributed.zero_stage={stage}", "train.epochs=6")
    changes += ["train.save_minutes=1e-9", "model.lora.dropout=0.1"]
    together(parent, program("llama_vit", changes, tmp_path / "whole"), tmp_path)
    out, last = tmp_path / "killed", Random(stage).randrange(4, 15)  # a state was saved before
    codes = killed_at(parent, program("llama_vit", changes, out), out, last, tmp_path)
    assert codes == [-signal.SIGKILL] * 2, (tmp_path / "said").read_text()[-8000:]
    assert last <= steps_of_unfinished(out) < 24
    assert not out.exists()
    with pytest.raises(ValueError, match="used 2 processes; got 1"):
        latest_checkpoint(out.with_name("killed.state"))
    together(parent, [*program("llama_vit", changes, out), "--resume"], tmp_path)
    one, two = weights(tmp_path / "whole"), weights(out)
    assert one.keys() == two.keys()
    assert all(value.equal(two[name]) for name, value in one.items())
    assert [line["step"] for line in log(out)] == list(range(1, 25))


def test_without_deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deepspeed, "find_spec", lambda _: None)
    assert deepspeed.deepspeed_config(0) is None
    with pytest.raises(ValueError, match="distributed.zero_stage: got 2, but DeepSpeed is not installed"):
        deepspeed.deepspeed_config(2)
