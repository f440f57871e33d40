"""A tab of a real Chromium for the tests of the console's page, used with mouse, fingers and keys."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.helpers.console_client import Person
from uivlm.devices.web.chromium import Browser, BrowserPage

KEYS = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, ""), " ": (32, " "), "s": (83, "s")} | {
    f"Arrow{name}": (code, "") for name, code in (("Left", 37), ("Up", 38), ("Right", 39), ("Down", 40))
}
SHIFT = 8  # DevTools' bit
WATCH = """
window.broken = [];
addEventListener("securitypolicyviolation", e => broken.push(`${e.violatedDirective} ${e.blockedURI}`));
addEventListener("error", event => broken.push(String(event.message)));
addEventListener("unhandledrejection", event => broken.push(String(event.reason)));
"""
# [[name, contrast, required contrast], ...] of visible texts and edges of controls (WCAG 2.2: 1.4.3, 1.4.11)
CONTRAST = """(() => {
  const numbers = color => color.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [[r, 0.2126], [g, 0.7152], [b, 0.0722]].reduce((sum, [value, share]) => {
    const c = value / 255;
    return sum + share * (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  }, 0);
  const ratio = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const ground = node => {
    for (; node; node = node.parentElement) {
      const color = numbers(getComputedStyle(node).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255];
  };
  const found = [];
  for (const node of document.querySelectorAll("body *:not(svg *)")) {
    if (!node.checkVisibility() || node.id === "announcement") continue;
    const style = getComputedStyle(node);
    const texts = [...node.childNodes].filter(child => child.nodeType === 3).map(child => child.data);
    const text = node.value || texts.join("").trim();
    if (text) found.push([text.slice(0, 30), ratio(numbers(style.color), ground(node)), 4.5]);
    if (node.matches("button, input, textarea") && parseFloat(style.borderTopWidth)) {
      const around = ground(node.parentElement);
      const edge = Math.max(ratio(numbers(style.borderTopColor), around), ratio(ground(node), around));
      found.push(["edge of " + (node.id || node.textContent), edge, 3]);
    }
  }
  return found;
})()"""


class Tab:
    """The console's page, and the person who sits before it."""

    def __init__(self, page: BrowserPage, person: Person) -> None:
        self.page, self.person = page, person

    def js(self, script: str) -> Any:
        return self.page.evaluate(script)

    def until(self, script: str) -> Any:
        """What the expression is worth as soon as it is true."""
        for _ in range(400):
            if result := self.js(script):
                return result
            time.sleep(0.02)
        payload = (
            "[document.getElementById('state').textContent, document.getElementById('wrong').textContent]"
        )
        raise AssertionError(f"the page never came to {script}: {self.js(payload)}, {self.person.view.phase}")

    def text(self, selector: str) -> str:
        return str(self.js(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def says(self, selector: str, words: str) -> None:
        self.until(f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(words)})")

    def open_button(self, name: str) -> None:
        """Waits until a button can be used."""
        self.until(
            f"(b => b && b.checkVisibility() && b.ariaDisabled !== 'true')(document.getElementById('{name}'))"
        )

    def box(self, selector: str) -> dict[str, float]:
        """Where it is on show now, in CSS pixels."""
        box: dict[str, float] = self.js(
            "(n => { n.scrollIntoView({block: 'center'}); const b = n.getBoundingClientRect();"
            " return {x: b.x, y: b.y, width: b.width, height: b.height} })"
            f"(document.querySelector({json.dumps(selector)}))"
        )
        return box

    def spot(self, selector: str, y: float = 0.5, x: float = 0.5) -> tuple[float, float]:
        box = self.box(selector)
        return box["x"] + x * box["width"], box["y"] + y * box["height"]

    def mouse(self, kind: str, at: tuple[float, float], clicks: int = 1) -> None:
        held = 0 if kind == "mouseReleased" else 1
        self.page.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=at[0],
            y=at[1],
            button="left",
            buttons=held,
            clickCount=clicks,
        )

    def click(self, selector: str, y: float = 0.5, x: float = 0.5, clicks: int = 1) -> None:
        at = self.spot(selector, y, x)
        self.mouse("mousePressed", at, clicks)
        self.mouse("mouseReleased", at, clicks)

    def drag(self, selector: str, start: tuple[float, float], end: tuple[float, float]) -> None:
        (x0, y0), (x1, y1) = self.spot(selector, *start), self.spot(selector, *end)
        self.mouse("mousePressed", (x0, y0))
        for part in (0.3, 0.7, 1.0):
            self.mouse("mouseMoved", (x0 + part * (x1 - x0), y0 + part * (y1 - y0)))
        self.mouse("mouseReleased", (x1, y1))

    def finger(self, selector: str, *path: tuple[float, float]) -> None:
        """A touch that leads through these places (y, x) of a thing, as fast as can be."""
        places = [dict(zip("xy", self.spot(selector, *place), strict=True)) for place in path]
        self.page.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=places[:1])
        for place in places[1:]:
            self.page.call("Input.dispatchTouchEvent", type="touchMove", touchPoints=[place])
        self.page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def key(self, name: str, shift: bool = False) -> None:
        code, text = KEYS[name]
        payload = {"key": name, "windowsVirtualKeyCode": code, "modifiers": SHIFT if shift else 0}
        self.page.call("Input.dispatchKeyEvent", type="keyDown", text=text, **payload)
        self.page.call("Input.dispatchKeyEvent", type="keyUp", **payload)

    def write(self, selector: str, text: str) -> None:
        self.click(selector)
        self.page.call("Input.insertText", text=text)

    def focus(self) -> str:
        return str(self.js("document.activeElement.id || document.activeElement.tagName"))

    def size(self, width: int, height: int, mobile: bool = False) -> None:
        self.page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )
        self.page.call("Emulation.setTouchEmulationEnabled", enabled=mobile, maxTouchPoints=1)

    def start(self, goal: str, step_mode: bool = True) -> None:
        self.write("#goal", goal)
        if step_mode:
            self.click("#step_mode")
        self.click("#start")

    def take_over(self) -> None:
        self.open_button("take_over")
        self.click("#take_over")
        self.says("#state", "You have the phone")
        self.until("document.querySelector('#frame img').naturalWidth")


@contextmanager
def tab(browser: Browser, person: Person, width: int = 1000, height: int = 900) -> Iterator[Tab]:
    """The page in its own tab. Afterwards: it had no error, and requested nothing but its console."""
    with browser.new_page() as page:
        page_tab = Tab(page, person)
        page_tab.size(width, height, mobile=width < 500)
        page.call("Emulation.setFocusEmulationEnabled", enabled=True)
        page.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        page.goto(person.url)
        page_tab.says("#state", "Nothing is running")
        yield page_tab
        assert page_tab.js("broken") == []
        assert page_tab.js("window.hit") is None
        asked = page_tab.js("performance.getEntriesByType('resource').map(entry => entry.name)")
        assert asked
        assert [url for url in asked if not url.startswith(f"{person.url}/")] == []
