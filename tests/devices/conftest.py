"""Browsers and pages for the tests of the web device."""

from functools import partial

import pytest

from tests.helpers.web_page import open_test_page
from uivlm.devices.web.chromium import LOCALHOST_ONLY, open_browser
from uivlm.devices.web.static_site import serve_folder

HOSTS = (*LOCALHOST_ONLY, "localhost")  # the second one is another host to the guard


@pytest.fixture(scope="session")
def browser():
    with open_browser(HOSTS) as running:
        yield running


@pytest.fixture(scope="session")
def dense_browser():
    with open_browser(device_scale_factor=2.5) as running:
        yield running


@pytest.fixture
def show_page(browser, tmp_path):
    """A function that opens pages, passed as file name: body. The first one is the start page."""
    with serve_folder(tmp_path) as site, browser.new_page() as page:
        yield partial(open_test_page, site, tmp_path, page)
