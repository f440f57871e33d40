"""A page in a real Chromium as a device: touches land on their pixel, text and keys arrive."""

import time
from random import Random

import numpy as np
import pytest

from tests.helpers.web_page import LOG_EVENTS, RED, middle, open_test_page, tap
from uivlm.actions.gesture import PressKey, Touch, TypeText
from uivlm.devices.device import DeviceError
from uivlm.devices.web import chromium
from uivlm.devices.web import device as web
from uivlm.devices.web.device import Viewport
from uivlm.devices.web.static_site import serve_folder

pytestmark = pytest.mark.slow

try:
    chromium.find_chromium()
except DeviceError as absent:
    pytest.skip(str(absent), allow_module_level=True)


# -- touches -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fixture", ["browser", "dense_browser"])
@pytest.mark.parametrize("wide", [False, True])  # a page wider than the screen is zoomed out
def test_a_tap_lands_on_its_pixel(fixture, wide, request, tmp_path):
    style = "#it { position: absolute; left: 61px; top: 303px; width: 40px; height: 30px; background: red }"
    body = f'<div id=it></div><div style="width: {1000 if wide else 100}px">.</div>'
    browser = request.getfixturevalue(fixture)
    with serve_folder(tmp_path) as site, browser.new_page() as page:
        device = open_test_page(
            site, tmp_path, page, Viewport(400, 800), style=style, script=LOG_EVENTS, home=body
        )
        pixels = device.screen().pixels
        assert pixels.shape == (800 * browser.device_scale_factor, 400 * browser.device_scale_factor, 3)
        ys, xs = np.nonzero((pixels == RED).all(axis=2))
        inside = [(xs.min() + 1, ys.min() + 1), (xs.max() - 1, ys.max() - 1)]
        outside = [(xs.min() - 3, ys.min() + 1), (xs.max() - 1, ys.max() + 3)]
        for x, y in inside + outside:
            device.perform(Touch(((int(x), int(y)),), 60))
        device.screen()
        taps = [target for event, target in page.evaluate("events") if event == "click"]
    assert taps == ["it", "it", "", ""]


def test_taps_land_on_the_eightieth_page_too(dense_browser, tmp_path):
    """With many pages, Chromium shares processes among them and may forget the emulation of one."""
    style = "#it { position: absolute; left: 300px; top: 200px; width: 40px; height: 30px }"
    with serve_folder(tmp_path) as site:
        for _ in range(80):
            with dense_browser.new_page() as page:
                display, at = (
                    Viewport(400, 300),
                    (
                        round(320 * dense_browser.device_scale_factor),
                        round(215 * dense_browser.device_scale_factor),
                    ),
                )
                device = open_test_page(
                    site, tmp_path, page, display, style=style, script=LOG_EVENTS, home="<div id=it>"
                )
                device.screen()
                device.perform(Touch((at,), 0))
                assert page.evaluate("events.at(-1)") == ["click", "it"]


def test_a_long_press_is_not_a_tap(show_page):
    device = show_page(script=LOG_EVENTS, home="<p id=text>hold me</p>")
    at = middle(device, "hold me")
    device.perform(Touch((at,), 1000))
    types = [event for event, _ in device.page.evaluate("events")]
    assert types == ["touchstart", "contextmenu", "touchcancel"]  # as Chrome on Android does it
    device.perform(Touch((at,), 60))
    assert [event for event, _ in device.page.evaluate("events")][3:] == ["touchstart", "touchend", "click"]


@pytest.mark.parametrize("ms", [100, 500])
def test_a_swipe_is_a_path_and_moves_what_lies_under_it(show_page, ms):
    lines = "".join(f"<p>line {i}</p>" for i in range(1000))
    device = show_page(script=LOG_EVENTS, home=lines)
    device.screen()
    began = time.monotonic()
    device.perform(Touch(((200, 700), (200, 200)), ms))
    assert time.monotonic() - began >= ms / 1000
    device.screen()
    types = [event for event, _ in device.page.evaluate("events")]
    assert (types[0], types[-1]) == ("touchstart", "touchend")
    assert types.count("touchmove") >= 3
    assert "click" not in types
    moved = device.page.evaluate("scrollY")
    assert 400 < moved < 8000  # the distance of the finger, plus the fling
    device.perform(Touch(((200, 200), (200, 500)), 1500))
    device.screen()
    assert -320 < device.page.evaluate("scrollY") - moved < -250


def test_an_interrupted_finger_is_lifted(show_page, monkeypatch):
    device = show_page(script=LOG_EVENTS, home="<p>page</p>")
    device.screen()
    deadlines = []

    def interrupted(deadline):
        deadlines.append(deadline)
        if len(deadlines) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(web, "sleep_until", interrupted)
    with pytest.raises(KeyboardInterrupt):
        device.perform(Touch(((200, 700), (200, 200)), 1000))
    assert [event for event, _ in device.page.evaluate("events")][-1] == "touchend"


def test_a_path_of_three_points_is_refused(show_page):
    with pytest.raises(DeviceError, match="one or two points"):
        show_page(home="").perform(Touch(((1, 1), (2, 2), (3, 3)), 100))


# -- text and keys -------------------------------------------------------------------------------------------


def test_any_text_arrives(show_page):
    device = show_page(home="<textarea id=it autofocus></textarea>")
    device.screen()
    random = Random(5)
    letters = [
        chr(code) for code in [*range(32, 127), 10, 0xE9, 0x65E5, 0x301, 0x202E, 0xFEFF, 0x1F600, 0x10FFFF]
    ]
    texts = ["".join(random.choices(letters, k=random.randint(1, 40))) for _ in range(500)]
    for text in [*texts, "</textarea><script>x = 1</script>", "${1}`\\u0041", "x" * 20_000]:
        device.page.evaluate("it.value = ''")
        device.perform(TypeText(text))
        assert device.page.evaluate("it.value") == text
    with pytest.raises(DeviceError, match="half of a surrogate pair"):
        device.perform(TypeText("a\ud800"))


def test_enter_back_and_home(show_page):
    form = "<form action=second.html><input name=q autofocus></form>"
    device = show_page(home=f"{form}<a href=second.html>on</a>", second="<p>second</p>")
    device.screen()
    device.perform(PressKey("back"))  # nothing comes before the start page
    device.screen()
    device.perform(TypeText("words & more"))
    device.perform(PressKey("enter"))
    assert [element.text for element in (device.screen(), device.elements())[1][1:]] == ["second"]
    assert device.page.evaluate("location.search") == "?q=words+%26+more"
    device.perform(PressKey("back"))
    tap(device, "on")
    assert middle(device, "second")
    device.perform(PressKey("home"))
    assert middle(device, "on")


def test_there_is_one_page(show_page):
    link = "<a target=_blank href=second.html>new tab</a>"
    button = "<button onclick=\"window.open('second.html')\">open</button>"
    device = show_page(home=f"{link}<br>{button}", second="<p>second</p>")
    for name in ("new tab", "open"):
        tap(device, name)
        assert middle(device, "second")
        device.perform(PressKey("home"))


def test_dialogs_of_the_page_do_not_block_it(show_page):
    body = "<button onclick=\"alert('a'); answers = [confirm('b'), prompt('c', 'd')]\">ask</button>"
    device = show_page(home=body)
    tap(device, "ask")
    device.screen()
    assert device.page.evaluate("answers") == [False, None]
