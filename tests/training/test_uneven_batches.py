"""Epochs whose rows do not divide by the processes: each row is trained once, and validated once."""

import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.helpers import two_process
from tests.helpers.paths import ROOT
from tests.helpers.tiny_models import base, episode, prepare
from uivlm.recipe import load, override
from uivlm.training.train import train

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine episodes to train, five to validate, of one window each."""
    root = tmp_path_factory.mktemp("uneven")
    episodes = [episode(i, n) for i, n in enumerate((3, 1, 2, 4, 2, 3, 1, 2, 5, 3, 1, 4, 2, 3))]
    prepare(root / "data", episodes, validation=5)
    base(root / "base")
    return root


def log(out: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_two_processes_train_and_validate_as_one(
    root: Path, parent: ProcessPoolExecutor, tmp_path: Path
) -> None:
    """Two processes with batch 2 share nine rows to train, and five to validate."""
    settings = [
        f"model.base_model={root / 'base'}",
        f"data.path={root / 'data'}",
        "data.eval_episodes=5",
        "train.per_device_batch_size=2",
        "train.epochs=2",
        "train.cache_vision_features=false",
        "train.num_workers=0",
        "train.report_to=[]",
        "optim.lr=0.001",
        "optim.warmup_fraction=0",
    ]
    changes = [word for one in settings for word in ("--set", one)]
    program = ["-m", "uivlm", "train", "tiny", *changes, "--out", str(tmp_path / "two")]
    processes = two_process.begin(parent, program, tmp_path / "said", ENVIRONMENT)
    assert two_process.ended(parent, processes) == [0, 0], (tmp_path / "said").read_text()[-8000:]
    alone = override(load("tiny"), settings)
    train(replace(alone, train=replace(alone.train, per_device_batch_size=4)), tmp_path / "one")
    one, two = log(tmp_path / "one"), log(tmp_path / "two")
    assert [line["step"] for line in one] == [line["step"] for line in two]
    assert sum("eval_loss" in line for line in one) == 6
    for expected, found in zip(one, two, strict=True):
        for name in expected:
            if name.startswith(("loss", "eval_", "grad_norm", "learning_rate")):
                assert found[name] == pytest.approx(expected[name], rel=1e-4), (name, expected["step"])
    a, b = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("one", "two"))
    assert max(float((a[name] - b[name]).abs().max()) for name in a) < 2.5e-3
    assert float(torch.cat([(a[name] - b[name]).abs().flatten() for name in a]).mean()) < 1e-5
