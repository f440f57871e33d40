"""The adb program and its server: argument lists in, what adb answered out.

A server of our own never meets the user's: other port, other keys, ended by process id, no stray one after it.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from uivlm.devices.device import DeviceError


@dataclass(frozen=True, slots=True)
class Adb:
    """The adb program and the server that it talks to."""

    program: str
    options: tuple[str, ...] = ()  # none: the user's server
    environment: dict[str, str] | None = field(default=None, repr=False)
    timeout_s: float = 30.0

    def run(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        """One adb command; its exit status is the caller's to check."""
        try:
            return subprocess.run(
                [self.program, *self.options, *arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self.timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise DeviceError(
                f"adb {arguments[0]} had no answer within {self.timeout_s:g} s: is the phone still there?"
            ) from None
        except OSError as error:
            raise DeviceError(f"adb cannot be started: {error.strerror or error}") from error


def program(bundled: bool) -> str:
    """An adb: the user's own (its server must not meet another version), or the one in adbutils' wheel."""
    own = shutil.which("adb")
    if own and not bundled:
        return own
    try:
        import adbutils
    except ImportError:
        if own:
            return own
        raise DeviceError("no adb program: install adbutils (it brings one) or put adb on the PATH") from None
    return str(adbutils.adb_path())


@contextmanager
def own_server() -> Iterator[Adb]:
    """A private adb server on a free port with its own keys; it ends with the block, nothing is left behind."""
    adb = program(bundled=True)
    foreign = ("ADB_SERVER_SOCKET", "ANDROID_ADB_SERVER_ADDRESS", "ANDROID_ADB_SERVER_PORT", "ANDROID_SERIAL")
    environment = {name: value for name, value in os.environ.items() if name not in foreign}
    with tempfile.TemporaryDirectory(prefix="uivlm-adb-", ignore_cleanup_errors=True) as home:
        # Only what is connected by address: the user's phones and emulators are not its business. (The search for
        # USB phones would also hold up the first command for 3 s where there is no USB.)
        environment |= {"ADB_MDNS": "0", "ADB_USB": "0", "ADB_EMU": "0", "HOME": home, "TMPDIR": home}
        port = _free_port()
        with open(Path(home) / "adb.log", "wb") as log:
            server = subprocess.Popen(
                [adb, "-L", f"tcp:localhost:{port}", "nodaemon", "server"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us: the phone still has to be put back in order
            )
        try:
            _wait_for(server, port)
            # By address, not by name: a client whose server is gone then fails instead of starting a stray one.
            yield Adb(adb, ("-H", "127.0.0.1", "-P", str(port)), environment)
        finally:
            server.terminate()
            try:
                server.wait(5)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(server: "subprocess.Popen[bytes]", port: int) -> None:
    until = time.monotonic() + 10
    while server.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.01)
    raise DeviceError(f"adb's server did not start on port {port} (exit status {server.poll()})")
