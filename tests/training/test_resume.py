"""Resuming with dropout and data loader workers, and when checkpoints are saved."""

import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerControl, TrainerState, TrainingArguments

from tests.helpers.tiny_models import base, prepare, recipe
from tests.helpers.training_runs import EPISODES, StoppedError, dropping, stop_at
from uivlm.training.callbacks import SaveOrStop, latest_checkpoint
from uivlm.training.train import train


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("resume")
    base(made / "base")
    prepare(made / "data", EPISODES)
    return made


@pytest.fixture(scope="module")
def whole(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.cuda.is_available", lambda: False)
        return train(dropping(root), tmp_path_factory.mktemp("whole") / "out")


def count_workers(counts: dict[int, int]) -> Callable[..., None]:
    """Count the workers of this run at each step."""
    others = set(multiprocessing.active_children())  # of the run that an exception has stopped

    def on_step_end(self: Any, args: Any, state: Any, control: Any, **_: Any) -> None:
        counts[state.global_step] = len(set(multiprocessing.active_children()) - others)

    return on_step_end


def losses(out: Path) -> list[float]:
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def assert_same_weights(a: Path, b: Path) -> None:
    for name in ("adapter_model.safetensors", "projector.safetensors"):
        expected, found = load_file(a / name), load_file(b / name)
        assert all(torch.equal(value, found[key]) for key, value in expected.items()), name


@pytest.mark.slow
@pytest.mark.parametrize("num_steps", [5, 7])  # the end of the first epoch, the middle of the second
def test_dropout_and_workers_resume_to_the_same_bytes(
    root: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_steps: int
) -> None:
    one, counts = dropping(root), dict[int, int]()
    with monkeypatch.context() as patch:
        patch.setattr(
            "uivlm.training.callbacks.ProgressLogger.on_step_end", stop_at(num_steps + 1), raising=False
        )
        with pytest.raises(StoppedError):
            train(one, tmp_path / "out")
    newest = latest_checkpoint(tmp_path / "out.state")
    assert newest is not None
    assert newest.name == f"checkpoint-{num_steps}"
    monkeypatch.setattr(
        "uivlm.training.callbacks.ProgressLogger.on_step_end", count_workers(counts), raising=False
    )
    out = train(one, tmp_path / "out", resume=True)
    assert_same_weights(whole, out)
    assert losses(out) == losses(whole)
    assert list(counts) == list(range(num_steps + 1, 16))
    assert max(counts.values()) == 1, "the resumed epoch's worker has ended before the next one starts"


class Clock:
    """Monotonic seconds that a test advances."""

    def __init__(self) -> None:
        self.seconds = 1e6

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("uivlm.training.callbacks.time", made)
    return made


@pytest.mark.slow
def test_a_checkpoint_is_saved_every_few_minutes(
    root: Path, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of one minute, a checkpoint after 2.5 minutes: with steps 3, 6, 9 and 12. Two are kept."""
    complete: dict[int, str] = {}  # before each step

    def on_step_begin(self: Any, args: Any, state: Any, control: Any, **_: Any) -> None:
        files = (tmp_path / "out.state").glob("checkpoint-*/complete.json")
        complete[state.global_step + 1] = " ".join(
            sorted(file.parent.name.rpartition("-")[2] for file in files)
        )
        clock.seconds += 60

    monkeypatch.setattr("uivlm.training.callbacks.ProgressLogger.on_step_begin", on_step_begin, raising=False)
    train(recipe(root / "base", root / "data", epochs=3.0, save_minutes=2.5), tmp_path / "out")
    assert list(complete.values()) == [*[""] * 3, *["3"] * 3, *["3 6"] * 3, *["6 9"] * 3, *["12 9"] * 3]


def test_processes_save_by_the_clock_of_rank_0(clock: Clock) -> None:
    """The clock of another process counts for nothing. A process does what all agree on."""
    sent: list[tuple[bool, ...]] = []
    agreed = [False, False]
    callback = SaveOrStop(lambda *flags: (sent.append(flags), agreed)[1], 30.0)

    def step(rank: int) -> TrainerControl:
        state = TrainerState(global_step=1, max_steps=9, is_world_process_zero=rank == 0)
        control = TrainerControl()
        callback.on_step_end(arguments, state, control)
        return control

    arguments = cast(TrainingArguments, None)  # the callback reads none
    clock.seconds += 31 * 60
    assert not step(1).should_save
    assert not step(0).should_save
    assert sent == [(False, False), (False, True)], "stop, save"
    agreed[1] = True
    assert step(1).should_save
    assert not step(1).should_training_stop
    callback.on_save(arguments, TrainerState(), TrainerControl())
    step(0)
    assert sent[-1] == (False, False), "the clock starts again"
