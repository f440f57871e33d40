"""Web apps that nobody here wrote, operated through the whole loop; then the page itself is asked what has become of it.

They come from npm, once, into build/web-apps. Where npm or its registry is out of reach, these tests are skipped.
"""

import json
import shutil
import subprocess
import tarfile
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from uivlm.actions.action import Finish, Point, Press, Swipe, Tap, Type
from uivlm.actions.language import Language
from uivlm.agents.agent import Decision
from uivlm.devices import chromium
from uivlm.devices.device import DeviceError
from uivlm.devices.site import served
from uivlm.devices.web import web_phone
from uivlm.loop import run_episode

try:
    chromium.program()
except DeviceError as absent:
    pytest.skip(str(absent), allow_module_level=True)

APPS = Path(__file__).parents[1] / "build" / "web-apps"
DONE = Finish("complete")


@pytest.fixture(scope="module")
def app():
    """A function: which package, and which of its folders, as an address; the package is fetched if it is not there."""
    APPS.mkdir(parents=True, exist_ok=True)
    with served(APPS) as site:

        def found(package, folder):
            if not (APPS / package).exists():
                fetch(package)
            return f"{site}/{package}/package/{folder}/"

        yield found


def fetch(package):
    if not shutil.which("npm"):
        pytest.skip(f"npm, which fetches {package}, is not here")
    with TemporaryDirectory(dir=APPS, prefix=".") as place:
        once = ("--silent", "--fetch-retries=0", "--fetch-timeout=60000")
        done = subprocess.run(["npm", "pack", package, *once], cwd=place, capture_output=True, text=True)
        packed = list(Path(place).glob("*.tgz"))
        if done.returncode or not packed:
            pytest.skip(f"npm cannot fetch {package} ({done.returncode}): {done.stderr[-200:]}")
        with tarfile.open(packed[0]) as archive:
            archive.extractall(Path(place) / "all", filter="data")
        with suppress(FileExistsError, OSError):  # another process was faster
            (Path(place) / "all").rename(APPS / package)


class Script:
    """An agent that does what is written: an action, or the words of what to tap, as they stand on the screen then."""

    def __init__(self, device, lines):
        self.device, self.lines = device, lines

    def reset(self):
        pass

    def act(self, history):
        line = self.lines[len(history.steps)]
        action = self.tap(line) if isinstance(line, str) else line
        return Decision(action, Language().say(action))

    def tap(self, words):
        there = [element for element in self.device.elements() if words in (element.text, element.kind)]
        assert there, f"{words!r} is not on the screen"
        return Tap(Point(there[-1].y + there[-1].height / 2, there[-1].x + there[-1].width / 2))


def carried_out(device, *lines):
    outcome = run_episode(Script(device, lines), device, "as written", len(lines))
    assert (outcome.status, len(outcome.steps)) == ("complete", len(lines)), outcome.message


def test_todomvc(app):
    with web_phone(app("todomvc@0.1.1", "examples/vanillajs")) as device:

        def todos():
            kept = json.loads(device.page.evaluate("localStorage['todos-vanillajs']"))["todos"]
            return [(todo["title"], todo["completed"]) for todo in kept]

        first, second = "Milk 牛乳 😀", 'it\'s "2" & 3'
        enter = Press("enter")
        carried_out(
            device, "What needs to be done?", Type(first), enter, Type(second), enter, "ICON_CHECKBOX", DONE
        )
        assert todos() == [(first, False), (second, True)]
        carried_out(device, "Active", DONE)
        texts = [element.text for element in device.elements()]
        assert first in texts
        assert second not in texts
        carried_out(device, Press("back"), "Clear completed (1)", DONE)
        assert todos() == [(first, False)]
        assert device.page.evaluate("location.hash") == ""


def test_framework7(app):
    with web_phone(app("framework7@1.7.1", "examples/inline-pages")) as device:
        carried_out(device, "Form", "Your name", Type("Ada"), "Movies", "ICON_LABEL", DONE)
        form = "document.querySelector('.page-on-center form, .page-on-center')"
        told = device.page.evaluate(
            f"[...{form}.querySelectorAll('input')].map(node => [node.type, node.value, node.checked])"
        )
        assert ["text", "Ada", False] in told
        assert ["checkbox", "Movies", True] in told
        page = "document.querySelector('.view-main').dataset.page"
        assert device.page.evaluate(page) == "form"
        carried_out(device, Swipe(Point(0.5, 0.01), Point(0.5, 0.8)), DONE)  # from the edge: back
        assert device.page.evaluate(page) == "index"
        carried_out(device, "Left Panel", DONE)
        assert "with-panel-left" in device.page.evaluate("document.body.className")
        carried_out(device, Tap(Point(0.5, 0.95)), DONE)  # beside it: closed
        assert "with-panel" not in device.page.evaluate("document.body.className")


def test_phonon(app):
    with web_phone(app("phonon@1.5.1", "kitchen-sink")) as device:
        carried_out(device, "Dialogs", "SHOW PROMPT", "ICON_TEXT", Type("seen"), "OK", DONE)
        assert [element.text for element in device.elements()] == ["Inserted Value", "seen", "OK"]
        carried_out(device, "OK", Press("back"), "Tabs", *[Swipe(Point(0.5, 0.9), Point(0.5, 0.2))] * 2, DONE)
        assert device.page.evaluate("document.querySelector('.tab-number').textContent") == "3"
        carried_out(device, Press("home"), DONE)
        assert device.page.evaluate("location.hash") in ("", "#!home")
