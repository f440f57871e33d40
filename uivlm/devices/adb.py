"""A phone driven through the real adb: gestures in, screens out.

    with own_server() as adb:          # a simulated phone: a private adb server
        phone = connect(f"127.0.0.1:{port}", adb, AT_ONCE)
    with users_server() as adb:        # a real phone: the user's adb server
        phone = connect(None, adb)

All pixels are those of the screenshot: rotation and an overridden size are in them. `wm size` is never asked.
"""

import re
import time

from uivlm.actions.action import Key
from uivlm.actions.gesture import Button, Gesture, Keys, Touch
from uivlm.devices.adb_link import Link, open_link
from uivlm.devices.adb_server import Adb
from uivlm.devices.capture import Camera
from uivlm.devices.device import DeviceError
from uivlm.devices.foreground import focused, focused_app, resumed, shown_size
from uivlm.devices.settle import Settle, Wait, still_frame
from uivlm.devices.typed_text import type_text
from uivlm.devices.ui_tree import elements_in
from uivlm.episode import Element, Screen

KEYCODES: dict[Key, int] = {"home": 3, "back": 4, "enter": 66}
LONG_PRESS_MS = 400  # Android's long-press time-out: a touch this long is no tap
LONGEST_MS = 20_000  # of a touch: adb's answer comes when it is over
PACKAGE = r"[A-Za-z][\w.]+"
TRANSITION_TRIES, TRANSITION_S = 5, 0.1  # between two apps no window has the focus


def connect(
    serial: str | None = None,
    adb: Adb | None = None,
    settle: Settle | None = None,
    patience_s: float = 5.0,
) -> "AdbDevice":
    """The phone of this serial number or HOST:PORT; without one, the only phone there is. `patience_s`: how long a phone
    that goes away is looked for."""
    return AdbDevice(open_link(serial, adb, patience_s), settle or Settle())


class AdbDevice:
    """One phone behind adb. It is a Device, and a Telling one."""

    def __init__(self, link: Link, settle: Settle) -> None:
        self.link = link
        self.settle = settle
        self.camera = Camera(link)
        self.last_wait: Wait | None = None  # how the last screen settled
        self._size: tuple[int, int] | None = None  # width and height in pixels of the last screen
        self._touched: float | None = None  # when the last gesture ended, monotonic seconds

    @property
    def serial(self) -> str:
        return self.link.serial

    def screen(self) -> Screen:
        """The screen once two frames are equal, or the last frame at the time limit: `last_wait` says which."""
        pixels, self.last_wait = still_frame(self.camera.frame, self.settle, self._touched)
        self._size = (pixels.shape[1], pixels.shape[0])
        return Screen(pixels)

    def perform(self, gesture: Gesture) -> None:
        try:
            match gesture:
                case Touch(((x, y),), ms) if ms < LONG_PRESS_MS:
                    self._touch("tap", (x, y))
                case Touch(((x, y),), ms):
                    self._touch("swipe", (x, y), (x, y), ms=ms)
                case Touch((start, end), ms):
                    self._touch("swipe", start, end, ms=ms)
                case Keys(text):
                    type_text(self.link, text, self.settle.first_s)
                case Button(name):
                    self.link.act(("input", "keyevent", str(KEYCODES[name])))
                case _:
                    raise DeviceError(f"adb cannot perform {gesture}: a touch has one or two points")
        finally:
            self._touched = time.monotonic()

    def launch(self, package: str) -> None:
        """Start an app as its icon does. (Not by `monkey`, which also unlocks the rotation.)"""
        if not re.fullmatch(PACKAGE, package, re.ASCII):
            raise DeviceError(f"{package!r} is no package name: say one such as com.android.settings")
        found = self.link.ask("cmd", "package", "resolve-activity", "--brief", package).split()
        if not found or not found[-1].startswith(f"{package}/"):
            raise DeviceError(
                f"phone {self.serial} has no app {package} to start: `pm list packages` says which"
            )
        try:
            self.link.act(("am", "start", "-n", found[-1]))
        finally:
            self._touched = time.monotonic()

    def foreground(self) -> str:
        """Package of the app in front; "" where it cannot be told."""
        dump = ""
        for i in range(TRANSITION_TRIES):
            time.sleep(TRANSITION_S if i else 0.0)
            dump = self.link.ask("dumpsys", "window")
            if package := focused(dump):
                return package
        return focused_app(dump) or resumed(self.link.ask("dumpsys", "activity", "activities")) or ""

    def elements(self) -> tuple[Element, ...] | None:
        """What uiautomator finds on the screen now; None where it finds the screen too restless."""
        return elements_in(self.link.ask_bytes("uiautomator", "dump", "/dev/tty"), self._size)

    def _touch(self, kind: str, *points: tuple[int, int], ms: int | None = None) -> None:
        for x, y in points:
            if min(x, y) < 0 or (self._size and (x >= self._size[0] or y >= self._size[1])):
                raise DeviceError(f"a touch at {(x, y)} lies outside the screen")
        if ms is not None and ms > LONGEST_MS:
            raise DeviceError(f"a touch of {ms} ms: {LONGEST_MS} is the most")
        self._check_not_turned()
        numbers = [number for point in points for number in point] + ([] if ms is None else [ms])
        self.link.act(("input", kind, *(str(int(number)) for number in numbers)))

    def _check_not_turned(self) -> None:
        """The pixels of a gesture are those of the last screen: on a turned one they mean other things."""
        now = shown_size(self.link.ask("dumpsys", "window", "displays"))
        if self._size and now and (now[0] > now[1]) != (self._size[0] > self._size[1]):
            seen = f"{self._size[0]} x {self._size[1]}"
            raise DeviceError(
                f"phone {self.serial} was turned since its screen was seen ({seen} then, {now[0]} x {now[1]} now): nothing "
                "was touched; lock the rotation"
            )
