"""Our browser process: each failure is one sentence, and no process or file is left behind."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from uivlm.actions.gesture import Touch
from uivlm.devices.device import DeviceError
from uivlm.devices.web import chromium
from uivlm.devices.web.chromium import EXECUTABLES, open_browser
from uivlm.devices.web.device import WebDevice, open_web_device

pytestmark = pytest.mark.slow

try:
    chromium.find_chromium()
except DeviceError as absent:
    pytest.skip(str(absent), allow_module_level=True)


@pytest.fixture
def page():
    with open_browser() as browser, browser.new_page() as page:
        yield page


@pytest.mark.parametrize("name", [name for name in EXECUTABLES if shutil.which(name)])
def test_every_installed_chromium_works(name, tmp_path, monkeypatch):
    (tmp_path / name).symlink_to(shutil.which(name))
    monkeypatch.setattr(chromium, "EXECUTABLES", (name,))
    with open_web_device("data:text/html,<h1>hello") as device:
        assert device.screen().pixels.shape == (915, 412, 3)
        assert [element.text for element in device.elements() if element.text] == ["hello"]


def test_pages_are_isolated():
    with open_browser() as browser, browser.new_page() as first, browser.new_page() as second:
        for page in (first, second):
            page.goto("data:text/html,page")
        first.evaluate("window.value = 1")
        assert (first.evaluate("value"), second.evaluate("typeof value")) == (1, "undefined")


def test_an_unreachable_page(page):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/"
    with pytest.raises(DeviceError, match=r"cannot be opened: net::ERR_CONNECTION_REFUSED"):
        WebDevice(page, url)


def test_a_script_that_fails(page):
    with pytest.raises(
        DeviceError, match="a script failed in the page: ReferenceError: nowhere is not defined"
    ):
        page.evaluate("nowhere")
    with pytest.raises(DeviceError, match=r"browser refused Page\.navigat: 'Page\.navigat' wasn't found"):
        page.call("Page.navigat")
    assert page.evaluate("1 + 1") == 2


def test_a_page_that_hangs(page, monkeypatch):
    monkeypatch.setattr(chromium, "RESPONSE_TIMEOUT_S", 1.0)
    with pytest.raises(DeviceError, match=r"did not answer Runtime\.evaluate within 1 s"):
        page.evaluate("(() => { for (;;); })()")


def test_a_page_that_crashes(page):
    began = time.monotonic()
    for method in ("Page.crash", "Page.captureScreenshot"):
        with pytest.raises(DeviceError, match="the page has crashed"):
            page.call(method)
    with page.browser.new_page() as other:
        assert other.evaluate("1 + 1") == 2
    assert time.monotonic() - began < chromium.RESPONSE_TIMEOUT_S


def test_a_browser_that_dies():
    with open_web_device("about:blank") as device:
        device.screen()
        os.killpg(device.page.browser.process.pid, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(DeviceError, match=r"the browser is gone \(exit status -9\): start it again"):
                device.screen()
        with pytest.raises(DeviceError, match="is gone"):
            device.perform(Touch(((1, 1), (2, 2)), 100))


def test_no_browser_is_installed(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        DeviceError, match="Chromium was not found: install .*`chromium-headless-shell` or `chromium`"
    ):
        chromium.find_chromium()
    (tmp_path / EXECUTABLES[0]).write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / EXECUTABLES[0]).chmod(0o755)
    with (
        pytest.raises(DeviceError, match=r"is gone \(exit status 3\).*run it by hand"),
        open_browser(),
    ):
        pass


def test_the_sandbox_is_left_out_for_root_alone(monkeypatch):
    for user, expected in ((0, True), (1000, False)):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        assert ("--no-sandbox" in chromium._options("/p", (), 1.0)) is expected


# -- cleanup -----------------------------------------------------------------------------------------


def alive(session):
    """Ids of the running processes of this session."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session_id = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(session_id) == session and state != "Z":
            pids.append(stat.parent.name)
    return pids


def ends(session):
    deadline = time.monotonic() + 10
    while alive(session) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(session)


@pytest.fixture
def temp_folder(tmp_path, monkeypatch):
    """The folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("how", ["success", "error", "hang"])
def test_no_process_and_no_file_is_left(how, temp_folder):
    error = pytest.raises(ZeroDivisionError) if how == "error" else nullcontext()
    with error, open_browser() as browser:
        session = browser.process.pid
        assert alive(session)
        assert list(temp_folder.iterdir())
        if how == "error":
            _ = 1 / 0
        if how == "hang":
            os.killpg(session, signal.SIGSTOP)
    assert ends(session)
    assert not list(temp_folder.iterdir())


def test_no_process_is_left_if_python_is_killed(tmp_path):
    script = "import time; from uivlm.devices.web.chromium import open_browser\n"
    script += "with open_browser() as browser: print(browser.process.pid, flush=True); time.sleep(60)"
    python = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    try:
        session = int(python.stdout.readline())
        assert alive(session)
    finally:
        python.kill()
        python.wait()
    assert ends(session)
