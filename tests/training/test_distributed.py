"""The processes of a run: each on its own device, one look at the output folder, one end."""

import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers import two_process
from tests.helpers.launched_runs import ENVIRONMENT, RECIPES, program, settings
from tests.helpers.paths import ROOT
from uivlm.models.build import build
from uivlm.models.loaded_model import LoadedModel
from uivlm.recipe import Recipe, load, override
from uivlm.training import train as training
from uivlm.training.mixture import open_datasets
from uivlm.training.trainer import training_arguments

pytestmark = pytest.mark.slow


class StopError(Exception):
    pass


def recipe_of(bases: Path, kind: str, *more: str) -> Recipe:
    return override(load(ROOT / "recipes" / f"{RECIPES[kind]}.py"), settings(bases, kind, 2, *more))


def test_the_device_is_set_before_weights_are_read(
    bases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, Any]] = []

    def read(recipe: Recipe, init_device: str | None = None, device: Any = None) -> LoadedModel:
        if init_device == "meta":  # to count tokens: no weights are read
            return build(recipe, init_device)
        calls.append(("read", device))
        raise StopError

    recipe = recipe_of(bases, "llama_vit")
    training._trainable_windows(recipe, open_datasets(recipe))  # as local rank 0 does, for which others wait
    monkeypatch.setenv("LOCAL_RANK", "5")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.set_device", lambda device: calls.append(("set", device)))
    monkeypatch.setattr(training, "build", read)
    with pytest.raises(StopError):
        training.train(recipe, tmp_path / "out")
    assert calls == [("set", torch.device("cuda", 5)), ("read", torch.device("cuda", 5))]


@pytest.mark.parametrize("kind", ["llama_vit", "qwen_vl", "Qwen2_5_VL"])
def test_weights_are_read_to_the_device(bases: Path, kind: str) -> None:
    """Meta stands for a GPU: there is no other second device."""
    model = build(recipe_of(bases, kind), device=torch.device("meta")).model
    assert {value.device.type for value in model.parameters()} == {"meta"}


def test_one_process_uses_one_of_several_gpus(
    bases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Trainer would use DataParallel, which cannot split our batches."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.setattr("torch.cuda.set_device", lambda _: None)
    args = training_arguments(recipe_of(bases, "llama_vit"), tmp_path, 0)
    assert (args.n_gpu, args.train_batch_size) == (1, 1)  # a batch of rows is one item
    assert str(args.device) == "cuda:0"


def test_the_first_process_looks_for_all(bases: Path, parent: ProcessPoolExecutor, tmp_path: Path) -> None:
    """A faster process of another machine has not made the folder that process 0 finds.

    Process 0 removes the state when a slower one has read the best weights.
    """
    assert _faulty(bases, parent, "late", tmp_path) == [0, 0], (tmp_path / "said").read_text()[-4000:]
    assert (tmp_path / "out").is_dir()


def test_a_failing_process_ends_the_others(bases: Path, parent: ProcessPoolExecutor, tmp_path: Path) -> None:
    started = time.monotonic()
    codes, said = _faulty(bases, parent, "fails", tmp_path), (tmp_path / "said").read_text()
    assert codes == [1, 2], said[-4000:]
    assert time.monotonic() - started < 60  # process 0 sleeps for 120 seconds
    assert "process 1 failed (ValueError: this row is broken): this process ends, too" in said
    assert not (tmp_path / "out").exists()


def _faulty(bases: Path, parent: ProcessPoolExecutor, how: str, tmp_path: Path) -> list[int]:
    changes = settings(bases, "llama_vit", 1, "train.epochs=2", "data.eval_episodes=1")
    _, _, *words = program("llama_vit", changes, tmp_path / "out")
    file = str(ROOT / "tests" / "helpers" / "faulty_processes.py")
    processes = two_process.begin(parent, [file, how, *words], tmp_path / "said", ENVIRONMENT)
    return two_process.ended(parent, processes)
