"""Damaged screens: skipped and noted up to a bound; the other rows and a resumed run do not change."""

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from tests.helpers.tiny_models import PAD, base, episode, prepare, screen, with_settings
from tests.helpers.training_runs import COLLATE, FIRST, StoppedError, small, stop_at
from uivlm.episodes.dataset import PreparedData
from uivlm.episodes.encode import Example
from uivlm.episodes.rows import SCHEMA, DamagedScreenError, decode_image, encode_image
from uivlm.models.build import build
from uivlm.models.multimodal import token_losses
from uivlm.recipe import DataArgs
from uivlm.training.dataset import BatchDataset, DamageLog
from uivlm.training.train import train

pytestmark = pytest.mark.slow

NUM_STEPS = (1, 3, 2, 1, 2, 1)


def damage(folder: Path, episodes: Sequence[str], keep: int = 60) -> Path:
    """Cut off the first screen of some episodes."""
    (file,) = folder.glob("*.parquet")
    rows = pq.read_table(file).to_pylist()
    for row in rows:
        if row["episode_id"] in episodes and row["t"] == 0:
            row["image"]["bytes"] = row["image"]["bytes"][:keep]
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), file, row_group_size=16)
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("damaged")
    base(made / "base")
    prepare(made / "fine", [episode(seed, n) for seed, n in enumerate(NUM_STEPS)])
    prepare(made / "data", [episode(seed, n) for seed, n in enumerate(NUM_STEPS)])
    damage(made / "data", ["e2"])
    return made


@pytest.mark.parametrize("image_format", ["jpeg", "png"])
@pytest.mark.parametrize("keep", [0, 3, 40, 0.5, 0.95])
def test_every_damaged_picture_is_one_error(image_format: str, keep: float) -> None:
    encoded = encode_image(screen(0, 90, 60).pixels, image_format)  # type: ignore[arg-type]
    cut = encoded[: int(keep * len(encoded)) if isinstance(keep, float) else keep]
    with pytest.raises(DamagedScreenError):
        decode_image(cut)
    with pytest.raises(DamagedScreenError):
        decode_image(encoded[:20] + bytes(len(encoded) - 20))


def test_the_error_names_file_and_episode(root: Path) -> None:
    episodes = PreparedData.open(root / "data").episodes("train")
    with pytest.raises(DamagedScreenError, match=r"train-0\.parquet: a screen of episode 'e2' is damaged"):
        episodes[2]
    assert len(episodes[1].steps) == 3


@pytest.mark.parametrize("packed", [False, True])
def test_a_run_skips_a_damaged_episode_and_resumes_exactly(
    root: Path,
    tmp_path: Path,
    packed: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = small(root, epochs=3.0)
    if packed:
        one = with_settings(one, per_device_batch_size=1, max_packed_tokens=120)
    with caplog.at_level(logging.WARNING):
        whole = train(one, tmp_path / "whole")
    noted = [record for record in caplog.records if "'e2' is damaged" in record.message]
    assert len(noted) == 1, "once, not in each epoch"
    with monkeypatch.context() as patch:
        patch.setattr("uivlm.training.callbacks.ProgressLogger.on_step_end", stop_at(4), raising=False)
        with pytest.raises(StoppedError):
            train(one, tmp_path / "cut")
    cut = train(one, tmp_path / "cut", resume=True)
    a, b = (load_file(run / "adapter_model.safetensors") for run in (whole, cut))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert json.loads((cut / "card.json").read_text())["data"][0]["damaged_episodes"] == 1


def test_workers_skip_the_same(root: Path, tmp_path: Path) -> None:
    outs = [train(small(root, epochs=1.0, num_workers=count), tmp_path / str(count)) for count in (0, 1)]
    weights = [(out / "adapter_model.safetensors").read_bytes() for out in outs]
    assert weights[0] == weights[1]
    assert json.loads((outs[1] / "card.json").read_text())["data"][0]["damaged_episodes"] == 1


def test_skipped_rows_do_not_change_the_order_of_the_others(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[list[list[int]]] = []
    original = BatchDataset.__getitems__

    def watched(self: BatchDataset, batches: list[tuple[int, ...]]) -> list[Example]:
        examples = original(self, batches)
        read[-1].append([example.input_ids.tolist() for example in examples])
        return examples

    monkeypatch.setattr(BatchDataset, "__getitems__", watched)
    for name in ("fine", "data"):
        read.append([])
        one = small(root, epochs=2.0)
        train(replace(one, data=replace(one.data, path=str(root / name))), tmp_path / name)
    fine, damaged = read
    assert len(fine) == len(damaged) == 2 * 3
    (gone,) = {tuple(row) for batch in fine for row in batch} - {
        tuple(row) for batch in damaged for row in batch
    }
    assert [[row for row in batch if tuple(row) != gone] for batch in fine] == damaged


def test_validation_leaves_a_damaged_episode_out(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The same figures as without that episode."""
    logs = []
    for name, kept in (("with", (0, 1, 2, 3, 4)), ("without", (0, 1, 2, 4))):
        data = prepare(tmp_path / name, [episode(seed, 2) for seed in kept], validation=len(kept) - 2)
        one = replace(small(root, epochs=1.0), data=DataArgs(str(damage(data, ["e3"])), eval_episodes=3))
        log = train(one, tmp_path / f"{name}_out") / "log.jsonl"
        lines = map(json.loads, log.read_text().splitlines())
        logs.append([line["eval_loss"] for line in lines if "eval_loss" in line])
    assert logs[0] == pytest.approx(logs[1], rel=1e-4)
    assert any("validation: " in record.message and "'e3'" in record.message for record in caplog.records)


def test_too_many_damaged_screens_end_the_run(root: Path, tmp_path: Path) -> None:
    prepare(tmp_path / "data", [episode(seed, n) for seed, n in enumerate(NUM_STEPS)])
    damage(tmp_path / "data", ["e1", "e3"])
    one = small(root, epochs=1.0)
    one = replace(one, data=replace(one.data, path=str(tmp_path / "data")))
    with pytest.raises(ValueError, match=r"train-0\.parquet: a screen of episode 'e[13]' is .*at most 1"):
        train(one, tmp_path / "out")


def test_the_bound_holds_for_all_processes_of_a_run(tmp_path: Path) -> None:
    first, second = (DamageLog.open(tmp_path, 3000) for _ in range(2))
    assert first.max_episodes == 3
    for number, log in enumerate((first, second, first, first)):
        error = DamagedScreenError(f"x: episode {min(number, 2)}")
        log.add(error)
    assert second.read() == {"x: episode 0", "x: episode 1", "x: episode 2"}
    with pytest.raises(ValueError, match="x: episode 3. 3 episodes .* at most 3 are, 0.1% of all"):
        second.add(DamagedScreenError("x: episode 3"))
    assert DamageLog.open(tmp_path, 5).max_episodes == 1


def test_a_batch_without_rows_has_no_loss(root: Path) -> None:
    """A forward pass all the same: under ZeRO-3 the other processes wait for it."""
    batch = COLLATE([])
    assert batch["input_ids"].tolist() == [[FIRST + PAD]]
    assert not len(batch["labels"])
    module = build(small(root)).model.requires_grad_(True).train()
    inputs = {name: batch[name] for name in ("input_ids", "trained_positions")}
    token_losses(module(**inputs), batch["labels"]).sum().backward()
    assert all(float(value.grad.abs().sum()) == 0 for value in module.parameters() if value.grad is not None)


def test_a_step_without_rows_changes_no_loss_to_nan(root: Path, tmp_path: Path) -> None:
    """The only episode of a step is damaged."""
    one = small(root, epochs=1.0, per_device_batch_size=1)
    out = train(one, tmp_path / "out")
    losses = [json.loads(line)["loss"] for line in (out / "log.jsonl").read_text().splitlines()]
    assert np.isfinite(losses).all()
    assert losses.count(0.0) == 1
