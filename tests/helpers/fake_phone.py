"""A fake phone, alone or behind the real adb; and a list of running processes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from uivlm.actions.gesture import PressKey, TypeText
from uivlm.devices.adb.device import AdbDevice, connect
from uivlm.devices.adb.server import Adb
from uivlm.devices.adb.settle import NO_WAIT
from uivlm.devices.sim.adbd import serve_adb
from uivlm.devices.sim.faults import Faults
from uivlm.devices.sim.shell import ADB_KEYBOARD, LATIN_KEYBOARD, Shell
from uivlm.episodes.episode import Element, Screen

RECONNECT_TIMEOUT_S = 1.0


class FakePhone:
    """A device that shows seeded noise, lists its gestures, and has a field that keeps typed text."""

    def __init__(
        self,
        width: int = 123,
        height: int = 271,
        *,
        elements: Sequence[Element] = (),
        num_moving_screens: int = 0,  # the first ones show other pixels
    ) -> None:
        self.width, self.height = width, height
        self.pixels = np.random.default_rng(7).integers(0, 256, (height, width, 3), dtype=np.uint8)
        self.elements_shown, self.num_moving_screens = tuple(elements), num_moving_screens
        self.num_screens = 0
        self.gestures: list[object] = []
        self.text = ""
        self.error: Exception | None = None  # every call raises it

    def screen(self) -> Screen:
        if self.error:
            raise self.error
        self.num_screens += 1
        if self.num_screens <= self.num_moving_screens:
            return Screen(np.full_like(self.pixels, 10 * (self.num_screens % 20)))
        return Screen(self.pixels, self.elements_shown)

    def perform(self, gesture: object) -> None:
        if self.error:
            raise self.error
        self.gestures.append(gesture)
        match gesture:
            case TypeText(text):
                self.text += text
            case PressKey("enter"):
                self.text += "\n"

    def rotate(self) -> None:
        """Rotate by a quarter turn."""
        self.width, self.height = self.height, self.width
        self.pixels = np.ascontiguousarray(np.rot90(self.pixels))


@contextmanager
def phone_on(
    adb: Adb,
    faults: Faults | None = None,
    keyboards: tuple[str, ...] = (LATIN_KEYBOARD, ADB_KEYBOARD),
    phone: FakePhone | None = None,
) -> Iterator[tuple[AdbDevice, FakePhone, Shell]]:
    """A fake phone behind the real adb client: the device, the phone, its shell."""
    phone = phone or FakePhone()
    shell = Shell(phone, keyboards, faults)
    with serve_adb(shell) as port:
        yield connect(f"127.0.0.1:{port}", adb, NO_WAIT, RECONNECT_TIMEOUT_S), phone, shell


def processes(text: str) -> dict[int, str]:
    """Process id -> command line of the processes whose command line contains a text."""
    command_lines = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # the process ended meanwhile
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if text in line:
                command_lines[int(path.parent.name)] = line
    return command_lines
