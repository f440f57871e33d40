"""Shadow roots, frames, canvases and style sheets in a real Chromium: what is listed, what is covered."""

from html import escape

import pytest

from uivlm.actions.gesture import Touch, TypeText
from uivlm.devices.device import OPAQUE_WINDOW, DeviceError
from uivlm.devices.web import chromium
from uivlm.devices.web.static_site import serve_folder
from uivlm.safety.policy import SecretRule
from uivlm.safety.redaction import COVER_GRAY, RedactingDevice, RedactionError
from uivlm.safety.secrets import SecretError, Secrets

pytestmark = pytest.mark.slow

try:
    chromium.find_chromium()
except DeviceError as absent:
    pytest.skip(str(absent), allow_module_level=True)

PIN = "Hunter2 4711"
ROW_PX = 70
STYLE = f"""section {{ height: {ROW_PX}px; overflow: hidden }} #css::before {{ content: attr(data-text) }}
  iframe {{ border: 3px solid; padding: 5px; height: 40px; transform-origin: top left }}"""
FIELD = "<input id=field style='font-size: 20px'>"
SHADOW = """const root = host.attachShadow({mode: 'MODE'}); root.innerHTML = "<input style='width: 200px'>";
  show.push(text => root.firstChild.value = text);"""
FRAME = escape(f"<!doctype html>{FIELD}")
ROWS = {  # name -> body, script that shows a text in it
    "input": (FIELD, "show.push(text => field.value = text)"),
    "open shadow root": ("<x-y></x-y>", SHADOW.replace("MODE", "open")),
    "closed shadow root": ("<x-y></x-y>", SHADOW.replace("MODE", "closed")),
    "declared closed shadow root": (
        "<z-z style='display: block'><template shadowrootmode=closed><p></p></template></z-z>",
        """customElements.define("z-z", class extends HTMLElement { internals = this.attachInternals() });
          show.push(text => host.internals.shadowRoot.firstChild.textContent = text)""",
    ),
    "frame": (
        f"<iframe srcdoc='{FRAME}' style='transform: scale(0.8)'></iframe>",
        "show.push(text => host.contentDocument.getElementById('field').value = text)",
    ),
    "shadow root in a frame": (
        "<iframe srcdoc='<x-y></x-y>'></iframe>",
        f"""addEventListener('load', () => (host => {{ {SHADOW.replace("MODE", "closed")} }})(
          host.contentDocument.querySelector('x-y')))""",
    ),
    "style sheet": ("<p id=css>", "show.push(text => host.dataset.text = text)"),
    "label with an aria-label": (
        "<button aria-label=Close>x</button>",
        "show.push(text => host.innerText = text || 'x')",
    ),
    "parts": ("<p></p>", "show.push(text => host.innerHTML = text.replace(/./g, '<b>$&</b>'))"),
    "canvas": (
        "<canvas height=60></canvas>",
        """const pen = host.getContext('2d'); pen.font = '30px sans-serif';
          show.push(text => { pen.clearRect(0, 0, 300, 60); pen.fillText(text, 5, 40) })""",
    ),
    "frame of another origin": (
        "<iframe src=OTHER/other.html></iframe>",
        "show.push(text => host.contentWindow.postMessage(text, '*'))",
    ),
}
OTHER = "<!doctype html><b id=it></b><input><script>onmessage = event => it.textContent = event.data</script>"


@pytest.fixture
def other_site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("other")
    (folder / "other.html").write_text(OTHER)
    with serve_folder(folder) as site:
        yield site


def secrets(**typed: str) -> Secrets:
    return Secrets({"pin": PIN}, {"pin": SecretRule("X", hosts=("127.0.0.1",))}, (), set(typed))


def test_no_typed_pixel_is_left(show_page, other_site):
    body = "".join(f"<section>{row}</section>" for row, _ in ROWS.values()).replace("OTHER", other_site)
    script = "const show = [];" + "".join(
        f"{{ const host = document.querySelectorAll('section')[{i}].firstElementChild; {script} }}\n"
        for i, (_, script) in enumerate(ROWS.values())
    )
    device = show_page(style=STYLE, script=script, home=body)
    before = device.screen().pixels
    device.page.evaluate(f"show.forEach(each => each('{PIN}'))")
    after = device.screen().pixels
    typed = (before != after).any(2)
    untyped = (RedactingDevice(device, secrets()).screen().pixels == COVER_GRAY).all(2)
    covered = (RedactingDevice(device, secrets(pin=PIN)).screen().pixels == COVER_GRAY).all(2)
    for i, name in enumerate(ROWS):
        row = slice(ROW_PX * i, ROW_PX * (i + 1))
        assert typed[row].sum() > 100, f"{name}: the secret is not on the screen"
        assert (typed & ~covered)[row].sum() == 0, name
        opaque = name in ("canvas", "frame of another origin", "declared closed shadow root")
        assert (typed & ~untyped)[row].any() == opaque, f"{name}, before a secret was typed"
    assert covered.mean() < 0.5


def test_a_page_that_is_mostly_a_canvas_is_handed_over(show_page):
    device = show_page(home="<canvas width=400 height=800></canvas>")
    assert RedactingDevice(device, secrets()).screen()
    with pytest.raises(RedactionError, match="most of the page cannot be read"):
        RedactingDevice(device, secrets(pin=PIN)).screen()


def test_no_secret_is_typed_into_a_frame_of_another_origin(show_page, other_site):
    frame = f"<iframe src={other_site}/other.html style='width: 300px; height: 100px'></iframe>"
    device = show_page(home=f"{frame}<br><input id=own>", script="own.focus()")
    device.screen()
    redacting = RedactingDevice(device, secrets())
    redacting.perform(TypeText("{secret:pin}"))
    assert device.page.evaluate("own.value") == PIN
    redacting.perform(Touch(((60, 25),), 60))
    device.screen()
    with pytest.raises(SecretError, match="in an unknown app"):
        redacting.perform(TypeText("{secret:pin}"))


BUTTONS = """<style>#css::after { content: "Pay now" } div { width: 200px }
  #picture { background: url("data:,") } #picture::before { content: "\\e001" url("data:,x") }
  .cover { position: absolute; left: 0; top: 600px; width: 300px; height: 100px; background: white }</style>
<button aria-label=Close>Pay</button><button id=css></button><x-y></x-y>
<button><div>P</div><div>a</div><div>y</div></button>
<iframe srcdoc="<button id=b>Pay in a frame</button>" style="height: 50px"></iframe>
<button><img width=30 height=30></button><div style="cursor: pointer">Go <b>there</b></div>
<div id=picture style="height: 20px"></div><canvas width=50 height=50></canvas>
<iframe src=OTHER/other.html style="height: 60px"></iframe>
<iframe src=OTHER/other.html width=1 height=1></iframe>
<iframe class=cover style="z-index: -1" srcdoc="<button>Covered</button>"></iframe>
<div class=cover>Cover</div>"""
BUTTONS_SCRIPT = """document.querySelector("x-y").attachShadow({ mode: "closed" }).innerHTML =
  "<button>Pay in <i>the</i> dark <slot></slot></button>"; document.querySelector("x-y").append("Now");"""


def test_buttons_are_listed_with_all_their_texts(show_page, other_site):
    device = show_page(home=BUTTONS.replace("OTHER", other_site), script=BUTTONS_SCRIPT)
    height, width = device.screen().pixels.shape[:2]
    elements = device.elements()
    assert (elements[0].ui_type, elements[0].clickable) == ("PAGE", False)
    clickable = [(e.text, e.ui_type) for e in elements if e.clickable]
    assert clickable == [
        ("Close Pay", "TEXT"),
        ("Pay now", "TEXT"),
        ("Pay in the dark", "TEXT"),
        ("P a y Pay", "TEXT"),
        ("Pay in a frame", "TEXT"),
        ("", "ICON_BUTTON"),
        ("Go", "TEXT"),
    ]
    silent = [e.ui_type for e in elements if not e.text and e.clickable is None]
    assert silent == ["ICON_IMG", "ICON_DIV", OPAQUE_WINDOW, OPAQUE_WINDOW]
    texts = [e.text for e in elements]
    assert ("Covered" in texts, "Cover" in texts, "Now" in texts) == (False, True, True)
    framed = elements[texts.index("Pay in a frame")]
    box = device.page.evaluate("""(() => {
      const frame = document.querySelector("iframe"), outer = frame.getBoundingClientRect();
      const inner = frame.contentDocument.getElementById("b").getBoundingClientRect();
      return [outer.y + 2 + inner.y, outer.x + 2 + inner.x, inner.height, inner.width] })()""")
    assert [
        framed.y * height,
        framed.x * width,
        framed.height * height,
        framed.width * width,
    ] == pytest.approx(box)
