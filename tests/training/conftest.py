"""Shared by the tests of training: tiny bases, data, and screens of the pre-training; no GPU."""

from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.helpers.launched_runs import write_bases
from tests.helpers.tiny_models import base, prepare, qwen_base
from tests.helpers.training_runs import EPISODES
from uivlm.episodes.sentence import ScreenPiece
from uivlm.models.bridge.files import load_base
from uivlm.models.bridge.model import TINY_BASE
from uivlm.models.bridge.processor import BridgeProcessor
from uivlm.training.tiny_base import pretrain
from uivlm.training.tiny_base.random_screens import random_screen
from uivlm.training.tiny_base.screen_index import ScreenIndex


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("training")
    base(made / "base")
    qwen_base(made / "qwen")
    prepare(made / "data", EPISODES)
    return made


@pytest.fixture(scope="session")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny base of each kind of recipe, and data."""
    return write_bases(tmp_path_factory.mktemp("bases"))


@pytest.fixture(autouse=True)
def _on_the_cpu(quick_runs: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)


@pytest.fixture(scope="module")
def reader() -> BridgeProcessor:
    module, tokenizer = load_base(TINY_BASE)
    return BridgeProcessor(tokenizer, module.config)


@pytest.fixture(scope="module")
def stocked(reader: BridgeProcessor) -> tuple[ScreenIndex, list[NDArray[np.int64]]]:
    rng, module = Random(6), load_base(TINY_BASE)[0].float()
    screens = [random_screen(rng) for _ in range(150)]
    drawn = [(one, torch.from_numpy(reader.pixel_values(ScreenPiece(one.screen)))) for one in screens]
    shelf, names, features = pretrain.index_screens(module, reader, drawn)
    assert [len(one) for one in features] == [len(one) for one in names]
    return shelf, names


@pytest.fixture(scope="module")
def shelf(stocked: tuple[ScreenIndex, list[NDArray[np.int64]]]) -> ScreenIndex:
    return stocked[0]


@pytest.fixture(scope="module")
def names(stocked: tuple[ScreenIndex, list[NDArray[np.int64]]]) -> list[NDArray[np.int64]]:
    return stocked[1]
