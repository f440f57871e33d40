"""What a phone behind adb says besides its pixels: the app in front, what stands on the screen; and how apps start."""

import pytest

pytest.importorskip("adbutils", reason="adb comes in adbutils' wheel")

from phones import FakePhone, phone_on

from uivlm.actions.gesture import Button
from uivlm.devices.adb import TRANSITION_TRIES, AdbDevice
from uivlm.devices.device import DeviceError
from uivlm.devices.foreground import focused, focused_app, resumed, shown_size
from uivlm.devices.settle import AT_ONCE
from uivlm.devices.sim.faults import Faults
from uivlm.devices.sim.phone import Phone
from uivlm.devices.sim.shell import Shell
from uivlm.devices.ui_tree import MOST_ELEMENTS, MOST_TEXT, elements_in
from uivlm.episode import Element, Screen


@pytest.fixture
def wired(adb):
    with phone_on(adb, phone=Phone(layout=3)) as (device, phone, shell):
        yield device, phone, shell


# -- the app in front --------------------------------------------------------------------------------------------

SETTINGS = "com.android.settings/com.android.settings.Settings$Sub"
FOCUS = "  mCurrentFocus=Window{{1a2b u0 {}}}\n"
APP = "  mFocusedApp=ActivityRecord{{5e u0 {} t12}}\n"


@pytest.mark.parametrize(
    ("dump", "package"),
    [
        (FOCUS.format(SETTINGS), "com.android.settings"),
        (FOCUS.format("sim.clock/.Main") + APP.format(SETTINGS), "sim.clock"),
        ("mCurrentFocus=Window{41 com.old/com.old.Main paused=false}", "com.old"),
        (FOCUS.format("NotificationShade") + APP.format(SETTINGS), "com.android.systemui"),
        (FOCUS.format("StatusBar"), "com.android.systemui"),
        (FOCUS.format("PopupWindow:80f3") + APP.format(SETTINGS), "com.android.settings"),
        (FOCUS.format("Application Not Responding: com.x") + APP.format("com.x/.Y"), "com.x"),
        ("  mCurrentFocus=null\n" + APP.format(SETTINGS), None),
        ("  mCurrentFocus=null\n" + FOCUS.format(SETTINGS), "com.android.settings"),  # two displays
        (FOCUS.format("PopupWindow:80f3"), None),
        ("", None),
    ],
)
def test_focus(dump, package):
    assert focused(dump) == package


def test_older_and_newer_words():
    old = "mFocusedApp=AppWindowToken{c token=Token{d ActivityRecord{e u0 com.x/.Y t1}}}"
    assert focused_app(old) == "com.x"
    assert focused_app("mFocusedApp=null") is None
    assert resumed("  mResumedActivity: ActivityRecord{e u0 com.x/.Y t1}") == "com.x"
    assert resumed("  topResumedActivity=ActivityRecord{e u0 com.z/.Y t1}") == "com.z"
    assert resumed("  mLastPausedActivity: ActivityRecord{e u0 com.x/.Y t1}") is None
    assert shown_size("  init=1080x2400 420dpi base=720x1600 cur=1600x720 app=1500x700") == (1600, 720)
    assert shown_size("nothing of the kind") is None


def test_the_app_in_front_of_the_simulated_phone(wired):
    device, phone, _ = wired
    assert device.foreground() == "sim.launcher"
    phone.state.go("Drawer")
    assert device.foreground() == "sim.launcher"
    for app in ("Settings", "Clock", phone.apps[-1]):
        device.launch(f"sim.{app.lower()}")
        assert phone.state.place.app == app
        assert device.foreground() == f"sim.{app.lower()}"
    device.perform(Button("home"))
    assert device.foreground() == "sim.launcher"


class Dumps:
    """A link that answers dumpsys by a list."""

    serial = "R5"

    def __init__(self, windows: list[str], activities: str = "") -> None:
        self.windows, self.activities = windows, activities
        self.asked = 0

    def ask(self, *words: str) -> str:
        self.asked += 1
        if words == ("dumpsys", "window"):
            return self.windows.pop(0) if len(self.windows) > 1 else self.windows[0]
        assert words == ("dumpsys", "activity", "activities")
        return self.activities


def test_transitions_are_waited_out():
    null = "mCurrentFocus=null\n"
    link = Dumps([null, null, FOCUS.format(SETTINGS)])
    assert AdbDevice(link, AT_ONCE).foreground() == "com.android.settings"
    assert link.asked == 3
    assert AdbDevice(Dumps([null + APP.format(SETTINGS)]), AT_ONCE).foreground() == "com.android.settings"
    link = Dumps([null], "topResumedActivity=ActivityRecord{e u0 com.z/.Y t1}")
    assert AdbDevice(link, AT_ONCE).foreground() == "com.z"
    assert link.asked == TRANSITION_TRIES + 1
    assert AdbDevice(Dumps([null]), AT_ONCE).foreground() == ""


# -- starting apps -----------------------------------------------------------------------------------------------


def test_what_cannot_be_started(wired):
    device, phone, shell = wired
    with pytest.raises(DeviceError, match=r"has no app sim\.nothing"):
        device.launch("sim.nothing")
    num = len(shell.log)
    for name in ("", "sim.clock; reboot", "$(reboot)", "-n", "a b", "sim.clock\n", "9a", "sim/clock", "é.x"):
        with pytest.raises(DeviceError, match="is no package name"):
            device.launch(name)
    assert len(shell.log) == num  # nothing of it reached the phone
    assert phone.app == "Launcher"


def test_android_words_of_starting_apps(wired):
    _, phone, shell = wired
    clock = shell.run("cmd package resolve-activity --brief sim.clock").out.decode()
    assert clock.splitlines()[-1] == "sim.clock/.Main"
    assert b"No activity found" in shell.run("cmd package resolve-activity --brief sim.x").out
    assert "package:sim.clock" in shell.run("pm list packages").out.decode().splitlines()
    monkey = "monkey -p {} -c android.intent.category.LAUNCHER 1"
    assert b"Events injected: 1" in shell.run(monkey.format("sim.clock")).out
    assert phone.app == "Clock"
    refused = shell.run(monkey.format("sim.x"))
    assert refused.code == 252
    assert b"No activities found" in refused.err
    assert shell.run("am start -W -n sim.notes/.Main").code == 0
    assert phone.app == "Notes"
    assert b"does not exist" in shell.run("am start -n sim.notes/.Other").err
    assert phone.app == "Notes"


def test_a_device_without_apps_is_one_app(adb):
    with phone_on(adb) as (device, _, shell):
        assert device.foreground() == "sim"
        assert shell.run("pm list packages").out.strip() == b""
        with pytest.raises(DeviceError, match="has no app"):
            device.launch("sim.clock")


# -- what stands on the screen -----------------------------------------------------------------------------------


def test_the_elements_are_those_of_the_screen(wired):
    device, phone, _ = wired
    for app in ("Settings", "Clock", "Messages"):
        phone.launch(app)
        device.screen()
        root, *found = device.elements()
        assert (root.y, root.x, root.height, root.width) == (0, 0, 1, 1)
        assert root.kind == "FrameLayout"
        wanted = phone.screen().elements
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert one.y == pytest.approx(other.y, abs=1 / phone.height)
            assert one.x == pytest.approx(other.x, abs=1 / phone.width)
            assert one.height == pytest.approx(other.height, abs=2 / phone.height)
            if other.text:
                assert (one.text, one.kind) == (other.text, "TextView")
            else:
                assert (one.text, one.kind) == (
                    other.kind[5:].replace("_", " ").lower(),
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

    class Showing(FakePhone):
        def screen(self) -> Screen:
            return Screen(
                self.pixels, tuple(Element(0.1 * i, 0.1, 0.05, 0.5, text) for i, text in enumerate(texts))
            )

    with phone_on(adb, phone=Showing()) as (device, _, _):
        found = [element.text for element in device.elements()[1:]]
    assert found[:6] == texts[:6]
    assert found[6:] == ["..[31m.", "."]  # XML has no such letters


def test_a_restless_screen_has_no_elements(adb):
    for faults in (Faults(restless=True), Faults(garbage=True)):
        with phone_on(adb, faults) as (device, _, _):
            assert device.elements() is None


def node(bounds: str, inner: str = "", **words: str) -> str:
    told = " ".join(f'{name.replace("_", "-")}="{value}"' for name, value in words.items())
    return f'<node bounds="{bounds}" {told}>{inner}</node>'


def tree(*nodes: str) -> bytes:
    return f"<?xml version='1.0'?><hierarchy rotation=\"0\">{''.join(nodes)}</hierarchy>UI hierchary dumped".encode()


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
    found = elements_in(tree(root), (400, 1000))  # uiautomator leaves out the navigation bar
    assert [(e.text, e.kind) for e in found] == [
        ("", ""),
        ("Send", "Button"),
        ("Navigate up", "ImageButton"),
        ("12 unread", "View"),
        ("half", ""),
    ]
    assert found[1] == Element(0.4, 0.25, 0.1, 0.5, "Send", "Button")
    assert (found[4].y, found[4].x, found[4].height, found[4].width) == (0, 0, 0.03, 0.1)
    for seen in (None, (900, 400)):  # nothing seen yet, or turned since: the root is the screen
        assert elements_in(tree(root), seen)[0] == Element(0, 0, 1, 1, "", "")


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
        tree(node("[0,0][9,9]") * (MOST_ELEMENTS + 1)),
        tree("<!-- " + "x" * 9_000_000 + " -->" + node("[0,0][9,9]")),
        BOMB.encode(),
        OUTSIDE.encode(),
        b"\xff\xfe" + tree(node("[0,0][9,9]", text="\x01")),
    ],
)
def test_what_is_no_tree_is_none(dump):
    assert elements_in(dump, None) is None


def test_deep_and_long_trees():
    deep = node("[0,0][9,9]")
    for _ in range(2000):
        deep = node("[0,0][9,9]", deep)
    assert len(elements_in(tree(deep), None)) == 2001
    (one,) = elements_in(tree(node("[0,0][9,9]", text="x" * 10_000)), None)
    assert len(one.text) == MOST_TEXT


def test_the_phone_says_what_the_simulation_cannot():
    shell = Shell(FakePhone())
    for line in (
        "uiautomator dump",
        "uiautomator dump /sdcard/x.xml",
        "cmd statusbar expand",
        "pm uninstall x",
        "am start",
        "monkey 500",
    ):
        answer = shell.run(line)
        assert answer.code != 0, line
        assert answer.err.startswith(b"Error: "), line
    assert b"Can't find service" in shell.run("dumpsys nothing").err
