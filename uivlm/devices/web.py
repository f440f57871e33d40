"""A web page as a phone: touches, typed text and keys in, still screens out. It is a Telling device.

    with web_phone("http://127.0.0.1:8000/") as phone: ...          # a browser of its own
    with browser(density=2.5) as chromium, chromium.page() as page: # several phones in one browser
        phone = WebDevice(page, "http://127.0.0.1:8000/", Display(160, 210))

One page, no tabs: what a link would open beside it opens in its place. A page's own dialogs (`alert`, `confirm`) stand on no
screenshot: they are closed at once, and a question is answered with no. Frames from elsewhere are seen, not told of.
"""

import base64
import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

from uivlm.actions.gesture import Button, Gesture, Keys, Touch
from uivlm.devices.chromium import CAPTURE, ONLY_HERE, NoAnswerError, Page, RefusedError, browser
from uivlm.devices.device import DeviceError
from uivlm.episode import Element, Screen

FIRST_S, EVERY_S = 0.05, 0.05  # before the first frame, and between two
MOVE_S = 0.016  # between two places of a finger that moves: a display's frame
ANSWER_S = 1.0  # a page has to take what is put in
LONG_PRESS_MS = 400  # Android's: a touch this long is no tap
ENTER = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}

# Every animation ends at once, and says so to the page: apps wait for the end of theirs. No caret blinks.
STILL = """*, ::before, ::after {
  transition-duration: 1ms !important; transition-delay: 0s !important; caret-color: transparent !important;
  animation-duration: 1ms !important; animation-delay: 0s !important; animation-iteration-count: 1 !important;
}"""
ONE_PAGE = """
window.open = url => { if (url) location.href = url; return null };
addEventListener("click", event => event.target.closest?.("a[target]")?.removeAttribute("target"), true);
"""

# [[top, left, height, width, text, kind], ...] in CSS pixels of the layout, and what part of it is on show.
TELL = """(() => {
  const CONTROLS = "a, button, input, select, textarea, summary, label, img, svg, [role], [onclick], [contenteditable]";
  const line = text => (text || "").replace(/\\s+/g, " ").trim();
  const own = node => line([...node.childNodes].filter(child => child.nodeType === 3).map(child => child.data).join(" "));
  const written = node => {
    if (node.matches("input[type=password]")) return line(node.placeholder);
    if (node.matches("select")) return line(node.selectedOptions[0]?.text);
    if (node.matches("input[type=checkbox], input[type=radio]")) return "";
    return line(node.value || node.placeholder);
  };
  const said = node => line(node.getAttribute("aria-label"))
    || (node.matches("input, select, textarea") ? written(node) : line(node.alt || node.innerText || node.getAttribute("title")));
  const view = window.visualViewport;
  const area = { top: view.offsetTop, left: view.offsetLeft, height: view.height, width: view.width };
  const found = [];
  for (const node of document.body?.querySelectorAll("*") || []) {
    const control = node.matches(CONTROLS);
    if (!(control || own(node)) || !node.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const box = node.getBoundingClientRect();
    const top = Math.max(box.top, area.top), bottom = Math.min(box.bottom, area.top + area.height);
    const left = Math.max(box.left, area.left), right = Math.min(box.right, area.left + area.width);
    if (bottom - top < 1 || right - left < 1) continue;
    const there = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
    if (!there || !(node.contains(there) || there.contains(node))) continue;
    const text = control ? said(node) : own(node);
    found.push([top - area.top, left - area.left, bottom - top, right - left, text,
      text ? "TEXT" : "ICON_" + (node.matches("input") ? node.type : node.tagName).toUpperCase()]);
  }
  return { area, found };
})()"""


@dataclass(frozen=True, slots=True)
class Display:
    """How large a page is shown; how dense, its browser says."""

    width: int = 412  # CSS pixels
    height: int = 915
    mobile: bool = True  # pages may say themselves how wide they want to be, and may be zoomed


@contextmanager
def web_phone(start: str, hosts: tuple[str, ...] = ONLY_HERE) -> "Iterator[WebDevice]":
    """A browser that shows this address, and reaches these hosts alone."""
    with browser(hosts) as chromium, chromium.page() as page:
        yield WebDevice(page, start)


class WebDevice:
    """The page, from its start address on."""

    def __init__(self, page: Page, start: str, display: Display | None = None, limit_s: float = 5.0) -> None:
        """`limit_s`: after this the last frame counts, even where the page is not still."""
        self.page, self.start = page, start
        self.display, self.limit_s = display or Display(), limit_s
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=self.display.width,
            height=self.display.height,
            deviceScaleFactor=0,  # the browser's
            mobile=self.display.mobile,
        )
        page.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=1)
        page.call("Emulation.setFocusEmulationEnabled", enabled=True)
        page.call("Emulation.setScrollbarsHidden", hidden=True)
        page.begin_with(style(STILL))
        page.begin_with(ONE_PAGE)
        page.open(start)

    def screen(self) -> Screen:
        until = time.monotonic() + self.limit_s
        time.sleep(FIRST_S)
        frame = self._frame()
        while time.monotonic() < until:
            time.sleep(EVERY_S)
            loaded = self._loaded()
            frame, before = self._frame(), frame
            if loaded and frame == before:
                break
        return Screen(np.array(Image.open(io.BytesIO(frame), formats=["PNG"]).convert("RGB")))

    def perform(self, gesture: Gesture) -> None:
        match gesture:
            case Touch(((x, y),), ms):
                self._touch([(x, y)], ms, held=ms >= LONG_PRESS_MS)
            case Touch(((x1, y1), (x2, y2)), ms):
                moves = max(2, round(ms / 1000 / MOVE_S))
                parts = [i / moves for i in range(moves + 1)]
                self._touch([(x1 + (x2 - x1) * part, y1 + (y2 - y1) * part) for part in parts], ms)
            case Keys(text):
                self._type(text)
            case Button("home"):
                self.page.open(self.start)
            case Button("back"):
                self._back()
            case Button("enter"):
                self._input("Input.dispatchKeyEvent", type="keyDown", text="\r", **ENTER)
                self._input("Input.dispatchKeyEvent", type="keyUp", **ENTER)
            case _:
                raise DeviceError(f"a page cannot be given {gesture}: a touch has one or two points")

    def foreground(self) -> str:
        """The host of the page."""
        at, entries = self._history()
        return urlsplit(entries[at]["url"]).hostname or ""

    def elements(self) -> tuple[Element, ...]:
        """Texts and controls that are on show and not covered; no text of a password."""
        told = self._patiently(partial(self.page.evaluate, TELL))
        height, width = told["area"]["height"], told["area"]["width"]
        return tuple(
            Element(y / height, x / width, h / height, w / width, text, kind)
            for y, x, h, w, text, kind in told["found"]
        )

    def _frame(self) -> bytes:
        """The page as PNG."""
        capture = partial(self.page.call, CAPTURE, format="png", optimizeForSpeed=True)
        told = self._patiently(capture)
        return base64.b64decode(told["data"])

    def _loaded(self) -> bool:
        try:
            return bool(self.page.evaluate("document.readyState === 'complete'"))
        except RefusedError:  # between two pages
            return False

    def _touch(self, path: list[tuple[float, float]], ms: int, held: bool = False) -> None:
        """A finger on the path's pixels, for so long in all. `held`: where it lifts, a menu is asked for, nothing tapped."""
        shown = self._patiently(partial(self.page.call, "Page.getLayoutMetrics"))["cssVisualViewport"]
        unit = self.page.browser.density * shown["scale"]  # DevTools counts in the page's own pixels
        places = [{"x": (x + 0.5) / unit, "y": (y + 0.5) / unit} for x, y in path]
        began = time.monotonic()
        self._input("Input.dispatchTouchEvent", type="touchStart", touchPoints=places[:1])
        try:
            for i, place in enumerate(places[1:], 1):
                if i == len(places) - 1 or time.monotonic() < began + ms / 1000 * (i + 1) / len(places):
                    _sleep_until(began + ms / 1000 * i / len(places))
                    self._finger("touchMove", [place])  # a slow page sees fewer places, not a slower finger
            _sleep_until(began + ms / 1000)
            for kind in ("mousePressed", "mouseReleased") if held else ():  # DevTools knows no long press
                self._input("Input.dispatchMouseEvent", type=kind, button="right", clickCount=1, **places[0])
        finally:  # an interrupted finger is lifted, too
            self._finger("touchCancel" if held else "touchEnd", [])

    def _finger(self, kind: str, places: list[dict[str, float]]) -> None:
        with suppress(RefusedError, NoAnswerError):  # the page that it touched has gone
            self.page.call("Input.dispatchTouchEvent", ANSWER_S, type=kind, touchPoints=places)

    def _input(self, method: str, **parameters: Any) -> None:
        # A page that is left for another says nothing more, and one that hangs is found by the next look.
        with suppress(NoAnswerError):
            self._patiently(partial(self.page.call, method, ANSWER_S, **parameters))

    def _type(self, text: str) -> None:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise DeviceError("the text to type holds half of a surrogate pair: no keyboard has it") from None
        self._input("Input.insertText", text=text)

    def _back(self) -> None:
        at, entries = self._history()
        if at > 1:  # before the start lies an empty page
            self.page.call("Page.navigateToHistoryEntry", entryId=entries[at - 1]["id"])

    def _history(self) -> tuple[int, list[dict[str, Any]]]:
        """Which of the pages that were shown is shown now, and all of them."""
        told = self._patiently(partial(self.page.call, "Page.getNavigationHistory"))
        return told["currentIndex"], told["entries"]

    def _patiently(self, ask: Callable[[], Any]) -> Any:
        """Its answer, where one page goes and the next comes, too."""
        until = time.monotonic() + self.limit_s
        while True:
            try:
                return ask()
            except RefusedError:
                if time.monotonic() > until:
                    raise
                time.sleep(EVERY_S)


def style(sheet: str) -> str:
    """A script that lays a style sheet over a page, and leaves its document as it is."""
    return f"{{ const s = new CSSStyleSheet(); s.replaceSync({json.dumps(sheet)}); document.adoptedStyleSheets.push(s) }}"


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
