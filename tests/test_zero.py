"""DeepSpeed's stages in two processes: the same losses and adapters as one process without it."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from bridges import base, episode, prepare, qwen_base
from safetensors.torch import load_file
from successors import write

from uivlm.recipe import Recipe, load, override
from uivlm.training import zero
from uivlm.training.trainer import train

ROOT = Path(__file__).parents[1]
RECIPES = {"qwen_vl": "qwenvl", "llama_vit": "tiny", "qwen_hf": "qwen2_5vl"}
SETTINGS = ["train.accumulate=1", "train.precision=float32", "train.epochs=1", "train.keep_features=false"]
SETTINGS += ["model.lora.dropout=0", "train.lr=0.001", "train.warmup=0"]

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
    own = [f"model.base={root / kind}", f"data.folder={root / 'data'}"]
    return [*SETTINGS, *own, f"train.zero={stage}", f"train.batch={batch}"]


def in_two(program: list[str]) -> str:
    """What two processes say; each has one thread."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, *program], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@needs_deepspeed
@pytest.mark.parametrize(
    ("kind", "stage"), [("qwen_vl", 2), ("qwen_vl", 3), ("llama_vit", 3), ("qwen_hf", 3)]
)
def test_two_processes_train_as_one(root: Path, kind: str, stage: int, tmp_path: Path) -> None:
    recipe = ROOT / "recipes" / f"{RECIPES[kind]}.py"
    changes = [word for one in settings(root, kind, stage, 2) for word in ("--set", one)]
    in_two(["-m", "uivlm", "train", str(recipe), *changes, "--out", str(tmp_path / "two")])
    alone: Recipe = override(load(recipe), settings(root, kind, 0, 4))
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
        # Adam makes whole steps of tiny gradients: where they are rounding alone, adapters may differ by a step
        assert float((value - two[name]).abs().max()) < 2.5e-3
        assert float((value - two[name]).abs().mean()) < 1e-5


@needs_deepspeed
def test_a_process_without_screens_keeps_step(root: Path) -> None:
    said = in_two([str(ROOT / "tests" / "two_steps.py"), str(root / "qwen_vl")])
    assert "process 0 is done" in said
    assert "process 1 is done" in said


def test_without_deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zero, "find_spec", lambda _: None)
    assert zero.deepspeed(0) is None
    with pytest.raises(ValueError, match="train.zero is 2, but DeepSpeed is not installed here"):
        zero.deepspeed(2)
