"""What all tests share: no network, and one thread a process, so that several of them do not crowd a small machine."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by torch when a test imports it


@pytest.fixture(scope="module")
def adb() -> Iterator[Any]:
    """A private adb server."""
    from uivlm.devices.adb_server import own_server

    with own_server() as server:
        yield server


@pytest.fixture
def wired(adb: Any) -> Iterator[Any]:
    """A fake phone behind it: the device, the phone, its shell."""
    from phones import phone_on

    with phone_on(adb) as wires:
        yield wires
