"""A phone driven through the real adb: gestures in, screens out.

    with private_server() as adb:      # a simulated phone: a private adb server
        phone = connect(f"127.0.0.1:{port}", adb, NO_WAIT)
    with user_server() as adb:         # a real phone: the user's adb server
        phone = connect(None, adb)

All pixels are those of the screenshot, which includes rotation and an overridden size. `wm size` is never
queried.
"""

import re
import time

from uivlm.actions.action import Key
from uivlm.actions.gesture import Gesture, PressKey, Touch, TypeText
from uivlm.devices.adb.capture import ScreenCapture
from uivlm.devices.adb.dumpsys import (
    display_size,
    focused_app_package,
    foreground_package,
    resumed_activity_package,
    windows_above_focus,
)
from uivlm.devices.adb.link import Link, open_link
from uivlm.devices.adb.server import Adb
from uivlm.devices.adb.settle import SettleResult, SettleTiming, capture_still_frame
from uivlm.devices.adb.text_input import type_text
from uivlm.devices.adb.uiautomator import parse_elements
from uivlm.devices.device import LONG_PRESS_MS, DeviceError
from uivlm.episodes.episode import Element, Screen

KEYCODES: dict[Key, int] = {"home": 3, "back": 4, "enter": 66}
MAX_TOUCH_MS = 20_000  # of one touch: adb answers only when the touch is over
PACKAGE_PATTERN = r"[A-Za-z][\w.]+"
TRANSITION_TRIES, TRANSITION_INTERVAL_S = 5, 0.1  # between two apps no window has the focus


def connect(
    serial: str | None = None,
    adb: Adb | None = None,
    settle_timing: SettleTiming | None = None,
    reconnect_timeout_s: float = 5.0,
) -> "AdbDevice":
    """Connect to the phone with this serial number or HOST:PORT, or else to the only phone.

    `reconnect_timeout_s`: how long to wait for a phone that disconnects.
    """
    return AdbDevice(open_link(serial, adb, reconnect_timeout_s), settle_timing or SettleTiming())


class AdbDevice:
    """One phone behind adb, an InspectableDevice."""

    def __init__(self, link: Link, settle_timing: SettleTiming) -> None:
        self.link = link
        self.settle_timing = settle_timing
        self.screen_capture = ScreenCapture(link)
        self.last_settle: SettleResult | None = None  # how the last screen settled
        self._screen_size: tuple[int, int] | None = None  # width and height in pixels of the last screen
        self._last_touch_time: float | None = None  # end of the last gesture, monotonic seconds

    @property
    def serial(self) -> str:
        return self.link.serial

    def screen(self) -> Screen:
        """Return the screen once two frames are equal, or the last frame at the timeout (`last_settle`)."""
        screen, self.last_settle = capture_still_frame(
            self.screen_capture.frame, self.settle_timing, self._last_touch_time
        )
        self._screen_size = (screen.pixels.shape[1], screen.pixels.shape[0])
        return screen

    def perform(self, gesture: Gesture) -> None:
        try:
            match gesture:
                case Touch(((x, y),), ms) if ms < LONG_PRESS_MS:
                    self._touch("tap", (x, y))
                case Touch(((x, y),), ms):
                    self._touch("swipe", (x, y), (x, y), ms=ms)
                case Touch((start, end), ms):
                    self._touch("swipe", start, end, ms=ms)
                case TypeText(text):
                    type_text(self.link, text, self.settle_timing.first_frame_delay_s)
                case PressKey(name):
                    self.link.execute(("input", "keyevent", str(KEYCODES[name])))
                case _:
                    raise DeviceError(f"gesture: got {gesture}; expected a touch with one or two points")
        finally:
            self._last_touch_time = time.monotonic()

    def launch(self, package: str) -> None:
        """Start an app as its icon does. (`monkey` would also unlock the rotation.)"""
        if not re.fullmatch(PACKAGE_PATTERN, package, re.ASCII):
            raise DeviceError(f"package: got {package!r}; expected a name such as com.android.settings")
        lines = self.link.query("cmd", "package", "resolve-activity", "--brief", package).split()
        if not lines or not lines[-1].startswith(f"{package}/"):
            raise DeviceError(
                f"phone {self.serial} has no app {package}: `adb shell pm list packages` lists its apps"
            )
        try:
            self.link.execute(("am", "start", "-n", lines[-1]))
        finally:
            self._last_touch_time = time.monotonic()

    def foreground(self) -> str:
        """Return the package of the foreground app; "" if unknown, or if several displays have a focus."""
        dump = ""
        for i in range(TRANSITION_TRIES):
            time.sleep(TRANSITION_INTERVAL_S if i else 0.0)
            dump = self.link.query("dumpsys", "window")
            if (package := foreground_package(dump)) is not None:
                return package
        return focused_app_package(dump) or resumed_activity_package(
            self.link.query("dumpsys", "activity", "activities")
        )

    def elements(self) -> tuple[Element, ...] | None:
        """Return the elements that uiautomator reports; None if the screen never becomes idle for it.

        It reports the focused window only. The windows above it are opaque.
        """
        dump = self.link.query_bytes("uiautomator", "dump", "/dev/tty")
        windows = windows_above_focus(
            self.link.query("dumpsys", "window"), self.link.query("dumpsys", "window", "windows")
        )
        return None if windows is None else parse_elements(dump, self._screen_size, windows)

    def _touch(self, command: str, *points: tuple[int, int], ms: int | None = None) -> None:
        for x, y in points:
            if min(x, y) < 0 or (
                self._screen_size and (x >= self._screen_size[0] or y >= self._screen_size[1])
            ):
                raise DeviceError(f"touch: got the point {(x, y)}, which is outside the screen")
        if ms is not None and ms > MAX_TOUCH_MS:
            raise DeviceError(f"touch: got {ms} ms; the maximum is {MAX_TOUCH_MS}")
        self._check_not_rotated()
        args = [coordinate for point in points for coordinate in point] + ([] if ms is None else [ms])
        self.link.execute(("input", command, *(str(int(arg)) for arg in args)))

    def _check_not_rotated(self) -> None:
        """Raise if the display was rotated: a gesture's pixels are those of the last screen."""
        size = display_size(self.link.query("dumpsys", "window", "displays"))
        if (
            self._screen_size
            and size
            and (size[0] > size[1]) != (self._screen_size[0] > self._screen_size[1])
        ):
            raise DeviceError(
                f"phone {self.serial} was rotated after its screenshot (from {self._screen_size[0]} x "
                f"{self._screen_size[1]} to {size[0]} x {size[1]}); nothing was touched. Lock the rotation."
            )
