"""One checkpoint of random adapters for all tests of this folder."""

import pytest

from tests.helpers.engines import Saved, save_random_adapters
from uivlm.inference.load import LoadedCheckpoint, load_checkpoint


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return save_random_adapters(tmp_path_factory.mktemp("saved"))


@pytest.fixture(scope="module")
def loaded(saved: Saved) -> LoadedCheckpoint:
    return load_checkpoint(saved.folder)
