"""The link to one phone behind adb: commands in, what the phone said out, checked.

adb gets argument lists; what the phone's shell parses again is quoted by `quoted`, and only there. A phone that went away
is looked for. What only asks is then asked again; what acts is never repeated, for it may have been done.
"""

import re
import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from uivlm.devices.adb_server import Adb, one_line, said, users_adb
from uivlm.devices.device import DeviceError

ADDRESS = r"[\w.-]+:\d+|\[[0-9a-fA-F:]+\]:\d+"  # a phone by network
DONE = "uivlm-done"  # said last: whole output, exit status 0, on every Android and with every adb
GONE = re.compile(
    r"^(?:adb|error|\*).*(?:not found|no devices|offline|closed|unauthorized|cannot connect|protocol fault|reset)"
)
LOOK_EVERY_S = 0.2
T = TypeVar("T")


class LostError(DeviceError):
    """The phone, or adb's server, went away."""


@dataclass(frozen=True, slots=True)
class Link:
    """One phone, by serial number or HOST:PORT."""

    serial: str
    adb: Adb
    patience_s: float = 5.0  # how long a phone that went away is looked for

    def ask(self, *words: str) -> str:
        """The output of a command that may be given twice. Raises DeviceError where its exit status is not 0."""
        return self._twice(lambda: self._run((words,))[0])

    def ask_bytes(self, *words: str) -> bytes:
        """The same as bytes, whatever they are: neither exit status nor wholeness can be known of them."""

        def once() -> bytes:
            done = self.adb.run("-s", self.serial, "exec-out", quoted(words))
            if done.returncode:
                raise LostError(f"phone {self.serial} is gone: {said(done)[:200]}")
            return done.stdout

        return self._twice(once)

    def act(self, *commands: tuple[str, ...]) -> str:
        """Commands one after the other, each at most once; what they print must not tell of an error."""
        name = " ".join(commands[0][:2])
        try:
            out, err = self._run(commands)
        except LostError as error:
            raise DeviceError(
                f"phone {self.serial} went away at `{name}`: nobody knows whether that was done, so it is not repeated"
            ) from error
        if re.search(r"Exception|Error:", out + err):  # some answer 0 even then
            raise DeviceError(f"`{name}` failed on phone {self.serial}: {one_line(f'{out} {err}')[:300]}")
        return out

    def find(self) -> None:
        """Wait until a phone that went away is there again. Raises DeviceError where it stays away."""
        until = time.monotonic() + self.patience_s
        while True:
            self.adb.revive()
            state, wrong = self._state()
            if wrong is None:
                return
            if time.monotonic() > until:
                raise DeviceError(f"phone {self.serial} is gone: {wrong}")
            with suppress(DeviceError):  # the next look says whether it helped
                self._call(state)
            time.sleep(LOOK_EVERY_S)

    def _state(self) -> tuple[str | None, str | None]:
        """What adb says of the phone now, and what is wrong with that, if anything."""
        try:
            state = phones(self.adb).get(self.serial)
        except DeviceError as error:  # adb's server is away, and the phone with it
            return None, str(error)
        return state, trouble(self.serial, state)

    def _call(self, state: str | None) -> None:
        """Make adb look, where it does not do so by itself."""
        if by_address(self.serial):
            if state is None:  # adb's server is a new one
                self.adb.run("connect", self.serial, timeout_s=2.0)
        elif state == "offline":
            self.adb.run("reconnect", "offline", timeout_s=2.0)

    def _twice(self, once: Callable[[], T]) -> T:
        try:
            return once()
        except LostError:
            self.find()
            return once()

    def _run(self, commands: tuple[tuple[str, ...], ...]) -> tuple[str, str]:
        """What was said to stdout and stderr."""
        line = " && ".join(quoted(words) for words in (*commands, ("echo", DONE)))
        done = self.adb.run("-s", self.serial, "shell", line)
        out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
        if "INJECT_EVENTS" in out + err:
            raise DeviceError(
                f"phone {self.serial} refuses input from adb: on Xiaomi and OPPO turn on "
                "'USB debugging (Security settings)' in the developer options"
            )
        whole, mark, _ = out.rpartition(DONE)
        if mark and not done.returncode:
            return whole, err
        silent = not (out or err) and done.returncode in (0, 255)  # adb's way to say that the line was cut
        if silent or GONE.search(err) or self._state()[1]:
            raise LostError(f"phone {self.serial} is gone: {said(done)[:200] or 'it stopped in the middle'}")
        raise DeviceError(
            f"`{commands[0][0]}` failed on phone {self.serial} ({done.returncode}): {said(done)[:300]}"
        )


def open_link(serial: str | None = None, adb: Adb | None = None, patience_s: float = 5.0) -> Link:
    """The phone of this serial number or HOST:PORT; without one, the only phone there is."""
    adb = adb or users_adb()
    adb.revive()
    if serial is not None and by_address(serial):
        done = adb.run("connect", serial)
        words = said(done)
        if "cannot connect to daemon" not in words and ("connected to" not in words or "cannot" in words):
            raise DeviceError(f"no phone answers at {serial}: {words or 'adb said nothing'}")
    there = phones(adb)
    if serial is None:
        if not there:
            raise DeviceError("no phone is connected: plug one in with USB debugging on, or use --device sim")
        if len(there) > 1:
            raise DeviceError(f"{len(there)} phones are connected: name one of {', '.join(sorted(there))}")
        serial = next(iter(there))
    wrong = trouble(serial, there.get(serial))
    if wrong:
        others = ", ".join(sorted(set(there) - {serial}))
        raise DeviceError(wrong if serial in there or not others else f"{wrong} (there: {others})")
    return Link(serial, adb, patience_s)


def phones(adb: Adb) -> dict[str, str]:
    """Serial number -> state of every phone that adb knows."""
    done = adb.run("devices")
    if done.returncode:
        words = said(done)
        if "cannot connect to daemon" in words:
            raise DeviceError("adb's server does not answer: `adb start-server` starts one")
        raise DeviceError(f"adb cannot list the phones: {words[:300]}")
    lines = [line.split("\t") for line in done.stdout.decode(errors="replace").splitlines() if "\t" in line]
    return {line[0]: line[1].strip() for line in lines}


def trouble(serial: str, state: str | None) -> str | None:
    """What is wrong with a phone in this state of adb's, and what to do; None where nothing is."""
    match state:
        case "device":
            return None
        case None:
            return f"no phone {serial} is connected"
        case "unauthorized":
            return f"phone {serial} does not trust this computer: confirm USB debugging on its screen"
        case "offline":
            return f"phone {serial} is offline: plug it in again, or turn USB debugging off and on"
        case "recovery" | "sideload" | "bootloader" | "rescue":
            return f"phone {serial} is in {state} mode: start Android on it"
        case _ if state.startswith("no permissions"):
            return f"this user may not open phone {serial}: install Android's udev rules and plug it in again"
    return f"phone {serial} is {state}: wait until it has started, or plug it in again"


def by_address(serial: str) -> bool:
    """Is the phone known by HOST:PORT?"""
    return re.fullmatch(ADDRESS, serial) is not None


def quoted(words: tuple[str, ...]) -> str:
    """Words as a line that the phone's shell reads back as exactly these words."""
    return " ".join(shlex.quote(word) for word in words)
