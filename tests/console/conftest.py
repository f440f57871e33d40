"""Fixtures of the console's tests."""

from collections.abc import Iterator

import pytest

from tests.helpers.console_client import Glass
from uivlm.devices.device import DeviceError
from uivlm.devices.web.chromium import Browser, find_chromium, open_browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A real Chromium; without one, the test is skipped."""
    try:
        find_chromium()
    except DeviceError as absent:
        pytest.skip(str(absent))
    with open_browser() as running:
        yield running


@pytest.fixture
def glass() -> Glass:
    return Glass()
