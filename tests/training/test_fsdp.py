"""Weights split over two and four processes: losses and files of one process, exact resume."""

import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.helpers import two_process
from tests.helpers.launched_runs import (
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
from tests.helpers.paths import ROOT

pytestmark = pytest.mark.slow

FULL = "model.lora=null"
FSDP = "distributed.fsdp=true"
TWO_FORWARDS = ["train.gradient_accumulation_steps=2", "train.epochs=2"]
PACKED = ["train.per_device_batch_size=1", "train.max_packed_tokens=120"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bases(tmp_path_factory.mktemp("fsdp"))


@pytest.fixture(scope="module")
def parent() -> Iterator[ProcessPoolExecutor]:
    with two_process.parent() as pool:
        yield pool


@pytest.mark.parametrize(
    ("kind", "count", "both", "more"),
    [
        ("llama_vit", 2, ["data.eval_episodes=2", "optim.lr=0.01"], []),
        ("llama_vit", 2, [FULL, *TWO_FORWARDS, *PACKED], ["distributed.cpu_offload=true"]),
        ("qwen_hf", 4, [], []),
        ("qwen_hf", 2, [FULL], []),
    ],
)
def test_several_processes_train_as_one(
    root: Path,
    parent: ProcessPoolExecutor,
    kind: str,
    count: int,
    both: list[str],
    more: list[str],
    tmp_path: Path,
) -> None:
    changes = settings(root, kind, 4 // count, *both, FSDP, *more)
    together(parent, program(kind, changes, tmp_path / "many"), tmp_path, count)
    same_steps = [f"train.gradient_accumulation_steps={2 * count}"] if PACKED[1] in both else []
    alone(kind, settings(root, kind, 4, *both, *same_steps), tmp_path / "one")
    assert_same_run(tmp_path / "one", tmp_path / "many")


def test_full_fine_tuning_in_bfloat16_keeps_float32_weights(
    root: Path, parent: ProcessPoolExecutor, tmp_path: Path
) -> None:
    """Steps of 3e-4 are below bfloat16's resolution at 0.2, the weights' size: they add up all the same."""
    steps = ["train.epochs=6", "optim.lr=0.0003", FULL]
    changes = settings(root, "llama_vit", 2, *steps, FSDP, "train.precision=bfloat16")
    together(parent, program("llama_vit", changes, tmp_path / "many"), tmp_path)
    alone("llama_vit", settings(root, "llama_vit", 4, *steps), tmp_path / "one")
    name = "model.safetensors:language.model.layers.0.mlp.up_proj.weight"
    before, one, many = (weights(f)[name] for f in (root / "llama_vit", tmp_path / "one", tmp_path / "many"))
    assert str(many.dtype) == "torch.bfloat16"
    assert float((many.float() - one).abs().mean()) < 0.35 * float((before - one).abs().mean())


@pytest.mark.parametrize("more", [[], [FULL]])
def test_killed_processes_go_on_to_the_same_bytes(
    root: Path, parent: ProcessPoolExecutor, more: list[str], tmp_path: Path
) -> None:
    """SIGKILL to both after a saved state; then with --resume."""
    changes = settings(root, "llama_vit", 1, "train.epochs=3", "train.save_minutes=1e-9", FSDP, *more)
    together(parent, program("llama_vit", changes, tmp_path / "whole"), tmp_path)
    out = tmp_path / "killed"
    codes = killed_at(parent, program("llama_vit", changes, out), out, 5, tmp_path)
    assert codes == [-signal.SIGKILL] * 2, (tmp_path / "said").read_text()[-8000:]
    assert 5 <= steps_of_unfinished(out) < 12
    together(parent, [*program("llama_vit", changes, out), "--resume"], tmp_path)
    one, two = weights(tmp_path / "whole"), weights(out)
    assert one.keys() == two.keys()
    assert all(value.equal(two[name]) for name, value in one.items())
    assert [line["step"] for line in log(out)] == list(range(1, 13))


def test_each_process_holds_its_share_and_keeps_step_without_screens(
    root: Path, parent: ProcessPoolExecutor, tmp_path: Path
) -> None:
    helper = str(ROOT / "tests" / "helpers" / "two_process_fsdp.py")
    said = together(parent, [helper, str(root / "qwen_vl"), str(tmp_path)], tmp_path)
    assert "process 0 is done" in said
    assert "process 1 is done" in said
