"""Pages for the tests of the web device."""

from pathlib import Path

from uivlm.actions.gesture import Touch
from uivlm.devices.web.chromium import BrowserPage
from uivlm.devices.web.device import Viewport, WebDevice

RED = (255, 0, 0)
PAGE = """<!doctype html><title>page</title><meta name=viewport content="width=device-width">
<style>body {{ margin: 0; font: 16px sans-serif }} {style}</style>{body}<script>{script}</script>"""
LOG_EVENTS = """const events = [];
for (const type of ["touchstart", "touchmove", "touchend", "touchcancel", "click", "contextmenu"])
  addEventListener(type, event => events.push([type, event.target.id]), true);"""


def open_test_page(
    site: str,
    folder: Path,
    page: BrowserPage,
    viewport: Viewport | None = None,
    settle_timeout_s: float = 5.0,
    script: str = "",
    style: str = "",
    **bodies: str,
) -> WebDevice:
    """Write pages (file name: body) into the folder that `site` serves, and open the first one."""
    for name, body in bodies.items():
        (folder / f"{name}.html").write_text(PAGE.format(style=style, body=body, script=script), "utf-8")
    return WebDevice(page, f"{site}/{next(iter(bodies))}.html", viewport, settle_timeout_s)


def middle(device: WebDevice, text: str) -> tuple[int, int]:
    """(x, y) pixels of the last element with this text."""
    height, width = device.screen().pixels.shape[:2]
    element = [element for element in device.elements() if element.text == text][-1]
    return int((element.x + element.width / 2) * width), int((element.y + element.height / 2) * height)


def tap(device: WebDevice, text: str) -> None:
    device.perform(Touch((middle(device, text),), 60))
