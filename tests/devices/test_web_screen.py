"""A page in a real Chromium as a device: its screens are still, its elements are those that are visible."""

import io
import time

import numpy as np
import pytest
from PIL import Image

from tests.helpers.web_page import RED, middle
from uivlm.actions.gesture import Touch
from uivlm.devices.device import DeviceError, InspectableDevice
from uivlm.devices.web import chromium
from uivlm.devices.web.chromium import CAPTURE_SCREENSHOT, BrowserCommandError

pytestmark = pytest.mark.slow

try:
    chromium.find_chromium()
except DeviceError as absent:
    pytest.skip(str(absent), allow_module_level=True)


def test_screens_are_still(show_page):
    style = """#it { width: 50px; height: 50px; background: blue; transition: 3s }
      #it.on { background: red; width: 300px }
      #turn { animation: turn 1s infinite } @keyframes turn { from { opacity: 0 } to { opacity: 1 } }"""
    script = "let ended = 0; it.ontransitionend = () => ended++; onclick = () => it.classList.toggle('on')"
    device = show_page(style=style, script=script, home="<div id=it></div><p id=turn>turning</p>")
    screen = device.screen()
    first = screen.pixels
    assert np.array_equal(np.array(Image.open(io.BytesIO(screen.png)).convert("RGB")), first)
    assert (device.screen().pixels == first).all()
    device.perform(Touch(((20, 20),), 60))
    later = device.screen().pixels
    assert (later[25, 50:300] == RED).all()
    assert tuple(later[25, 301]) != RED
    assert device.page.evaluate("ended") > 0  # the page receives its transitionend event
    device.perform(Touch(((20, 20),), 60))
    assert (device.screen().pixels == first).all()


def test_the_wait_for_a_changing_page_has_a_limit(show_page):
    script = (
        "let n = 0; const step = () => { it.textContent = n++; if (n < last) setTimeout(step, 40) }; step()"
    )
    device = show_page(settle_timeout_s=2.0, script=f"const last = 20; {script}", home="<p id=it></p>")
    device.screen()
    assert device.page.evaluate("n") == 20
    device = show_page(settle_timeout_s=0.5, script=f"const last = 1e9; {script}", home="<p id=it></p>")
    began = time.monotonic()
    device.screen()
    assert 0.5 <= time.monotonic() - began < 5


def test_a_page_that_reloads(show_page):
    """No call fails because the page navigates."""
    device = show_page(script="setTimeout(() => location.reload(), 150)", home="<p>here</p>")
    for _ in range(30):
        assert [element.text for element in device.elements()[1:]] in ([], ["here"])
        assert device.foreground() == "127.0.0.1"
        device.perform(Touch(((60, 60),), 10))
        assert device.screen().pixels.shape == (915, 412, 3)


def test_a_screenshot_of_a_page_that_is_gone_is_not_awaited(show_page):
    """Chromium usually never answers; a retry follows at once instead of after RESPONSE_TIMEOUT_S."""
    page = show_page(script="setTimeout(() => location.reload(), 60)", home="<p>here</p>").page
    refused = 0
    for _ in range(60):
        try:
            page.call(CAPTURE_SCREENSHOT, 10, format="png")  # must not raise BrowserTimeoutError
        except BrowserCommandError:
            refused += 1
            time.sleep(0.03)
    assert refused


def test_elements_are_those_that_are_visible(show_page):
    body = """<button id=b style="position: absolute; left: 100px; top: 50px; background: red; color: red">
      <b>Buy now</b></button>
      <p style="margin-top: 100px; display: none">none</p><p style="visibility: hidden">hidden</p>
      <p style="position: absolute; top: 0; opacity: 0">faint</p>
      <p style="position: absolute; top: 2000px">below</p>
      <p style="position: absolute; left: -300px">beside</p>
      <br><br><br><br><input type=password value=secret placeholder=Password><input value="typed words">
      <input type=checkbox><select><option>first<option selected>second</select>
      <img alt="a cat" width=30 height=30><a href=# aria-label=Close>x</a>
      <div style="position: absolute; top: 300px; height: 20px">covered</div>
      <div style="position: absolute; top: 250px; height: 200px; width: 300px; background: white">
      cover</div>"""
    device = show_page(home=body)
    pixels = device.screen().pixels
    elements = device.elements()
    assert isinstance(device, InspectableDevice)
    texts = [element.text for element in elements if element.text]
    assert texts == ["Buy now", "Buy now", "Password", "typed words", "second", "a cat", "Close x", "cover"]
    assert [element.ui_type for element in elements if not element.text] == ["PAGE", "ICON_CHECKBOX"]
    button = elements[1]
    box = device.page.evaluate(
        "[...['y', 'x', 'height', 'width'].map(side => b.getBoundingClientRect()[side])]"
    )
    height, width = pixels.shape[:2]
    assert [
        button.y * height,
        button.x * width,
        button.height * height,
        button.width * width,
    ] == pytest.approx(box)
    x, y = middle(device, "Buy now")
    assert tuple(pixels[y, x]) == RED
    assert device.foreground() == "127.0.0.1"


def test_no_other_host_is_reachable(show_page):
    device = show_page(home="<p>here</p>")
    device.screen()
    for url in ("http://example.org/", "http://192.0.2.1/"):
        assert (
            device.page.evaluate(f"fetch('{url}').then(() => 'reached', () => 'not reached')")
            == "not reached"
        )
        with pytest.raises(DeviceError, match=r"cannot be opened: net::ERR_NAME_NOT_RESOLVED"):
            device.page.goto(url)
