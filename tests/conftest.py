"""Shared by all tests: no network, and one thread per process, because several tests share a machine."""

import gc
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by torch when a test imports it


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-golden", action="store_true", help="Write tests/golden/losses instead of comparing."
    )


@pytest.fixture
def write_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--write-golden"))


@pytest.fixture(scope="session")
def parent() -> Iterator[ProcessPoolExecutor]:
    """A process that has imported torch; programs fork from it (tests/helpers/two_process.py)."""
    from tests.helpers import two_process

    with two_process.parent() as pool:
        yield pool


@pytest.fixture(scope="session")
def quick_runs() -> Iterator[None]:
    """Else most of a small run would be the search for garbage in all modules, and measuring the peak."""
    from tests.helpers import two_process
    from uivlm.training import metrics

    gc.freeze()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(metrics.MATRIX_SIZES, "cpu", two_process.MATRIX_SIZE)
        yield


@pytest.fixture(scope="module")
def adb() -> Iterator[Any]:
    """A private adb server."""
    from uivlm.devices.adb.server import private_server

    with private_server() as server:
        yield server


@pytest.fixture
def wired(adb: Any) -> Iterator[Any]:
    """A fake phone behind it: the device, the phone, its shell."""
    from tests.helpers.fake_phone import phone_on

    with phone_on(adb) as wires:
        yield wires
