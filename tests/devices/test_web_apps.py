"""Third-party web apps, operated through the whole loop; the state of the page is checked afterwards.

They are downloaded from npm once, into build/web-apps. Without npm or its registry, these tests are skipped.
"""

import json
import shutil
import subprocess
import tarfile
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.helpers.paths import ROOT
from uivlm.actions.action import Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.decision import Decision
from uivlm.actions.text import ActionText
from uivlm.devices.device import DeviceError
from uivlm.devices.web import chromium
from uivlm.devices.web.device import open_web_device
from uivlm.devices.web.static_site import serve_folder
from uivlm.rollout.loop import run_episode

pytestmark = pytest.mark.slow

try:
    chromium.find_chromium()
except DeviceError as absent:
    pytest.skip(str(absent), allow_module_level=True)

APPS = ROOT / "build" / "web-apps"
DONE = Finish("complete")


@pytest.fixture(scope="module")
def app():
    """A function that returns the URL of a folder of a package, and downloads the package if needed."""
    APPS.mkdir(parents=True, exist_ok=True)
    with serve_folder(APPS) as site:

        def url(package, folder):
            if not (APPS / package).exists():
                download(package)
            return f"{site}/{package}/package/{folder}/"

        yield url


def download(package):
    if not shutil.which("npm"):
        pytest.skip(f"npm, which downloads {package}, is not installed")
    with TemporaryDirectory(dir=APPS, prefix=".") as folder:
        options = ("--silent", "--fetch-retries=0", "--fetch-timeout=60000")
        npm = subprocess.run(["npm", "pack", package, *options], cwd=folder, capture_output=True, text=True)
        archives = list(Path(folder).glob("*.tgz"))
        if npm.returncode or not archives:
            pytest.skip(f"npm cannot download {package} ({npm.returncode}): {npm.stderr[-200:]}")
        with tarfile.open(archives[0]) as archive:
            archive.extractall(Path(folder) / "all", filter="data")
        with suppress(FileExistsError, OSError):  # another process was faster
            (Path(folder) / "all").rename(APPS / package)


class ScriptedAgent:
    """An agent with a list of actions. A text stands for a tap on the element with this text or type."""

    def __init__(self, device, script):
        self.device, self.script = device, script

    def reset(self):
        pass

    def act(self, history):
        action = self.script[len(history.steps)]
        if isinstance(action, str):
            action = self.tap(action)
        return Decision(action, ActionText().format(action))

    def tap(self, label):
        matches = [element for element in self.device.elements() if label in (element.text, element.ui_type)]
        assert matches, f"{label!r} is not on the screen"
        element = matches[-1]
        return Tap(Point(element.y + element.height / 2, element.x + element.width / 2))


def run_script(device, *script):
    outcome = run_episode(ScriptedAgent(device, script), device, "follow the script", len(script))
    assert (outcome.status, len(outcome.steps)) == ("complete", len(script)), outcome.message


def test_todomvc(app):
    with open_web_device(app("todomvc@0.1.1", "examples/vanillajs")) as device:

        def todos():
            stored = json.loads(device.page.evaluate("localStorage['todos-vanillajs']"))["todos"]
            return [(todo["title"], todo["completed"]) for todo in stored]

        first, second = "Milk 牛乳 😀", 'it\'s "2" & 3'
        enter = Press("enter")
        run_script(
            device, "What needs to be done?", Type(first), enter, Type(second), enter, "ICON_CHECKBOX", DONE
        )
        assert todos() == [(first, False), (second, True)]
        run_script(device, "Active", DONE)
        texts = [element.text for element in device.elements()]
        assert first in texts
        assert second not in texts
        run_script(device, Press("back"), "Clear completed (1)", DONE)
        assert todos() == [(first, False)]
        assert device.page.evaluate("location.hash") == ""


def test_framework7(app):
    with open_web_device(app("framework7@1.7.1", "examples/inline-pages")) as device:
        run_script(device, "Form", "Your name", Type("Ada"), "Movies", "ICON_LABEL", DONE)
        form = "document.querySelector('.page-on-center form, .page-on-center')"
        controls = device.page.evaluate(
            f"[...{form}.querySelectorAll('input')].map(node => [node.type, node.value, node.checked])"
        )
        assert ["text", "Ada", False] in controls
        assert ["checkbox", "Movies", True] in controls
        page = "document.querySelector('.view-main').dataset.page"
        assert device.page.evaluate(page) == "form"
        run_script(device, Swipe(Point(0.5, 0.01), Point(0.5, 0.8)), DONE)  # from the edge: back
        assert device.page.evaluate(page) == "index"
        run_script(device, "Left Panel", DONE)
        assert "with-panel-left" in device.page.evaluate("document.body.className")
        run_script(device, Tap(Point(0.5, 0.95)), DONE)  # outside: closes it
        assert "with-panel" not in device.page.evaluate("document.body.className")


def test_phonon(app):
    with open_web_device(app("phonon@1.5.1", "kitchen-sink")) as device:
        run_script(device, "Dialogs", "SHOW PROMPT", "ICON_TEXT", Type("seen"), "OK", DONE)
        assert [e.text for e in device.elements() if e.text] == ["Inserted Value", "seen", "OK"]
        run_script(device, "OK", Press("back"), "Tabs", *[Swipe(Point(0.5, 0.9), Point(0.5, 0.2))] * 2, DONE)
        assert device.page.evaluate("document.querySelector('.tab-number').textContent") == "3"
        run_script(device, Press("home"), DONE)
        assert device.page.evaluate("location.hash") in ("", "#!home")
