"""MiniWoB++ tasks on a phone-like web device.

In: a task. Out: a device with its page in the initial state, its goal, and the page's own reward. The pages
come with the package `miniwob` (Liu et al. 2018; nothing else of it is used). They print the goal above the
task. Here it is hidden, so that an agent gets it as text only.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import count, islice
from pathlib import Path
from typing import Literal

from uivlm.devices.device import DeviceError
from uivlm.devices.web.chromium import Browser, open_browser
from uivlm.devices.web.device import Viewport, WebDevice, stylesheet_script
from uivlm.devices.web.static_site import serve_folder
from uivlm.evaluation.online import Trial

TASK_NAMES = (
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
TaskSplit = Literal["train", "test"]
DISPLAY = Viewport(160, 210, mobile=False)  # exactly one task
DENSITY = 2.5

# The goal leaves a gap, as `display: none` would move the task. The cover would start another task.
HIDE_CSS = """
#query, #query * { visibility: hidden !important }
#sync-task-cover, #reward-display, #click-canvas { display: none !important }
"""
READY_JS = """new Promise(done => {
  const look = () => document.readyState === "complete" && core.cover_div ? done(true) : setTimeout(look, 5);
  look();
})"""
# The time limit is an hour instead of 10 s.
START_EPISODE_JS = "core.EPISODE_MAX_TIME = 3600000; Math.seedrandom(%s); core.startEpisodeReal()"
# A page rewards only the first end of its task; only its cover starts the task again.
SUCCESS_JS = "window.WOB_DONE_GLOBAL === true && window.WOB_RAW_REWARD_GLOBAL > 0"


@dataclass(frozen=True, slots=True)
class MiniWobTask:
    name: str  # of a MiniWoB++ page
    seed: str  # of its random numbers: "SPLIT SEED INDEX"


def iter_tasks(split: TaskSplit, seed: int, names: tuple[str, ...] = TASK_NAMES) -> Iterator[MiniWobTask]:
    """Endless tasks, each name in turn. The splits share no seed."""
    for i in count():
        yield MiniWobTask(names[i % len(names)], f"{split} {seed} {i}")


@contextmanager
def open_miniwob_browser() -> "Iterator[MiniWobBrowser]":
    """A browser, and a local server of the pages."""
    with serve_folder(_pages_dir()) as site, open_browser(device_scale_factor=DENSITY) as chromium:
        yield MiniWobBrowser(chromium, site)


@dataclass(frozen=True, slots=True)
class MiniWobBrowser:
    chromium: Browser
    site_url: str

    @contextmanager
    def open_task(self, task: MiniWobTask) -> Iterator[WebDevice]:
        """The task in its initial state, on a new page."""
        with self.chromium.new_page() as page:
            page.add_init_script(stylesheet_script(HIDE_CSS))
            device = WebDevice(page, f"{self.site_url}/miniwob/{task.name}.html", DISPLAY)
            page.evaluate(READY_JS)
            page.evaluate(START_EPISODE_JS % json.dumps(task.seed))
            yield device


def task_goal(device: WebDevice) -> str:
    return str(device.page.evaluate("core.getUtterance()"))


def succeeded(device: WebDevice) -> bool:
    """Whether the page gave a positive reward."""
    return bool(device.page.evaluate(SUCCESS_JS))


def _pages_dir() -> Path:
    spec = find_spec("miniwob")  # importing the package would import a browser driver
    if spec is None or not spec.submodule_search_locations:
        raise DeviceError("MiniWoB++ is not installed: run `pip install --no-deps miniwob==1.1.0`")
    return Path(spec.submodule_search_locations[0]) / "html"


def miniwob_trials(seed: int, num_trials: int, names: tuple[str, ...] = TASK_NAMES) -> Iterator[Trial]:
    """Trials of the test split, each name in turn, each on a new page, created one after another."""
    with open_miniwob_browser() as browser:
        for task in islice(iter_tasks("test", seed, names), num_trials):
            with browser.open_task(task) as device:
                yield Trial(task_goal(device), device, partial(_page_succeeded, device))


def _page_succeeded(device: WebDevice) -> bool:
    try:
        return succeeded(device)
    except DeviceError:  # the run's status reports it; a page that is gone has given no reward
        return False
