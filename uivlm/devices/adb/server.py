"""The adb program and its server: argument lists in, output out.

    with private_server() as adb:  # simulated phones: its own port and keys, no access to the user's phones
    with user_server() as adb:     # real phones: the user's server, or one for this block if none runs

A server that we start ends with its block, and also if this process is killed. A small shell reads from a
pipe that only this process holds open. It kills the server when the pipe breaks.
"""

import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from uivlm.devices.device import DeviceError
from uivlm.terminal import printable

SERVER_ENV_VARS = (
    "ADB_SERVER_SOCKET",
    "ANDROID_ADB_SERVER_ADDRESS",
    "ANDROID_ADB_SERVER_PORT",
    "ANDROID_SERIAL",
)
DEFAULT_PORT = 5037  # of adb
WATCHDOG_SCRIPT = 'read -r _; kill -9 "$1"; rm -rf -- "$2"'  # arguments: process id, temporary folder


@dataclass(frozen=True, slots=True)
class Adb:
    """The adb program and the server that it connects to."""

    executable: str
    options: tuple[str, ...] = ()
    env: dict[str, str] | None = field(default=None, repr=False)
    timeout_s: float = 30.0
    ensure_running: Callable[[], None] = field(default=lambda: None, repr=False)  # restarts our own server

    def run(
        self, *arguments: str, stdin: bytes = b"", timeout_s: float | None = None
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run one adb command. The caller checks its exit status."""
        timeout_s = timeout_s or self.timeout_s
        try:
            return subprocess.run(
                [self.executable, *self.options, *arguments],
                env=self.env,
                input=stdin,
                capture_output=True,
                timeout=timeout_s,
                check=False,
                start_new_session=True,  # Ctrl-C must not interrupt a tap
            )
        except subprocess.TimeoutExpired:
            raise DeviceError(
                f"adb did not answer within {timeout_s:g} s: check that the phone is connected"
            ) from None
        except OSError as error:
            raise DeviceError(f"adb did not start: {error.strerror or error}") from error


def output_line(completed: "subprocess.CompletedProcess[bytes]") -> str:
    """Return stdout and stderr of a command in one line."""
    return one_line((completed.stdout + b" " + completed.stderr).decode(errors="replace"))


def one_line(text: str) -> str:
    """Make untrusted text safe to print: one line, no control characters."""
    return printable(" ".join(text.split()))


def find_adb(prefer_bundled: bool) -> str:
    """Find the user's adb, or the one of adbutils. A server stops if a client of another version connects."""
    own = shutil.which("adb")
    if own and not prefer_bundled:
        return own
    try:
        import adbutils
    except ImportError:
        if own:
            return own
        raise DeviceError(
            "adb was not found: install adbutils, which includes it, or put adb on the PATH"
        ) from None
    return str(adbutils.adb_path())


@contextmanager
def private_server() -> Iterator[Adb]:
    """Run a private adb server with its own port and keys. It sees only phones connected by address."""
    adb = find_adb(prefer_bundled=True)
    environment = {name: value for name, value in os.environ.items() if name not in SERVER_ENV_VARS}
    with _temp_dir() as home:
        # Without USB, the search for USB phones would delay the first command by 3 s.
        environment |= {"ADB_MDNS": "0", "ADB_USB": "0", "ADB_EMU": "0", "HOME": home, "TMPDIR": home}
        with _client_of(_AdbServerProcess(adb, _free_port(), environment, home)) as client:
            yield client


@contextmanager
def user_server() -> Iterator[Adb]:
    """Use the user's adb server. If none is running, run one with the user's keys until the block ends."""
    host, port = user_server_address()
    if is_listening(host, port):
        yield user_adb()
    elif host not in ("localhost", "127.0.0.1"):
        raise DeviceError(
            f"no adb server answers at {host}:{port}, the address in the environment: start it there"
        )
    else:
        with (
            _temp_dir() as folder,
            _client_of(
                _AdbServerProcess(find_adb(prefer_bundled=False), port, dict(os.environ), folder)
            ) as adb,
        ):
            yield adb


def user_adb() -> Adb:
    """Return a client of the user's server that never starts one: with -H and -P, adb fails instead."""
    host, port = user_server_address()
    return Adb(find_adb(prefer_bundled=False), ("-H", host, "-P", str(port)))


def user_server_address() -> tuple[str, int]:
    """Return host and port of the user's server, from adb's environment variables."""
    spec = os.environ.get("ADB_SERVER_SOCKET")
    if spec is None:
        host = os.environ.get("ANDROID_ADB_SERVER_ADDRESS", "127.0.0.1")
        spec = f"tcp:{host}:{os.environ.get('ANDROID_ADB_SERVER_PORT', DEFAULT_PORT)}"
    match = re.fullmatch(r"tcp:(?:(.+):)?(\d+)", spec)
    if match is None:
        raise DeviceError(f"adb server address in the environment: got {spec!r}; expected tcp:HOST:PORT")
    return match[1] or "127.0.0.1", int(match[2])


def is_listening(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True


class _AdbServerProcess:
    """A server process of ours, and the shell that kills it if we are killed."""

    def __init__(self, adb: str, port: int, env: Mapping[str, str], folder: str) -> None:
        self.adb, self.port, self.env, self.folder = adb, port, env, folder
        self._lock = threading.Lock()
        self._start()

    def ensure_running(self) -> None:
        with self._lock:
            if self._process.poll() is not None:
                self.stop()
                self._start()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._watcher.kill()
        self._watcher.communicate()

    def _start(self) -> None:
        with open(Path(self.folder) / "adb.log", "ab") as log:
            self._process = subprocess.Popen(
                [self.adb, "-L", f"tcp:localhost:{self.port}", "nodaemon", "server"],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # on Ctrl-C we still need it to restore the phone's state
            )
        self._watcher = subprocess.Popen(
            ["sh", "-c", WATCHDOG_SCRIPT, "sh", str(self._process.pid), self.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + 10
        while self._process.poll() is None and time.monotonic() < deadline:
            if is_listening("127.0.0.1", self.port):
                return
            time.sleep(0.01)
        status = self._process.poll()
        self.stop()
        raise DeviceError(f"the adb server did not start on port {self.port} (exit status {status})")


@contextmanager
def _client_of(server: _AdbServerProcess) -> Iterator[Adb]:
    """Yield a client of this server by address: if the server is gone, adb fails and starts no other."""
    try:
        options = ("-H", "127.0.0.1", "-P", str(server.port))
        yield Adb(server.adb, options, dict(server.env), ensure_running=server.ensure_running)
    finally:
        server.stop()


@contextmanager
def _temp_dir() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="uivlm-adb-", ignore_cleanup_errors=True) as folder:
        yield folder


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
