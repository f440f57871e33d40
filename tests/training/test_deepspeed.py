"""Two processes, with and without DeepSpeed: losses and adapters of one process, exact resume."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from random import Random

import pytest
from safetensors.torch import load_file

from tests.helpers import two_process
from tests.helpers.hf_checkpoints import write
from tests.helpers.paths import ROOT
from tests.helpers.tiny_models import base, episode, prepare, qwen_base
from uivlm.recipe import Recipe, load, override
from uivlm.training import deepspeed
from uivlm.training.callbacks import latest_checkpoint
from uivlm.training.train import train

pytestmark = pytest.mark.slow

RECIPES = {"qwen_vl": "qwenvl", "llama_vit": "tiny", "qwen_hf": "qwen2_5vl"}
# begun as users do: without DeepSpeed, and with the most of it
LAUNCHED = {("llama_vit", 0), ("qwen_vl", 3)}
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
    "TORCH_EXTENSIONS_DIR": "/dev/null/extensions",  # where a compiler would write: no op is to be compiled
}
SETTINGS = [
    "train.gradient_accumulation_steps=1",
    "train.max_packed_tokens=null",
    "train.precision=float32",
    "train.epochs=1",
    "train.cache_vision_features=false",
    "train.num_workers=0",
]
SETTINGS += ["model.lora.dropout=0", "optim.lr=0.001", "optim.warmup_fraction=0", "train.report_to=[]"]

PACKED = ["train.per_device_batch_size=1", "train.max_packed_tokens=120"]

needs_deepspeed = pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("zero")
    prepare(root / "data", [episode(i, n) for i, n in enumerate((3, 1, 2, 4, 2, 3, 1, 2))])
    qwen_base(root / "qwen_vl")
    base(root / "llama_vit")
    write(root / "qwen_hf", "Qwen2_5_VL")
    return root


def settings(root: Path, kind: str, stage: int, batch: int) -> list[str]:
    own = [f"model.base_model={root / kind}", f"data.path={root / 'data'}"]
    return [*SETTINGS, *own, f"distributed.zero_stage={stage}", f"train.per_device_batch_size={batch}"]


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


def in_two(parent: ProcessPoolExecutor, program: list[str], tmp_path: Path) -> str:
    """What two processes say that have imported everything before."""
    processes = two_process.begin(parent, program, tmp_path / "said", ENVIRONMENT)
    codes, said = two_process.ended(parent, processes), (tmp_path / "said").read_text()
    assert codes == [0, 0], said[-8000:]
    return said


@needs_deepspeed
@pytest.mark.parametrize(
    ("kind", "stage", "more"),
    [
        ("llama_vit", 0, []),
        ("qwen_vl", 2, []),
        ("qwen_vl", 3, []),
        ("llama_vit", 3, PACKED),
        ("qwen_hf", 3, []),
        ("llama_vit", 2, ["distributed.cpu_offload=true"]),
    ],
)
def test_two_processes_train_as_one(
    root: Path, parent: ProcessPoolExecutor, kind: str, stage: int, more: list[str], tmp_path: Path
) -> None:
    recipe = ROOT / "recipes" / f"{RECIPES[kind]}.py"
    changes = [word for one in settings(root, kind, stage, 2) + more for word in ("--set", one)]
    program = ["-m", "uivlm", "train", str(recipe), *changes, "--out", str(tmp_path / "two")]
    if (kind, stage) in LAUNCHED:
        launched(program, tmp_path)
    else:
        in_two(parent, program, tmp_path)
    same_steps = [*PACKED, "train.gradient_accumulation_steps=2"] if more == PACKED else []
    alone: Recipe = override(load(recipe), settings(root, kind, 0, 4) + same_steps)
    train(alone, tmp_path / "one")
    logs = [
        [json.loads(line) for line in (tmp_path / out / "log.jsonl").read_text().splitlines()]
        for out in ("one", "two")
    ]
    assert [line["step"] for line in logs[1]] == [1, 2]
    for one, two in zip(*logs, strict=True):
        for name in ("loss", "grad_norm", "learning_rate"):
            assert two[name] == pytest.approx(one[name], rel=1e-4), name
    one, two = (load_file(tmp_path / out / "adapter_model.safetensors") for out in ("one", "two"))
    assert one.keys() == two.keys()
    for name, value in one.items():
        assert value.shape == two[name].shape
        # Adam makes whole steps of tiny gradients: where these are only rounding, adapters differ by a step
        assert float((value - two[name]).abs().max()) < 2.5e-3
        assert float((value - two[name]).abs().mean()) < 1e-5


def _steps(out: Path) -> int:
    """How far an unfinished run is."""
    log = out.with_name(f"{out.name}.state") / "log.jsonl"
    return len(log.read_text().splitlines()) if log.is_file() else 0


@needs_deepspeed
@pytest.mark.parametrize("stage", [0, 2, 3])
def test_two_killed_processes_go_on_to_the_same_bytes(
    root: Path, parent: ProcessPoolExecutor, stage: int, tmp_path: Path
) -> None:
    """SIGKILL to all of them at a random step; then with --resume."""
    some = [*settings(root, "llama_vit", stage, 1), "train.epochs=6", "train.save_minutes=1e-9"]
    some += ["model.lora.dropout=0.1"]
    changes = [word for one in some for word in ("--set", one)]
    program = ["-m", "uivlm", "train", str(ROOT / "recipes" / "tiny.py"), *changes, "--out"]
    in_two(parent, [*program, str(tmp_path / "whole")], tmp_path)
    out, last = tmp_path / "killed", Random(stage).randrange(4, 15)  # a state was saved before
    run = two_process.begin(parent, [*program, str(out)], tmp_path / "said", ENVIRONMENT)
    until = time.monotonic() + two_process.SECONDS
    while _steps(out) < last and time.monotonic() < until:
        time.sleep(0.005)
    two_process.kill(run)
    assert two_process.ended(parent, run) == [-signal.SIGKILL] * 2, (tmp_path / "said").read_text()[-8000:]
    assert last <= _steps(out) < 24
    assert not out.exists()
    with pytest.raises(ValueError, match="used 2 processes; got 1"):
        latest_checkpoint(out.with_name("killed.state"))
    in_two(parent, [*program, str(out), "--resume"], tmp_path)
    for name in ("adapter_model.safetensors", "projector.safetensors"):
        one, two = (load_file(folder / name) for folder in (tmp_path / "whole", out))
        assert all(one[key].equal(two[key]) for key in one), name
    steps = [json.loads(line)["step"] for line in (out / "log.jsonl").read_text().splitlines()]
    assert steps == list(range(1, 25))


@needs_deepspeed
def test_a_process_without_screens_keeps_step(
    root: Path, parent: ProcessPoolExecutor, tmp_path: Path
) -> None:
    said = in_two(
        parent, [str(ROOT / "tests" / "helpers" / "two_process_zero3.py"), str(root / "qwen_vl")], tmp_path
    )
    assert "process 0 is done" in said
    assert "process 1 is done" in said


def test_without_deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deepspeed, "find_spec", lambda _: None)
    assert deepspeed.deepspeed_config(0) is None
    with pytest.raises(ValueError, match="distributed.zero_stage: got 2, but DeepSpeed is not installed"):
        deepspeed.deepspeed_config(2)
