"""Epochs whose rows do not divide by the processes: each row is trained once, and validated once."""

import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from safetensors.torch import load_file
from torch.utils.data import BatchSampler

from tests.helpers import two_process
from tests.helpers.paths import ROOT
from tests.helpers.tiny_models import base, episode, prepare
from tests.helpers.training_runs import COLLATE, windows
from uivlm.episodes.encode import IGNORE
from uivlm.recipe import load, override
from uivlm.training.collator import LOG_ONLY_KEYS
from uivlm.training.dataset import FilledDataset, LengthGroupedSampler
from uivlm.training.mixture import MixtureSampler
from uivlm.training.train import train

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("num_rows", [1, 3, 8, 9, 15, 16])
@pytest.mark.parametrize(("batch_size", "num_processes"), [(1, 1), (3, 1), (1, 2), (2, 2), (3, 4)])
def test_processes_share_each_row_once(num_rows: int, batch_size: int, num_processes: int) -> None:
    """As accelerate shards the batches: it repeats no row, since the fillers leave it nothing to complete."""
    lengths = [5, 2, 4, 1, 3, 2, 2, 6] * 2
    sampler = LengthGroupedSampler(
        lengths,
        MixtureSampler((num_rows,), (1.0,)),
        2 * batch_size * num_processes,
        0,
        batch_size,
        num_processes,
    )
    batches = BatchSampler(sampler, batch_size, drop_last=False)
    assert len(sampler) == len(list(sampler))
    shards = [list(batches)]
    if num_processes > 1:
        shards = [list(BatchSamplerShard(batches, num_processes, rank)) for rank in range(num_processes)]
    assert len({tuple(map(len, shard)) for shard in shards}) == 1, "as many rows in each forward"
    indices = [index for shard in shards for batch in shard for index in batch]
    assert sorted(index for index in indices if index >= 0) == list(range(num_rows))
    fillers = [index for index in indices if index < 0]
    assert len(fillers) < batch_size * num_processes
    assert {lengths[~index] for index in fillers} <= {min(lengths[:num_rows])}


def test_a_filler_has_nothing_to_train() -> None:
    rows = windows()
    row, filler = rows[1], FilledDataset(rows)[~1]
    assert FilledDataset(rows)[1].labels.tolist() == row.labels.tolist()
    assert np.array_equal(filler.input_ids, row.input_ids)
    assert np.array_equal(filler.pixels, row.pixels)
    assert (filler.labels == IGNORE).all()
    assert not filler.first_window, "it is counted as no episode"
    batch = COLLATE([filler])
    assert {name: batch[name].tolist() for name in LOG_ONLY_KEYS} == {
        "action_types": [],
        "first_window": [False],
    }


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
    """Two processes with batch 2 share the ninth row and three fillers, and five rows to validate."""
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
