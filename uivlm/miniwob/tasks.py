"""MiniWoB++ tasks as a phone shows them: a task in, out its page in the first state, its goal, and the page's own judgement.

The pages come with the package `miniwob` (Liu et al. 2018; nothing else of it is used). They print the goal over the task:
here it is hidden, so that an agent knows it from its words alone.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Literal

from uivlm.devices.chromium import Browser, browser
from uivlm.devices.device import DeviceError
from uivlm.devices.site import served
from uivlm.devices.web import Display, WebDevice, style

NAMES = (
    "click-test",
    "click-test-2",
    "click-button",
    "click-link",
    "click-tab",
    "click-dialog",
    "click-dialog-2",
    "focus-text",
    "focus-text-2",
    "click-option",
    "click-checkboxes",
    "enter-text",
    "login-user",
    "scroll-text-2",
)
Split = Literal["train", "test"]
DISPLAY = Display(160, 210, mobile=False)  # all of a task, and nothing beside it
DENSITY = 2.5

# Where the goal stood is a gap: `display: none` would move the task. The cover invites to another task, the rest is a score.
HIDDEN = """
#query, #query * { visibility: hidden !important }
#sync-task-cover, #reward-display, #click-canvas { display: none !important }
"""
READY = """new Promise(done => {
  const look = () => document.readyState === "complete" && core.cover_div ? done(true) : setTimeout(look, 5);
  look();
})"""
BEGIN = "core.EPISODE_MAX_TIME = 3600000; Math.seedrandom(%s); core.startEpisodeReal()"  # an hour, not 10 s
# A page rewards the first end of its task alone, until it is begun again, which only its cover does.
SUCCEEDED = "window.WOB_DONE_GLOBAL === true && window.WOB_RAW_REWARD_GLOBAL > 0"


@dataclass(frozen=True, slots=True)
class Task:
    name: str  # of a MiniWoB++ page
    seed: str  # what its random numbers begin with: split, seed, number


def tasks(split: Split, seed: int, names: tuple[str, ...] = NAMES) -> Iterator[Task]:
    """Tasks without an end, each name in turn. No seed of one split is in the other."""
    for i in count():
        yield Task(names[i % len(names)], f"{split} {seed} {i}")


@contextmanager
def room() -> "Iterator[Room]":
    """Where tasks are given: a browser, and the pages behind an address."""
    with served(_pages()) as site, browser(density=DENSITY) as chromium:
        yield Room(chromium, site)


@dataclass(frozen=True, slots=True)
class Room:
    chromium: Browser
    site: str

    @contextmanager
    def begun(self, task: Task) -> Iterator[WebDevice]:
        """The task in its first state, on a page of its own."""
        with self.chromium.page() as page:
            page.begin_with(style(HIDDEN))
            device = WebDevice(page, f"{self.site}/miniwob/{task.name}.html", DISPLAY)
            page.evaluate(READY)
            page.evaluate(BEGIN % json.dumps(task.seed))
            yield device


def goal(device: WebDevice) -> str:
    """What the task asks for."""
    return str(device.page.evaluate("core.getUtterance()"))


def succeeded(device: WebDevice) -> bool:
    """Did the page reward what was done?"""
    return bool(device.page.evaluate(SUCCEEDED))


def _pages() -> Path:
    found = find_spec("miniwob")  # the package itself would import a browser driver
    if found is None or not found.submodule_search_locations:
        raise DeviceError("no MiniWoB++ here: install its pages with `pip install --no-deps miniwob==1.1.0`")
    return Path(found.submodule_search_locations[0]) / "html"
