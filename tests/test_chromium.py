"""A browser of our own: what goes wrong with it is said in a sentence, and nothing of it is left behind."""

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
from uivlm.devices import chromium
from uivlm.devices.chromium import PROGRAMS, browser
from uivlm.devices.device import DeviceError
from uivlm.devices.web import WebDevice, web_phone

try:
    chromium.program()
except DeviceError as absent:
    pytest.skip(str(absent), allow_module_level=True)


@pytest.fixture
def page():
    with browser() as running, running.page() as one:
        yield one


@pytest.mark.parametrize("name", [name for name in PROGRAMS if shutil.which(name)])
def test_every_chromium_here_will_do(name, tmp_path, monkeypatch):
    (tmp_path / name).symlink_to(shutil.which(name))
    monkeypatch.setattr(chromium, "PROGRAMS", (name,))
    with web_phone("data:text/html,<h1>hello") as device:
        assert device.screen().pixels.shape == (915, 412, 3)
        assert [element.text for element in device.elements()] == ["hello"]


def test_pages_know_nothing_of_each_other():
    with browser() as running, running.page() as one, running.page() as other:
        for page in (one, other):
            page.open("data:text/html,page")
        one.evaluate("window.told = 1")
        assert (one.evaluate("told"), other.evaluate("typeof told")) == (1, "undefined")


def test_a_page_that_is_not_there(page):
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
    with pytest.raises(DeviceError, match=r"the browser refuses Page\.navigat: 'Page\.navigat' wasn't found"):
        page.call("Page.navigat")
    assert page.evaluate("1 + 1") == 2


def test_a_page_that_hangs(page, monkeypatch):
    monkeypatch.setattr(chromium, "TIMEOUT_S", 1.0)
    with pytest.raises(DeviceError, match=r"no answer to Runtime\.evaluate within 1 s: its page may hang"):
        page.evaluate("(() => { for (;;); })()")


def test_a_page_that_crashes(page):
    began = time.monotonic()
    for method in ("Page.crash", "Page.captureScreenshot"):
        with pytest.raises(DeviceError, match="the page has crashed: open it on a new one"):
            page.call(method)
    with page.browser.page() as other:
        assert other.evaluate("1 + 1") == 2
    assert time.monotonic() - began < chromium.TIMEOUT_S


def test_a_browser_that_dies():
    with web_phone("about:blank") as device:
        device.screen()
        os.killpg(device.page.browser.process.pid, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(DeviceError, match=r"the browser is gone \(exit status -9\): start it again"):
                device.screen()
        with pytest.raises(DeviceError, match="is gone"):
            device.perform(Touch(((1, 1), (2, 2)), 100))


def test_no_browser_here(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        DeviceError, match="install the Debian package `chromium-headless-shell` or `chromium`"
    ):
        chromium.program()
    (tmp_path / PROGRAMS[0]).write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / PROGRAMS[0]).chmod(0o755)
    with pytest.raises(DeviceError, match=r"is gone \(exit status 3\).*does it run at all here"), browser():
        pass


def test_the_sandbox_is_left_out_for_root_alone(monkeypatch):
    for user, expected in ((0, True), (1000, False)):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        assert ("--no-sandbox" in chromium._options("/p", (), 1.0)) is expected


# -- nothing is left ----------------------------------------------------------------------------------------


def alive(session):
    """Processes of this session that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(of) == session and state != "Z":
            found.append(stat.parent.name)
    return found


def ends(session):
    until = time.monotonic() + 10
    while alive(session) and time.monotonic() < until:
        time.sleep(0.05)
    return not alive(session)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where temporary files go."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("how", ["well", "by an error", "by hanging"])
def test_no_process_and_no_file_is_left(how, place):
    with pytest.raises(ZeroDivisionError) if how == "by an error" else nullcontext(), browser() as one:
        session = one.process.pid
        assert alive(session)
        assert list(place.iterdir())
        if how == "by an error":
            _ = 1 / 0
        if how == "by hanging":
            os.killpg(session, signal.SIGSTOP)
    assert ends(session)
    assert not list(place.iterdir())


def test_no_process_is_left_where_python_is_killed(tmp_path):
    script = "import time; from uivlm.devices.chromium import browser\n"
    script += "with browser() as one: print(one.process.pid, flush=True); time.sleep(60)"
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
