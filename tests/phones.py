"""Phones and their parts for the tests of adb: a fake device behind the real adb, and what processes there are."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from uivlm.actions.gesture import Button, Keys
from uivlm.devices.adb import AdbDevice, connect
from uivlm.devices.adb_server import Adb
from uivlm.devices.settle import AT_ONCE
from uivlm.devices.sim.adbd import serve
from uivlm.devices.sim.faults import Faults
from uivlm.devices.sim.shell import ADB_KEYBOARD, LATIN_KEYBOARD, Shell
from uivlm.episode import Screen

PATIENCE_S = 1.0


class FakePhone:
    """A screen of seeded noise, a field that remembers what is typed, a list of gestures."""

    def __init__(self, width: int = 123, height: int = 271) -> None:
        self.width, self.height = width, height
        self.pixels = np.random.default_rng(7).integers(0, 256, (height, width, 3), dtype=np.uint8)
        self.gestures: list[object] = []
        self.text = ""
        self.broken: Exception | None = None

    def screen(self) -> Screen:
        if self.broken:
            raise self.broken
        return Screen(self.pixels)

    def perform(self, gesture: object) -> None:
        if self.broken:
            raise self.broken
        self.gestures.append(gesture)
        match gesture:
            case Keys(text):
                self.text += text
            case Button("enter"):
                self.text += "\n"

    def turn(self) -> None:
        """By a quarter."""
        self.width, self.height = self.height, self.width
        self.pixels = np.ascontiguousarray(np.rot90(self.pixels))


@contextmanager
def phone_on(
    adb: Adb,
    faults: Faults | None = None,
    keyboards: tuple[str, ...] = (LATIN_KEYBOARD, ADB_KEYBOARD),
    phone: FakePhone | None = None,
) -> Iterator[tuple[AdbDevice, FakePhone, Shell]]:
    """A fake phone as the real adb client sees it."""
    phone = phone or FakePhone()
    shell = Shell(phone, keyboards, faults)
    with serve(shell) as port:
        yield connect(f"127.0.0.1:{port}", adb, AT_ONCE, PATIENCE_S), phone, shell


def processes(needle: str) -> dict[int, str]:
    """This machine's processes whose command line holds a text."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it ended while we looked
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if needle in line:
                found[int(path.parent.name)] = line
    return found
