"""Small training runs of every kind of model: in several processes, and the same in one."""

import json
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch import Tensor

from tests.helpers import hf_checkpoints, two_process
from tests.helpers.hf_llama_vit_parts import write_llama, write_vision
from tests.helpers.paths import ROOT
from tests.helpers.tiny_models import base, episode, prepare, qwen_base
from uivlm.recipe import load, override
from uivlm.training.train import train

RECIPES = {
    "llama_vit": "tiny",
    "llama_parts": "llama_vit",
    "qwen_vl": "qwenvl",
    "Qwen2VL": "qwen2_5vl",
    "Qwen2_5_VL": "qwen2_5vl",
    "Qwen3VL": "qwen3vl",
}
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


def write_bases(root: Path) -> Path:
    """A base of each kind, by its name, and data with two episodes for validation."""
    prepare(
        root / "data", [episode(i, n) for i, n in enumerate((3, 1, 2, 4, 2, 3, 1, 2, 2, 1))], validation=2
    )
    base(root / "llama_vit")
    write_llama(root / "llama_parts")
    write_vision(root / "vision", "siglip")
    qwen_base(root / "qwen_vl")
    for kind in hf_checkpoints.KINDS:
        hf_checkpoints.write(root / kind, kind)
    return root


def paths(root: Path, kind: str) -> list[str]:
    """The settings of a recipe that name `root`'s base and data."""
    vision = [f"model.vision_encoder={root / 'vision'}"] if kind == "llama_parts" else []
    return [f"model.base_model={root / kind}", f"data.path={root / 'data'}", *vision]


def settings(root: Path, kind: str, batch: int, *more: str) -> list[str]:
    return [*SETTINGS, *paths(root, kind), f"train.per_device_batch_size={batch}", *more]


def program(kind: str, changes: list[str], out: Path) -> list[str]:
    words = [word for one in changes for word in ("--set", one)]
    return ["-m", "uivlm", "train", str(ROOT / "recipes" / f"{RECIPES[kind]}.py"), *words, "--out", str(out)]


def together(parent: ProcessPoolExecutor, program: list[str], tmp_path: Path, count: int = 2) -> str:
    """What several processes say that have imported everything before."""
    processes = two_process.begin(parent, program, tmp_path / "said", ENVIRONMENT, count)
    codes, said = two_process.ended(parent, processes), (tmp_path / "said").read_text()
    assert codes == [0] * count, said[-8000:]
    return said


def alone(kind: str, changes: list[str], out: Path) -> None:
    """The same run in this process."""
    train(override(load(ROOT / "recipes" / f"{RECIPES[kind]}.py"), changes), out)


def log(out: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def weights(out: Path) -> dict[str, Tensor]:
    """Every tensor that a checkpoint holds."""
    files = sorted(out.rglob("*.safetensors"))
    return {f"{file.name}:{name}": value for file in files for name, value in load_file(file).items()}


def assert_same_run(one: Path, other: Path) -> None:
    """The same losses, gradients, validation and files, but for rounding."""
    names = ("loss", "grad_norm", "learning_rate", "eval_loss", "eval_partial_match")
    for line, otherwise in zip(log(one), log(other), strict=True):
        wanted = {name: line[name] for name in names if name in line}
        assert {name: otherwise[name] for name in wanted} == pytest.approx(wanted, rel=1e-4)
    assert [f.relative_to(one) for f in sorted(one.rglob("*"))] == [
        f.relative_to(other) for f in sorted(other.rglob("*"))
    ]
    left, right = weights(one), weights(other)
    assert {name: (v.shape, v.dtype) for name, v in left.items()} == {
        name: (v.shape, v.dtype) for name, v in right.items()
    }
    for name, value in left.items():
        # Adam makes whole steps of tiny gradients: where these are only rounding, weights differ by a step
        assert float((value.float() - right[name].float()).abs().max()) < 2.5e-3, name
        assert float((value.float() - right[name].float()).abs().mean()) < 1e-5, name


def killed_at(
    parent: ProcessPoolExecutor, program: list[str], out: Path, step: int, tmp_path: Path, count: int
) -> list[int]:
    """Start a run in several processes, and SIGKILL all of them once it has logged the step. Exit codes."""
    run = two_process.begin(parent, program, tmp_path / "said", ENVIRONMENT, count)
    until = time.monotonic() + two_process.SECONDS
    while steps_of_unfinished(out) < step and time.monotonic() < until:
        time.sleep(0.005)
    two_process.kill(run)
    return two_process.ended(parent, run)


def steps_of_unfinished(out: Path) -> int:
    log = out.with_name(f"{out.name}.state") / "log.jsonl"
    return len(log.read_text().splitlines()) if log.is_file() else 0
