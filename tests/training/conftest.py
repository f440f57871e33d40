"""What tests of training share: a small base of each kind and data; no GPU."""

from pathlib import Path

import pytest

from tests.helpers.tiny_models import (
    base,
    prepare,
    qwen_base,
)
from tests.helpers.training_runs import EPISODES


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("training")
    base(made / "base")
    qwen_base(made / "qwen")
    prepare(made / "data", EPISODES)
    return made


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
