"""The adb program and its server: argument lists in, what adb answered out.

    with own_server() as adb:      # for simulated phones: another port, other keys; the user's phones are not its business
    with users_server() as adb:    # for real phones: the user's server; where none runs, one in its place for this block

A server that was started here ends with its block, and also when this process is killed: a small shell holds the end of
a pipe that nobody else has, and ends the server when the pipe breaks.
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

FOREIGN = ("ADB_SERVER_SOCKET", "ANDROID_ADB_SERVER_ADDRESS", "ANDROID_ADB_SERVER_PORT", "ANDROID_SERIAL")
PORT = 5037  # adb's own
WATCH = 'read -r _; kill -9 "$1"; rm -rf -- "$2"'  # the pipe breaks: end the server, remove its folder


@dataclass(frozen=True, slots=True)
class Adb:
    """The adb program and the server that it talks to."""

    program: str
    options: tuple[str, ...] = ()
    environment: dict[str, str] | None = field(default=None, repr=False)
    timeout_s: float = 30.0
    revive: Callable[[], None] = field(
        default=lambda: None, repr=False
    )  # starts our own server again if it died

    def run(self, *arguments: str, timeout_s: float | None = None) -> "subprocess.CompletedProcess[bytes]":
        """One adb command; its exit status is the caller's to check."""
        timeout_s = timeout_s or self.timeout_s
        try:
            return subprocess.run(
                [self.program, *self.options, *arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                check=False,
                start_new_session=True,  # Ctrl-C lets it finish a tap
            )
        except subprocess.TimeoutExpired:
            raise DeviceError(
                f"adb had no answer within {timeout_s:g} s: is the phone still there?"
            ) from None
        except OSError as error:
            raise DeviceError(f"adb cannot be started: {error.strerror or error}") from error


def said(done: "subprocess.CompletedProcess[bytes]") -> str:
    """All that a command said, in one line."""
    return one_line((done.stdout + b" " + done.stderr).decode(errors="replace"))


def one_line(text: str) -> str:
    """What a phone says, as any terminal can show it."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))


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
    """A private adb server on a free port with its own keys. It knows only phones that are connected by address."""
    adb = program(bundled=True)
    environment = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    with _folder() as home:
        # The search for USB phones would also hold up the first command for 3 s where there is no USB.
        environment |= {"ADB_MDNS": "0", "ADB_USB": "0", "ADB_EMU": "0", "HOME": home, "TMPDIR": home}
        with _serving(_Server(adb, _free_port(), environment, home)) as client:
            yield client


@contextmanager
def users_server() -> Iterator[Adb]:
    """The user's adb server. Where none runs, one in its place, with the user's keys, that ends with the block."""
    host, port = users_address()
    if listens(host, port):
        yield users_adb()
    elif host not in ("localhost", "127.0.0.1"):
        raise DeviceError(
            f"no adb server answers at {host}:{port}, which the environment names: start it there"
        )
    else:
        with (
            _folder() as folder,
            _serving(_Server(program(bundled=False), port, dict(os.environ), folder)) as adb,
        ):
            yield adb


def users_adb() -> Adb:
    """A client of the user's server that never starts one: by address, it fails where nobody answers."""
    host, port = users_address()
    return Adb(program(bundled=False), ("-H", host, "-P", str(port)))


def users_address() -> tuple[str, int]:
    """Host and port of the user's server, as adb's environment variables say."""
    spec = os.environ.get("ADB_SERVER_SOCKET")
    if spec is None:
        host = os.environ.get("ANDROID_ADB_SERVER_ADDRESS", "127.0.0.1")
        spec = f"tcp:{host}:{os.environ.get('ANDROID_ADB_SERVER_PORT', PORT)}"
    found = re.fullmatch(r"tcp:(?:(.+):)?(\d+)", spec)
    if found is None:
        raise DeviceError(f"the adb server's address in the environment is {spec!r}: say tcp:HOST:PORT")
    return found[1] or "127.0.0.1", int(found[2])


def listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True


class _Server:
    """A server process of ours, and the shell that watches over us."""

    def __init__(self, adb: str, port: int, environment: Mapping[str, str], folder: str) -> None:
        self.adb, self.port, self.environment, self.folder = adb, port, environment, folder
        self._turn = threading.Lock()
        self._start()

    def revive(self) -> None:
        with self._turn:
            if self._server.poll() is not None:
                self.stop()
                self._start()

    def stop(self) -> None:
        self._server.terminate()
        try:
            self._server.wait(5)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._watcher.kill()
        self._watcher.communicate()

    def _start(self) -> None:
        with open(Path(self.folder) / "adb.log", "ab") as log:
            self._server = subprocess.Popen(
                [self.adb, "-L", f"tcp:localhost:{self.port}", "nodaemon", "server"],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us: the phone still has to be put back in order
            )
        self._watcher = subprocess.Popen(
            ["sh", "-c", WATCH, "sh", str(self._server.pid), self.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        until = time.monotonic() + 10
        while self._server.poll() is None and time.monotonic() < until:
            if listens("127.0.0.1", self.port):
                return
            time.sleep(0.01)
        status = self._server.poll()
        self.stop()
        raise DeviceError(f"adb's server did not start on port {self.port} (exit status {status})")


@contextmanager
def _serving(server: _Server) -> Iterator[Adb]:
    """A client of this server, by address: one whose server is gone then fails instead of starting a stray one."""
    try:
        options = ("-H", "127.0.0.1", "-P", str(server.port))
        yield Adb(server.adb, options, dict(server.environment), revive=server.revive)
    finally:
        server.stop()


@contextmanager
def _folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="uivlm-adb-", ignore_cleanup_errors=True) as folder:
        yield folder


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
