"""The link to one phone behind adb: commands in, checked output out.

adb receives argument lists. `shell_join` alone quotes what the phone's shell parses again. If a phone
disconnects, the link waits for it. It then repeats queries, but never commands that act: they may already
have been executed. What is typed goes to `adb shell` on stdin: every user can read a process's arguments.
"""

import re
import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from uivlm.devices.adb.server import Adb, one_line, output_line, user_adb
from uivlm.devices.device import DeviceError

ADDRESS_PATTERN = r"[\w.-]+:\d+|\[[0-9a-fA-F:]+\]:\d+"  # a phone by network
# Printed last: then the output is complete and the exit status 0, with every Android and every adb.
DONE_MARKER = "uivlm-done"
PRIVATE_OUTPUT = "its output may contain what was typed and is not shown"
GONE_PATTERN = re.compile(
    r"^(?:adb|error|\*)"
    r".*(?:not found|no devices|offline|closed|unauthorized|cannot connect|protocol fault|reset)"
)
POLL_INTERVAL_S = 0.2
T = TypeVar("T")


class DeviceLostError(DeviceError):
    """The phone or the adb server disconnected."""


@dataclass(frozen=True, slots=True)
class Link:
    """One phone, by serial number or HOST:PORT."""

    serial: str
    adb: Adb
    reconnect_timeout_s: float = 5.0  # how long to wait for a phone that disconnected

    def query(self, *argv: str) -> str:
        """Return the output of a repeatable command. Raises DeviceError if its exit status is not 0."""
        return self._retry_once(lambda: self._run((argv,))[0])

    def query_bytes(self, *argv: str) -> bytes:
        """Return the output as bytes. Neither its exit status nor its completeness is known."""

        def run() -> bytes:
            completed = self.adb.run("-s", self.serial, "exec-out", shell_join(argv))
            if completed.returncode:
                raise DeviceLostError(f"phone {self.serial} is gone: {output_line(completed)[:200]}")
            return completed.stdout

        return self._retry_once(run)

    def execute(self, *commands: tuple[str, ...], private: bool = False) -> str:
        """Run commands in order, each at most once. Raises DeviceError if one fails or prints an error.

        `private`: no list of arguments and no error contains the commands or their output.
        """
        name = " ".join(commands[0][:2])
        try:
            out, err = self._run(commands, private)
        except DeviceLostError as error:
            raise DeviceError(
                f"phone {self.serial} disconnected during `{name}`. The command may have been executed, "
                "so it is not repeated."
            ) from error
        if re.search(r"Exception|Error:", out + err):  # some commands return 0 even then
            output = PRIVATE_OUTPUT if private else one_line(f"{out} {err}")[:300]
            raise DeviceError(f"`{name}` failed on phone {self.serial}: {output}")
        return out

    def wait_for_device(self) -> None:
        """Wait until the phone is connected again. Raises DeviceError at the timeout."""
        deadline = time.monotonic() + self.reconnect_timeout_s
        while True:
            self.adb.ensure_running()
            state, problem = self._state()
            if problem is None:
                return
            if time.monotonic() > deadline:
                raise DeviceError(f"phone {self.serial} is gone: {problem}")
            with suppress(DeviceError):  # the next state shows whether it helped
                self._reconnect(state)
            time.sleep(POLL_INTERVAL_S)

    def _state(self) -> tuple[str | None, str | None]:
        """Return the state that adb reports for the phone, and its problem, if any."""
        try:
            state = list_devices(self.adb).get(self.serial)
        except DeviceError as error:  # without the adb server, the phone is gone, too
            return None, str(error)
        return state, state_problem(self.serial, state)

    def _reconnect(self, state: str | None) -> None:
        """Make adb reconnect if it does not do so by itself."""
        if is_network_serial(self.serial):
            if state is None:  # the adb server was restarted
                self.adb.run("connect", self.serial, timeout_s=2.0)
        elif state == "offline":
            self.adb.run("reconnect", "offline", timeout_s=2.0)

    def _retry_once(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except DeviceLostError:
            self.wait_for_device()
            return call()

    def _run(self, commands: tuple[tuple[str, ...], ...], private: bool = False) -> tuple[str, str]:
        """Return stdout and stderr."""
        line = " && ".join(shell_join(argv) for argv in (*commands, ("echo", DONE_MARKER)))
        if private:
            completed = self.adb.run("-s", self.serial, "shell", stdin=f"{line}\n".encode())
        else:
            completed = self.adb.run("-s", self.serial, "shell", line)
        out, err = (text.decode(errors="replace") for text in (completed.stdout, completed.stderr))
        if "INJECT_EVENTS" in out + err:
            raise DeviceError(
                f"phone {self.serial} rejects input from adb: on Xiaomi and OPPO turn on "
                "'USB debugging (Security settings)' in the developer options"
            )
        output, marker, _ = out.rpartition(DONE_MARKER)
        if marker and not completed.returncode:
            return output, err
        # If the connection breaks, adb prints nothing.
        cut = not (out or err) and completed.returncode in (0, 255)
        if cut or GONE_PATTERN.search(err) or self._state()[1]:
            problem = "" if private else output_line(completed)[:200]
            problem = problem or "the connection broke during the command"
            raise DeviceLostError(f"phone {self.serial} is gone: {problem}")
        output = PRIVATE_OUTPUT if private else output_line(completed)[:300]
        raise DeviceError(
            f"`{commands[0][0]}` failed on phone {self.serial} (exit status {completed.returncode}): {output}"
        )


def open_link(serial: str | None = None, adb: Adb | None = None, reconnect_timeout_s: float = 5.0) -> Link:
    """Open the phone with this serial number or HOST:PORT, or else the only phone."""
    adb = adb or user_adb()
    adb.ensure_running()
    if serial is not None and is_network_serial(serial):
        output = output_line(adb.run("connect", serial))
        if "cannot connect to daemon" not in output and ("connected to" not in output or "cannot" in output):
            raise DeviceError(f"no phone answers at {serial}: {output or 'adb printed nothing'}")
    states = list_devices(adb)
    if serial is None:
        if not states:
            raise DeviceError("no phone is connected: connect one with USB debugging on, or use --device sim")
        if len(states) > 1:
            raise DeviceError(
                f"{len(states)} phones are connected: choose one of {', '.join(sorted(states))}"
            )
        serial = next(iter(states))
    problem = state_problem(serial, states.get(serial))
    if problem:
        others = ", ".join(sorted(set(states) - {serial}))
        raise DeviceError(problem if serial in states or not others else f"{problem} (connected: {others})")
    return Link(serial, adb, reconnect_timeout_s)


def list_devices(adb: Adb) -> dict[str, str]:
    """Return serial number -> state of every phone that adb lists."""
    completed = adb.run("devices")
    if completed.returncode:
        output = output_line(completed)
        if "cannot connect to daemon" in output:
            raise DeviceError("the adb server does not answer: start it with `adb start-server`")
        raise DeviceError(f"adb cannot list the phones: {output[:300]}")
    lines = completed.stdout.decode(errors="replace").splitlines()
    rows = [line.split("\t") for line in lines if "\t" in line]
    return {row[0]: row[1].strip() for row in rows}


def state_problem(serial: str, state: str | None) -> str | None:
    """Return the problem of a phone in this adb state, and its fix; None if there is none."""
    match state:
        case "device":
            return None
        case None:
            return f"phone {serial} is not connected"
        case "unauthorized":
            return f"phone {serial} does not trust this computer: allow USB debugging on its screen"
        case "offline":
            return f"phone {serial} is offline: reconnect it, or turn USB debugging off and on"
        case "recovery" | "sideload" | "bootloader" | "rescue":
            return f"phone {serial} is in {state} mode: start Android on it"
        case _ if state.startswith("no permissions"):
            return f"this user has no access to phone {serial}: install Android's udev rules and reconnect it"
    return f"phone {serial} is {state}: wait until it has started, or reconnect it"


def is_network_serial(serial: str) -> bool:
    """Is the serial number a HOST:PORT?"""
    return re.fullmatch(ADDRESS_PATTERN, serial) is not None


def shell_join(argv: tuple[str, ...]) -> str:
    """Quote arguments as one line, which the phone's shell splits into exactly these arguments."""
    return shlex.join(argv)
