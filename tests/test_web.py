"""A page in a real Chromium as a phone: touches land, text arrives, screens are still, nothing is left behind."""

import time
from functools import partial
from random import Random

import numpy as np
import pytest

from uivlm.actions.gesture import Button, Keys, Touch
from uivlm.devices import chromium, web
from uivlm.devices.chromium import CAPTURE, RefusedError, browser
from uivlm.devices.device import DeviceError, Telling
from uivlm.devices.site import served
from uivlm.devices.web import Display, WebDevice

try:
    chromium.program()
except DeviceError as absent:
    pytest.skip(str(absent), allow_module_level=True)

RED = (255, 0, 0)
PAGE = """<!doctype html><title>page</title><meta name=viewport content="width=device-width">
<style>body {{ margin: 0; font: 16px sans-serif }} {style}</style>{body}<script>{script}</script>"""
LOG = """const told = [];
for (const kind of ["touchstart", "touchmove", "touchend", "touchcancel", "click", "contextmenu"])
  addEventListener(kind, event => told.push([kind, event.target.id]), true);"""


@pytest.fixture(scope="module")
def one():
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def dense():
    with browser(density=2.5) as running:
        yield running


@pytest.fixture
def shown(one, tmp_path):
    """A function that shows pages, which is to say: their files, by name; the first is the start."""
    with served(tmp_path) as site, one.page() as page:
        yield partial(show, site, tmp_path, page)


def show(site, folder, page, display=None, limit_s=5.0, script="", style="", **bodies):
    for name, body in bodies.items():
        (folder / f"{name}.html").write_text(PAGE.format(style=style, body=body, script=script), "utf-8")
    start = next(iter(bodies), "missing")
    return WebDevice(page, f"{site}/{start}.html", display, limit_s)


def middle(device, text):
    """(x, y) pixels of the last element that says this."""
    height, width = device.screen().pixels.shape[:2]
    element = [element for element in device.elements() if element.text == text][-1]
    return int((element.x + element.width / 2) * width), int((element.y + element.height / 2) * height)


def tap(device, text):
    device.perform(Touch((middle(device, text),), 60))


# -- touches ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("density", ["one", "dense"])
@pytest.mark.parametrize("wide", [False, True])  # a page that is no phone's is shown zoomed out
def test_a_tap_lands_on_its_pixel(density, wide, request, tmp_path):
    style = "#it { position: absolute; left: 61px; top: 303px; width: 40px; height: 30px; background: red }"
    body = f'<div id=it></div><div style="width: {1000 if wide else 100}px">.</div>'
    running = request.getfixturevalue(density)
    with served(tmp_path) as site, running.page() as page:
        device = show(site, tmp_path, page, Display(400, 800), style=style, script=LOG, home=body)
        pixels = device.screen().pixels
        assert pixels.shape == (800 * running.density, 400 * running.density, 3)
        ys, xs = np.nonzero((pixels == RED).all(axis=2))
        inside = [(xs.min() + 1, ys.min() + 1), (xs.max() - 1, ys.max() - 1)]
        outside = [(xs.min() - 3, ys.min() + 1), (xs.max() - 1, ys.max() + 3)]
        for x, y in inside + outside:
            device.perform(Touch(((int(x), int(y)),), 60))
        device.screen()
        taps = [target for kind, target in page.evaluate("told") if kind == "click"]
    assert taps == ["it", "it", "", ""]


def test_taps_land_on_the_eightieth_page_too(dense, tmp_path):
    """Chromium begins to share processes among pages then, and may forget what was emulated in one."""
    style = "#it { position: absolute; left: 300px; top: 200px; width: 40px; height: 30px }"
    with served(tmp_path) as site:
        for _ in range(80):
            with dense.page() as page:
                display, at = Display(400, 300), (round(320 * dense.density), round(215 * dense.density))
                device = show(site, tmp_path, page, display, style=style, script=LOG, home="<div id=it>")
                device.screen()
                device.perform(Touch((at,), 0))
                assert page.evaluate("told.at(-1)") == ["click", "it"]


def test_a_long_press_is_no_tap(shown):
    device = shown(script=LOG, home="<p id=text>hold me</p>")
    at = middle(device, "hold me")
    device.perform(Touch((at,), 1000))
    kinds = [kind for kind, _ in device.page.evaluate("told")]
    assert kinds == ["touchstart", "contextmenu", "touchcancel"]  # as Chrome on Android does it
    device.perform(Touch((at,), 60))
    assert [kind for kind, _ in device.page.evaluate("told")][3:] == ["touchstart", "touchend", "click"]


@pytest.mark.parametrize("ms", [100, 500])
def test_a_swipe_is_a_path_and_moves_what_lies_under_it(shown, ms):
    lines = "".join(f"<p>line {i}</p>" for i in range(1000))
    device = shown(script=LOG, home=lines)
    device.screen()
    began = time.monotonic()
    device.perform(Touch(((200, 700), (200, 200)), ms))
    assert time.monotonic() - began >= ms / 1000
    device.screen()
    kinds = [kind for kind, _ in device.page.evaluate("told")]
    assert (kinds[0], kinds[-1]) == ("touchstart", "touchend")
    assert kinds.count("touchmove") >= 3
    assert "click" not in kinds
    moved = device.page.evaluate("scrollY")
    assert 400 < moved < 8000  # the way of the finger, and how it was flung
    device.perform(Touch(((200, 200), (200, 500)), 1500))
    device.screen()
    assert -320 < device.page.evaluate("scrollY") - moved < -250


def test_an_interrupted_finger_is_lifted(shown, monkeypatch):
    device = shown(script=LOG, home="<p>page</p>")
    device.screen()
    calls = []

    def interrupted(moment):
        calls.append(moment)
        if len(calls) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(web, "_sleep_until", interrupted)
    with pytest.raises(KeyboardInterrupt):
        device.perform(Touch(((200, 700), (200, 200)), 1000))
    assert [kind for kind, _ in device.page.evaluate("told")][-1] == "touchend"


def test_a_path_of_three_points_is_refused(shown):
    with pytest.raises(DeviceError, match="one or two points"):
        shown(home="").perform(Touch(((1, 1), (2, 2), (3, 3)), 100))


# -- text and keys ------------------------------------------------------------------------------------------


def test_any_text_arrives(shown):
    device = shown(home="<textarea id=it autofocus></textarea>")
    device.screen()
    random = Random(5)
    letters = [
        chr(code) for code in [*range(32, 127), 10, 0xE9, 0x65E5, 0x301, 0x202E, 0xFEFF, 0x1F600, 0x10FFFF]
    ]
    texts = ["".join(random.choices(letters, k=random.randint(1, 40))) for _ in range(500)]
    for text in [*texts, "</textarea><script>told = 1</script>", "${1}`\\u0041", "x" * 20_000]:
        device.page.evaluate("it.value = ''")
        device.perform(Keys(text))
        assert device.page.evaluate("it.value") == text
    with pytest.raises(DeviceError, match="half of a surrogate pair"):
        device.perform(Keys("a\ud800"))


def test_enter_back_and_home(shown):
    form = "<form action=second.html><input name=q autofocus></form>"
    device = shown(home=f"{form}<a href=second.html>on</a>", second="<p>second</p>")
    device.screen()
    device.perform(Button("back"))  # nothing lies before the start
    device.screen()
    device.perform(Keys("words & more"))
    device.perform(Button("enter"))
    assert [element.text for element in (device.screen(), device.elements())[1]] == ["second"]
    assert device.page.evaluate("location.search") == "?q=words+%26+more"
    device.perform(Button("back"))
    tap(device, "on")
    assert middle(device, "second")
    device.perform(Button("home"))
    assert middle(device, "on")


def test_there_is_one_page(shown):
    device = shown(
        home="<a target=_blank href=second.html>beside</a><br><button onclick=\"window.open('second.html')\">open</button>",
        second="<p>second</p>",
    )
    for name in ("beside", "open"):
        tap(device, name)
        assert middle(device, "second")
        device.perform(Button("home"))


def test_its_own_dialogs_do_not_stop_it(shown):
    body = "<button onclick=\"alert('a'); said = [confirm('b'), prompt('c', 'd')]\">ask</button>"
    device = shown(home=body)
    tap(device, "ask")
    device.screen()
    assert device.page.evaluate("said") == [False, None]


# -- what it shows ------------------------------------------------------------------------------------------


def test_screens_are_still(shown):
    style = """#it { width: 50px; height: 50px; background: blue; transition: 3s } #it.on { background: red; width: 300px }
      #turn { animation: turn 1s infinite } @keyframes turn { from { opacity: 0 } to { opacity: 1 } }"""
    script = "let ended = 0; it.ontransitionend = () => ended++; onclick = () => it.classList.toggle('on')"
    device = shown(style=style, script=script, home="<div id=it></div><p id=turn>turning</p>")
    first = device.screen().pixels
    assert (device.screen().pixels == first).all()
    device.perform(Touch(((20, 20),), 60))
    later = device.screen().pixels
    assert (later[25, 50:300] == RED).all()
    assert tuple(later[25, 301]) != RED
    assert device.page.evaluate("ended") > 0  # the page is told that its transition is over
    device.perform(Touch(((20, 20),), 60))
    assert (device.screen().pixels == first).all()


def test_a_page_that_changes_by_and_by_is_waited_for_and_no_longer(shown):
    script = (
        "let n = 0; const tell = () => { it.textContent = n++; if (n < last) setTimeout(tell, 40) }; tell()"
    )
    device = shown(limit_s=2.0, script=f"const last = 20; {script}", home="<p id=it></p>")
    device.screen()
    assert device.page.evaluate("n") == 20
    device = shown(limit_s=0.5, script=f"const last = 1e9; {script}", home="<p id=it></p>")
    began = time.monotonic()
    device.screen()
    assert 0.5 <= time.monotonic() - began < 5


def test_a_page_that_comes_and_goes(shown):
    """Nothing that is asked fails because one page goes and the next comes."""
    device = shown(script="setTimeout(() => location.reload(), 150)", home="<p>here</p>")
    for _ in range(30):
        assert [element.text for element in device.elements()] in ([], ["here"])
        assert device.foreground() == "127.0.0.1"
        device.perform(Touch(((60, 60),), 10))
        assert device.screen().pixels.shape == (915, 412, 3)


def test_no_picture_is_waited_for_whose_page_has_gone(shown):
    """Chromium mostly forgets that it was asked for one; it then takes another try, not `TIMEOUT_S`."""
    page = shown(script="setTimeout(() => location.reload(), 60)", home="<p>here</p>").page
    refused = 0
    for _ in range(60):
        try:
            page.call(CAPTURE, 10, format="png")  # NoAnswerError is what must not come
        except RefusedError:
            refused += 1
            time.sleep(0.03)
    assert refused


def test_it_tells_what_is_on_show(shown):
    body = """<button id=b style="position: absolute; left: 100px; top: 50px; background: red; color: red"><b>Buy now</b></button>
      <p style="margin-top: 100px; display: none">none</p><p style="visibility: hidden">hidden</p>
      <p style="position: absolute; top: 0; opacity: 0">faint</p>
      <p style="position: absolute; top: 2000px">below</p><p style="position: absolute; left: -300px">beside</p>
      <br><br><br><br><input type=password value=secret placeholder=Password><input value="typed words"><input type=checkbox>
      <select><option>first<option selected>second</select><img alt="a cat" width=30 height=30><a href=# aria-label=Close>x</a>
      <div style="position: absolute; top: 300px; height: 20px">covered</div>
      <div style="position: absolute; top: 250px; height: 200px; width: 300px; background: white">cover</div>"""
    device = shown(home=body)
    pixels = device.screen().pixels
    told = device.elements()
    assert isinstance(device, Telling)
    texts = [element.text for element in told if element.text]
    assert texts == ["Buy now", "Buy now", "Password", "typed words", "second", "a cat", "Close", "cover"]
    assert [element.kind for element in told if not element.text] == ["ICON_CHECKBOX"]
    button = told[0]
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


def test_nothing_else_is_reached(shown):
    device = shown(home="<p>here</p>")
    device.screen()
    for url in ("http://example.org/", "http://192.0.2.1/"):
        assert (
            device.page.evaluate(f"fetch('{url}').then(() => 'reached', () => 'not reached')")
            == "not reached"
        )
        with pytest.raises(DeviceError, match=r"cannot be opened: net::ERR_NAME_NOT_RESOLVED"):
            device.page.open(url)
