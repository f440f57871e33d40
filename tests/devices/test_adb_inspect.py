"""The elements that a phone behind adb reports."""

import pytest

pytest.importorskip("adbutils", reason="adb comes in adbutils' wheel")

from tests.helpers.fake_phone import FakePhone, phone_on
from uivlm.devices.adb.uiautomator import MAX_ELEMENTS, MAX_TEXT_CHARS, parse_elements
from uivlm.devices.device import OPAQUE_WINDOW
from uivlm.devices.sim.faults import Faults
from uivlm.devices.sim.phone import SimPhone
from uivlm.devices.sim.shell import Shell
from uivlm.episodes.episode import Element


@pytest.fixture
def wired(adb):
    with phone_on(adb, phone=SimPhone(layout=3)) as (device, phone, shell):
        yield device, phone, shell


def position(element: Element) -> tuple[int, int]:
    return round(100 * element.y), round(100 * element.x)


def test_the_elements_are_those_of_the_screen(wired):
    device, phone, _ = wired
    for app in ("Settings", "Clock", "Messages"):
        phone.launch(app)
        device.screen()
        root, *nodes = device.elements()
        assert (root.y, root.x, root.height, root.width) == (0, 0, 1, 1)
        assert (root.ui_type, root.clickable) == ("FrameLayout", False)
        targets = [node for node in nodes if node.clickable]
        assert len(targets) == len(phone.touch_boxes) > 0
        elements = sorted((node for node in nodes if not node.clickable), key=position)
        expected = sorted(phone.screen().elements, key=position)
        for element, other in zip(elements, expected, strict=True):
            assert element.y == pytest.approx(other.y, abs=1 / phone.height)
            assert element.x == pytest.approx(other.x, abs=1 / phone.width)
            assert element.height == pytest.approx(other.height, abs=2 / phone.height)
            if other.text:
                assert (element.text, element.ui_type) == (other.text, "TextView")
            else:
                assert (element.text, element.ui_type) == (
                    other.ui_type[5:].replace("_", " ").lower(),
                    "ImageView",
                )


def test_any_text_of_a_screen_survives(adb):
    texts = [
        "<node text='x'>",
        "&amp; & ]]>",
        'a "b" c',
        "<!DOCTYPE x>",
        "日本 👩‍👩‍👧",
        "a\nb\tc",
        "\x00\x1b[31m\x07",
        "\ud800",
    ]

    elements = [Element(0.1 * i, 0.1, 0.05, 0.5, text) for i, text in enumerate(texts)]
    with phone_on(adb, phone=FakePhone(elements=elements)) as (device, _, _):
        received = [element.text for element in device.elements()[1:]]
    assert received[:6] == texts[:6]
    assert received[6:] == ["..[31m.", "."]  # characters that XML does not allow


def test_a_restless_screen_has_no_elements(adb):
    for faults in (Faults(never_idle=True), Faults(garbage_output=True)):
        with phone_on(adb, faults) as (device, _, _):
            assert device.elements() is None


def node(bounds: str, inner: str = "", **attributes: str) -> str:
    text = " ".join(f'{name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<node bounds="{bounds}" {text}>{inner}</node>'


def tree(*nodes: str) -> bytes:
    hierarchy = f'<hierarchy rotation="0">{"".join(nodes)}</hierarchy>'
    return f"<?xml version='1.0'?>{hierarchy}UI hierchary dumped".encode()


def test_nodes_become_elements_outer_before_inner():
    button = node(
        "[100,400][300,500]", text="Send", content_desc="Send", **{"class": "android.widget.Button"}
    )
    icon = node(
        "[0,0][50,50]", text="", content_desc="Navigate up", **{"class": "android.widget.ImageButton"}
    )
    both = node("[50,0][60,50]", text="12", content_desc="unread", **{"class": "View"})
    hidden = node("[10,10][10,40]", text="hidden")
    off = node("[-20,-10][40,30]", text="half")
    no_bounds = node("somewhere", text="x")
    root = node("[0,0][400,900]", button + icon + both + hidden + off + no_bounds)
    elements = parse_elements(tree(root), (400, 1000))  # uiautomator leaves out the navigation bar
    assert [(e.text, e.ui_type) for e in elements] == [
        ("", ""),
        ("Send", "Button"),
        ("Navigate up", "ImageButton"),
        ("12 unread", "View"),
        ("half", ""),
    ]
    assert elements[1] == Element(0.4, 0.25, 0.1, 0.5, "Send", "Button")
    (_, covered) = parse_elements(tree(node("[0,0][400,900]")), (400, 1000), [(0, 600, 400, 1000)])
    assert covered == Element(0.6, 0, 0.4, 1, "", OPAQUE_WINDOW)
    half = elements[4]
    assert (half.y, half.x, half.height, half.width) == (0, 0, 0.03, 0.1)
    for screen_size in (None, (900, 400)):  # no screenshot yet, or rotated since: the root is the screen
        assert parse_elements(tree(root), screen_size)[0] == Element(0, 0, 1, 1, "", "")


def test_nodes_say_whether_they_are_clickable():
    def clickable(**attributes: str) -> bool | None:
        return parse_elements(tree(node("[0,0][9,9]", **attributes)), None)[0].clickable

    assert clickable(clickable="true", long_clickable="false") is True
    assert clickable(clickable="false", long_clickable="true") is True
    assert clickable(clickable="false", text="x") is False
    assert clickable(clickable="false") is None  # a canvas may draw buttons
    assert clickable(text="x") is None
    parent = node("[0,0][9,9]", node("[0,0][9,9]", clickable="false"), clickable="false")
    assert [element.clickable for element in parse_elements(tree(parent), None)] == [False, None]


BOMB = (
    '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    '<hierarchy><node bounds="[0,0][9,9]" text="&b;"/></hierarchy>'
)
OUTSIDE = (
    '<hierarchy><!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
    '<node bounds="[0,0][9,9]" text="&a;"/></hierarchy>'
)


@pytest.mark.parametrize(
    "dump",
    [
        b"",
        b"ERROR: could not get idle state.\n",
        b"<hierarchy>",
        b"<hierarchy></hierarchy>",
        b"<hierarchy><node></hierarchy>",
        tree(node("[0,0][9,9]", text="&undefined;")),
        tree(node("[0,0][0,0]")),
        tree(node("[0,0][9,9]") * (MAX_ELEMENTS + 1)),
        tree("<!-- " + "x" * 9_000_000 + " -->" + node("[0,0][9,9]")),
        BOMB.encode(),
        OUTSIDE.encode(),
        b"\xff\xfe" + tree(node("[0,0][9,9]", text="\x01")),
    ],
)
def test_a_dump_that_is_not_a_tree_is_none(dump):
    assert parse_elements(dump, None) is None


def test_deep_and_long_trees():
    deep = node("[0,0][9,9]")
    for _ in range(2000):
        deep = node("[0,0][9,9]", deep)
    assert len(parse_elements(tree(deep), None)) == 2001
    (element,) = parse_elements(tree(node("[0,0][9,9]", text="x" * 10_000)), None)
    assert len(element.text) == MAX_TEXT_CHARS


def test_the_simulation_reports_what_it_cannot_do():
    shell = Shell(FakePhone())
    for line in (
        "uiautomator dump",
        "uiautomator dump /sdcard/x.xml",
        "cmd statusbar expand",
        "pm uninstall x",
        "am start",
        "monkey 500",
    ):
        result = shell.run(line)
        assert result.returncode != 0, line
        assert result.stderr.startswith(b"Error: "), line
    assert b"Can't find service" in shell.run("dumpsys nothing").stderr
