"""What a phone behind adb reports of its apps: the one in front, what covers it; and how apps start."""

import pytest

pytest.importorskip("adbutils", reason="adb comes in adbutils' wheel")

from tests.helpers.fake_phone import phone_on
from uivlm.actions.gesture import PressKey
from uivlm.devices.adb.device import TRANSITION_TRIES, AdbDevice
from uivlm.devices.adb.dumpsys import (
    display_size,
    focused_app_package,
    foreground_package,
    resumed_activity_package,
    windows_above_focus,
)
from uivlm.devices.adb.settle import NO_WAIT
from uivlm.devices.device import DeviceError
from uivlm.devices.sim.phone import SimPhone


@pytest.fixture
def wired(adb):
    with phone_on(adb, phone=SimPhone(layout=3)) as (device, phone, shell):
        yield device, phone, shell


# -- the foreground app --------------------------------------------------------------------------------------

SETTINGS = "com.android.settings/com.android.settings.Settings$Sub"
FOCUS = "  mCurrentFocus=Window{{1a2b u0 {}}}\n"
APP = "  mFocusedApp=ActivityRecord{{5e u0 {} t12}}\n"


def window(title: str, package: str, number: int = 0, identity: str = "1a2b", more: str = "") -> str:
    return (
        f"  Window #{number} Window{{{identity} u0 {title}}}:\n    mDisplayId=0 rootTaskId=1\n"
        f"    mOwnerUid=10123 showForAllUsers=false package={package} appop=NONE\n{more}"
    )


@pytest.mark.parametrize(
    ("dump", "package"),
    [
        (FOCUS.format(SETTINGS) + APP.format(SETTINGS), "com.android.settings"),
        (
            window("PopupWindow:80", "com.x") + FOCUS.format("PopupWindow:80") + APP.format("com.x/.Y"),
            "com.x",
        ),
        (
            window("NotificationShade", "com.android.systemui")
            + FOCUS.format("NotificationShade")
            + APP.format(SETTINGS),
            "com.android.systemui",
        ),
        ("  mCurrentFocus=null\n" + APP.format(SETTINGS), None),
        (
            f"  mCurrentFocus=null\n  mFocusedApp=null\n{FOCUS.format(SETTINGS)}{APP.format(SETTINGS)}",
            "com.android.settings",
        ),
        ("", None),
        # Nobody vouches for a title.
        (FOCUS.format("com.android.deskclock/.DeskClock"), ""),
        (window("StatusBar", "com.evil") + FOCUS.format("StatusBar") + APP.format("com.evil/.X"), "com.evil"),
        (FOCUS.format(SETTINGS) + APP.format("com.evil/.X"), "com.evil"),
    ],
)
def test_focus(dump, package):
    assert foreground_package(dump) == package


CLOCK = "mCurrentFocus=Window{1 u0 com.android.deskclock/.DeskClock}"
BANK = window("com.bank/.Pay", "com.bank", 1) + FOCUS.format("com.bank/.Pay") + APP.format("com.bank/.Pay")


@pytest.mark.parametrize(
    ("dump", "package"),
    [
        (window(CLOCK, "com.evil", 0, "9e") + BANK, "com.bank"),  # a title within a line is not read
        (window(f"x\n  {CLOCK}\n", "com.evil", 0, "9e") + BANK, ""),  # a line break makes it a line
        (window(CLOCK, "com.evil") + FOCUS.format(CLOCK) + APP.format("com.evil/.X"), "com.evil"),
        (window("x", "com.evil") + FOCUS.format("x") + APP.format("com.bank/.Pay"), ""),  # a focused overlay
        (BANK + BANK.replace("1a2b", "77").replace("com.bank", "com.two"), ""),  # two displays
        (
            window("a package=com.android.deskclock", "com.evil")
            + FOCUS.format("a")
            + APP.format("com.evil/.X"),
            "",
        ),
        (BANK + "\n  mFocusedApp=ActivityRecord{1 u0 com.android.deskclock/.X t1}\n", ""),
    ],
)
def test_a_title_cannot_pass_for_the_app_in_front(dump, package):
    assert AdbDevice(ScriptedLink([dump]), NO_WAIT).foreground() == package


SHOWN = "    mHasSurface=true isReadyForDisplay()=true\n    isVisible=true\n"
HALF = "    Frames: parent=[0,0][9,9] frame=[0,0][100,50] last=[0,0][100,50]\n"
KEYBOARD = (
    "    mAttrs={(0,0)(fillxfill) ty=INPUT_METHOD fmt=TRANSPARENT\n      fl=NOT_FOCUSABLE SPLIT_TOUCH}\n"
    "    touchable region=SkRegion((0,60,100,200))\n    Frames: frame=[0,5][100,200]\n"
)


@pytest.mark.parametrize(
    ("above", "boxes"),
    [
        ("", ()),
        (window("x", "com.evil", 0, "9e", SHOWN + HALF), ((0, 0, 100, 50),)),
        (window("x", "com.evil", 0, "9e", HALF + "    isReadyForDisplay()=false\n"), ()),
        (
            window("x", "com.x", 0, "9e", f"    mAttrs={{ty=TOAST\n      fl=NOT_TOUCHABLE}}\n{SHOWN}{HALF}"),
            (),
        ),
        (window("x", "com.x", 0, "9e", f"    mAttrs={{ty=2 fl=#1000018 pfl=0x0}}\n{SHOWN}{HALF}"), ()),
        (window("InputMethod", "com.keys", 0, "9e", KEYBOARD + SHOWN), ((0, 60, 100, 200),)),
        # A title cannot hide its window.
        (
            window("x fl=NOT_TOUCHABLE", "com.evil", 0, "9e", f"    fl=SPLIT\n{SHOWN}{HALF}"),
            ((0, 0, 100, 50),),
        ),
        (
            window("x", "com.evil", 0, "9e", f"    ty=2\n{SHOWN}{HALF}").replace("x}", "x ty=INPUT_METHOD}"),
            ((0, 0, 100, 50),),
        ),
        (window("x}:\n  Window #1 Window{1a2b u0 y", "com.evil", 0, "9e", SHOWN + HALF), None),
    ],
)
def test_windows_above_the_focused_one_take_touches(above, boxes):
    below = window("com.other/.Main", "com.other", 2, "c0", SHOWN + HALF)
    assert windows_above_focus(BANK, above + window("com.bank/.Pay", "com.bank", 1) + below) == boxes
    assert windows_above_focus("  mCurrentFocus=null\n", above) is None


def test_formats_of_older_and_newer_androids():
    old = "mFocusedApp=AppWindowToken{c token=Token{d ActivityRecord{e u0 com.x/.Y t1}}}"
    assert focused_app_package(old) == "com.x"
    assert focused_app_package("mFocusedApp=null") == ""
    assert resumed_activity_package("  mResumedActivity: ActivityRecord{e u0 com.x/.Y t1}") == "com.x"
    assert resumed_activity_package("  topResumedActivity=ActivityRecord{e u0 com.z/.Y t1}") == "com.z"
    assert resumed_activity_package("  mLastPausedActivity: ActivityRecord{e u0 com.x/.Y t1}") == ""
    assert display_size("  init=1080x2400 420dpi base=720x1600 cur=1600x720 app=1500x700") == (1600, 720)
    assert display_size("no size") is None


def test_the_foreground_app_of_the_simulated_phone(wired):
    device, phone, _ = wired
    assert device.foreground() == "sim.launcher"
    phone.state.push("Drawer")
    assert device.foreground() == "sim.launcher"
    for app in ("Settings", "Clock", phone.apps[-1]):
        device.launch(f"sim.{app.lower()}")
        assert phone.state.current.app == app
        assert device.foreground() == f"sim.{app.lower()}"
    device.perform(PressKey("home"))
    assert device.foreground() == "sim.launcher"


class ScriptedLink:
    """A link that answers dumpsys from a list."""

    serial = "R5"

    def __init__(self, windows: list[str], activities: str = "") -> None:
        self.windows, self.activities = windows, activities
        self.num_queries = 0

    def query(self, *argv: str) -> str:
        self.num_queries += 1
        if argv == ("dumpsys", "window"):
            return self.windows.pop(0) if len(self.windows) > 1 else self.windows[0]
        assert argv == ("dumpsys", "activity", "activities")
        return self.activities


@pytest.mark.slow
def test_transitions_are_waited_out():
    null = "mCurrentFocus=null\n"
    link = ScriptedLink([null, null, FOCUS.format(SETTINGS) + APP.format(SETTINGS)])
    assert AdbDevice(link, NO_WAIT).foreground() == "com.android.settings"
    assert link.num_queries == 3
    assert (
        AdbDevice(ScriptedLink([null + APP.format(SETTINGS)]), NO_WAIT).foreground() == "com.android.settings"
    )
    link = ScriptedLink([null], "topResumedActivity=ActivityRecord{e u0 com.z/.Y t1}")
    assert AdbDevice(link, NO_WAIT).foreground() == "com.z"
    assert link.num_queries == TRANSITION_TRIES + 1
    assert AdbDevice(ScriptedLink([null]), NO_WAIT).foreground() == ""


# -- starting apps -------------------------------------------------------------------------------------------


def test_apps_that_cannot_be_started(wired):
    device, phone, shell = wired
    with pytest.raises(DeviceError, match=r"has no app sim\.nothing"):
        device.launch("sim.nothing")
    num_commands = len(shell.command_log)
    for name in ("", "sim.clock; reboot", "$(reboot)", "-n", "a b", "sim.clock\n", "9a", "sim/clock", "é.x"):
        with pytest.raises(DeviceError, match="package: got .* expected"):
            device.launch(name)
    assert len(shell.command_log) == num_commands  # nothing reached the phone
    assert phone.app == "Launcher"


def test_apps_are_started_as_on_android(wired):
    _, phone, shell = wired
    clock = shell.run("cmd package resolve-activity --brief sim.clock").stdout.decode()
    assert clock.splitlines()[-1] == "sim.clock/.Main"
    assert b"No activity found" in shell.run("cmd package resolve-activity --brief sim.x").stdout
    assert "package:sim.clock" in shell.run("pm list packages").stdout.decode().splitlines()
    monkey = "monkey -p {} -c android.intent.category.LAUNCHER 1"
    assert b"Events injected: 1" in shell.run(monkey.format("sim.clock")).stdout
    assert phone.app == "Clock"
    refused = shell.run(monkey.format("sim.x"))
    assert refused.returncode == 252
    assert b"No activities found" in refused.stderr
    assert shell.run("am start -W -n sim.notes/.Main").returncode == 0
    assert phone.app == "Notes"
    assert b"does not exist" in shell.run("am start -n sim.notes/.Other").stderr
    assert phone.app == "Notes"


def test_a_device_without_apps_is_one_app(adb):
    with phone_on(adb) as (device, _, shell):
        assert device.foreground() == "sim"
        assert shell.run("pm list packages").stdout.strip() == b""
        with pytest.raises(DeviceError, match="has no app"):
            device.launch("sim.clock")
