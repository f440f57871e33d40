"""A web page as a device: touches, typed text and keys in, still screens out. It is an InspectableDevice.

    with open_web_device("http://127.0.0.1:8000/") as phone: ...  # in a browser of its own
    with open_browser(device_scale_factor=2.5) as browser, browser.new_page() as page:  # one of several
        phone = WebDevice(page, "http://127.0.0.1:8000/", Viewport(160, 210))

There is one page and no tabs: a link to a new tab opens in the same page. Screenshots do not show the dialogs
of a page (`alert`, `confirm`): they are closed at once, and questions are answered with "no".
"""

import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from uivlm.actions.gesture import Gesture, PressKey, Touch, TypeText
from uivlm.devices.device import LONG_PRESS_MS, DeviceError, sleep_until
from uivlm.devices.web.chromium import (
    CAPTURE_SCREENSHOT,
    LOCALHOST_ONLY,
    BrowserCommandError,
    BrowserPage,
    BrowserTimeoutError,
    open_browser,
)
from uivlm.devices.web.elements import (
    ELEMENTS_SCRIPT,
    FOCUS_IS_OURS_SCRIPT,
    OPEN_SHADOW_ROOTS_SCRIPT,
    to_elements,
)
from uivlm.episodes.episode import Element, Screen
from uivlm.episodes.images import open_image

FIRST_FRAME_DELAY_S, FRAME_INTERVAL_S = 0.05, 0.05  # before the first frame, between two frames
MOVE_INTERVAL_S = 0.016  # between two points of a moving finger: one frame of a display
INPUT_TIMEOUT_S = 1.0  # within which a page must accept input
ENTER_KEY = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}

# Animations end at once and still fire their end events, which apps wait for. The caret does not blink.
NO_ANIMATION_CSS = """*, ::before, ::after {
  transition-duration: 1ms !important; transition-delay: 0s !important; caret-color: transparent !important;
  animation-duration: 1ms !important; animation-delay: 0s !important; animation-iteration-count: 1 !important;
}"""
SINGLE_PAGE_SCRIPT = """
window.open = url => { if (url) location.href = url; return null };
addEventListener("click", event => event.target.closest?.("a[target]")?.removeAttribute("target"), true);
"""


@dataclass(frozen=True, slots=True)
class Viewport:
    """The size of a page. Its browser sets the device scale factor."""

    width: int = 412  # CSS pixels
    height: int = 915
    mobile: bool = True  # pages may set their own width and may be zoomed


@contextmanager
def open_web_device(start_url: str, hosts: tuple[str, ...] = LOCALHOST_ONLY) -> "Iterator[WebDevice]":
    """Open a browser with this address, which can only reach these hosts."""
    with open_browser(hosts) as chromium, chromium.new_page() as page:
        yield WebDevice(page, start_url)


class WebDevice:
    """A page, opened at its start address."""

    def __init__(
        self,
        page: BrowserPage,
        start_url: str,
        viewport: Viewport | None = None,
        settle_timeout_s: float = 5.0,
    ) -> None:
        """`settle_timeout_s`: after this time the last frame is returned, even if the page still changes."""
        self.page, self.start_url = page, start_url
        self.viewport, self.settle_timeout_s = viewport or Viewport(), settle_timeout_s
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=self.viewport.width,
            height=self.viewport.height,
            deviceScaleFactor=0,  # the browser's
            mobile=self.viewport.mobile,
        )
        page.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=1)
        page.call("Emulation.setFocusEmulationEnabled", enabled=True)
        page.call("Emulation.setScrollbarsHidden", hidden=True)
        page.add_init_script(stylesheet_script(NO_ANIMATION_CSS))
        page.add_init_script(SINGLE_PAGE_SCRIPT)
        page.add_init_script(OPEN_SHADOW_ROOTS_SCRIPT)
        page.goto(start_url)

    def screen(self) -> Screen:
        deadline = time.monotonic() + self.settle_timeout_s
        time.sleep(FIRST_FRAME_DELAY_S)
        frame = self._frame()
        while time.monotonic() < deadline:
            time.sleep(FRAME_INTERVAL_S)
            loaded = self._is_loaded()
            frame, previous = self._frame(), frame
            if loaded and frame == previous:
                break
        return Screen(np.array(open_image(frame, ("PNG",)).convert("RGB")), _png=frame)

    def perform(self, gesture: Gesture) -> None:
        match gesture:
            case Touch(((x, y),), ms):
                self._touch([(x, y)], ms, is_long_press=ms >= LONG_PRESS_MS)
            case Touch(((x1, y1), (x2, y2)), ms):
                moves = max(2, round(ms / 1000 / MOVE_INTERVAL_S))
                parts = [i / moves for i in range(moves + 1)]
                self._touch([(x1 + (x2 - x1) * part, y1 + (y2 - y1) * part) for part in parts], ms)
            case TypeText(text):
                self._type(text)
            case PressKey("home"):
                self.page.goto(self.start_url)
            case PressKey("back"):
                self._go_back()
            case PressKey("enter"):
                self._send_input("Input.dispatchKeyEvent", type="keyDown", text="\r", **ENTER_KEY)
                self._send_input("Input.dispatchKeyEvent", type="keyUp", **ENTER_KEY)
            case _:
                raise DeviceError(f"gesture: got {gesture}; expected a touch with one or two points")

    def foreground(self) -> str:
        """Return the host of the page; "" if the focus is in a frame of another origin, which gets text."""
        index, entries = self._navigation_history()
        if not self._retry_while_navigating(partial(self.page.evaluate, FOCUS_IS_OURS_SCRIPT)):
            return ""
        return urlsplit(entries[index]["url"]).hostname or ""

    def elements(self) -> tuple[Element, ...]:
        """Return the page, then visible texts and controls; without the text of passwords."""
        return to_elements(self._retry_while_navigating(partial(self.page.evaluate, ELEMENTS_SCRIPT)))

    def _frame(self) -> bytes:
        """Return the page as a PNG."""
        capture = partial(self.page.call, CAPTURE_SCREENSHOT, format="png", optimizeForSpeed=True)
        return base64.b64decode(self._retry_while_navigating(capture)["data"])

    def _is_loaded(self) -> bool:
        try:
            return bool(self.page.evaluate("document.readyState === 'complete'"))
        except BrowserCommandError:  # between two pages
            return False

    def _touch(self, path: list[tuple[float, float]], ms: int, is_long_press: bool = False) -> None:
        """Move a finger along a path of pixels within `ms`. A long press opens the context menu."""
        metrics = self._retry_while_navigating(partial(self.page.call, "Page.getLayoutMetrics"))
        # DevTools expects the page's own (CSS) pixels.
        scale = self.page.browser.device_scale_factor * metrics["cssVisualViewport"]["scale"]
        points = [{"x": (x + 0.5) / scale, "y": (y + 0.5) / scale} for x, y in path]
        start_time = time.monotonic()
        self._send_input("Input.dispatchTouchEvent", type="touchStart", touchPoints=points[:1])
        try:
            for i, point in enumerate(points[1:], 1):
                # On a slow page, the finger skips points instead of moving more slowly.
                if i == len(points) - 1 or time.monotonic() < start_time + ms / 1000 * (i + 1) / len(points):
                    sleep_until(start_time + ms / 1000 * i / len(points))
                    self._dispatch_touch("touchMove", [point])
            sleep_until(start_time + ms / 1000)
            if is_long_press:  # DevTools has no long press
                for event in ("mousePressed", "mouseReleased"):
                    self._send_input(
                        "Input.dispatchMouseEvent", type=event, button="right", clickCount=1, **points[0]
                    )
        finally:  # an interrupted finger is lifted, too
            self._dispatch_touch("touchCancel" if is_long_press else "touchEnd", [])

    def _dispatch_touch(self, event_type: str, points: list[dict[str, float]]) -> None:
        with suppress(BrowserCommandError, BrowserTimeoutError):  # the touched page is gone
            self.page.call("Input.dispatchTouchEvent", INPUT_TIMEOUT_S, type=event_type, touchPoints=points)

    def _send_input(self, method: str, **parameters: Any) -> None:
        # A page that is being left does not answer; the next screenshot detects a page that hangs.
        with suppress(BrowserTimeoutError):
            self._retry_while_navigating(partial(self.page.call, method, INPUT_TIMEOUT_S, **parameters))

    def _type(self, text: str) -> None:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise DeviceError("the text contains half of a surrogate pair, which cannot be typed") from None
        self._send_input("Input.insertText", text=text)

    def _go_back(self) -> None:
        index, entries = self._navigation_history()
        if index > 1:  # the first entry is an empty page
            self.page.call("Page.navigateToHistoryEntry", entryId=entries[index - 1]["id"])

    def _navigation_history(self) -> tuple[int, list[dict[str, Any]]]:
        """Return the index of the current entry and all entries of the page's history."""
        history = self._retry_while_navigating(partial(self.page.call, "Page.getNavigationHistory"))
        return history["currentIndex"], history["entries"]

    def _retry_while_navigating(self, call: Callable[[], Any]) -> Any:
        """Call; repeat it while the page navigates, up to the settle timeout."""
        deadline = time.monotonic() + self.settle_timeout_s
        while True:
            try:
                return call()
            except BrowserCommandError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(FRAME_INTERVAL_S)


def stylesheet_script(css: str) -> str:
    """Return a script that applies a style sheet without changing the document."""
    return (
        f"{{ const s = new CSSStyleSheet(); s.replaceSync({json.dumps(css)}); "
        "document.adoptedStyleSheets.push(s) }"
    )
