"""adb servers: ours always end; the user's is used and never started silently."""

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

pytest.importorskip("adbutils", reason="adb comes in adbutils' wheel")

from tests.helpers.fake_phone import FakePhone, phone_on, processes
from uivlm.actions.gesture import PressKey
from uivlm.devices.adb.device import AdbDevice, connect
from uivlm.devices.adb.link import Link
from uivlm.devices.adb.server import (
    SERVER_ENV_VARS,
    Adb,
    private_server,
    user_adb,
    user_server,
    user_server_address,
)
from uivlm.devices.adb.settle import NO_WAIT
from uivlm.devices.device import DeviceError
from uivlm.devices.sim.adbd import serve_adb


@pytest.fixture
def port(monkeypatch):
    """A free port for the user's server."""
    for name in SERVER_ENV_VARS:
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(free))
    monkeypatch.setenv("ADB_USB", "0")  # without USB, the search for USB phones takes seconds
    monkeypatch.setenv("ADB_MDNS", "0")
    return free


def server_of(adb: Adb) -> dict[int, str]:
    """Processes of the server, by its options."""
    return processes(f"-L tcp:localhost:{adb.options[-1]} ")


def gone(text: str, timeout_s: float = 10.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while processes(text):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def kill(adb: Adb) -> None:
    (pid,) = server_of(adb)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_no_server_no_watcher_and_no_thread_is_left():
    threads = threading.active_count()
    with private_server() as adb:
        home = adb.env["HOME"]
        with serve_adb(FakePhone()) as phone_port:
            connect(f"127.0.0.1:{phone_port}", adb, NO_WAIT).screen()
        assert len(server_of(adb)) == 1
        assert len(processes(home)) == 1  # the watcher
    assert server_of(adb) == processes(home) == {}
    assert not os.path.exists(home)
    assert threading.active_count() == threads


def test_a_server_of_our_own_ends_with_an_error_too():
    servers = []

    def interrupted() -> None:
        with private_server() as adb:
            servers.append(adb)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert server_of(servers[0]) == {}


HOLDING = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it by default
from uivlm.devices.adb.server import private_server
with private_server() as adb:
    print(adb.options[-1], adb.env["HOME"], flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_server_ends_with_a_process_that_is_killed(sign):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDING], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        port, home = holder.stdout.readline().decode().split()
        assert len(processes(f"tcp:localhost:{port} ")) == 1
        holder.send_signal(sign)
        assert holder.wait(20) != 0
        assert gone(f"tcp:localhost:{port} ")
        assert gone(home)
        assert not os.path.exists(home)
    finally:
        holder.kill()
        holder.communicate()


def test_a_dead_server_is_restarted_for_queries_only():
    with private_server() as adb, phone_on(adb) as (device, phone, _):
        device.screen()
        first = set(server_of(adb))
        kill(adb)
        assert device.screen().pixels.shape == phone.pixels.shape
        second = set(server_of(adb))
        assert len(second) == 1
        assert second != first
        kill(adb)
        with pytest.raises(DeviceError, match="not repeated"):
            device.perform(PressKey("back"))
        assert phone.gestures == []
        device.screen()
        device.perform(PressKey("home"))
        assert phone.gestures == [PressKey("home")]
    assert server_of(adb) == {}


def test_several_threads_start_a_dead_server_once():
    with private_server() as adb, phone_on(adb) as (first, _, _), phone_on(adb) as (second, _, _):
        kill(adb)
        screens: list[object] = []
        threads = [threading.Thread(target=lambda d=d: screens.append(d.screen())) for d in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(screens) == 2
        assert len(server_of(adb)) == 1
    assert server_of(adb) == {}


def test_a_hanging_adb_raises():
    with pytest.raises(DeviceError, match=r"did not answer within 0\.2 s"):
        Adb(shutil.which("sleep"), timeout_s=0.2).run("20")
    with pytest.raises(DeviceError, match="adb did not start"):
        Adb("/nonexistent/adb").run("devices")


# -- the user's ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_client_of_the_users_server_starts_none(port):
    device = AdbDevice(Link("R5", user_adb(), reconnect_timeout_s=0.5), NO_WAIT)
    for call in (device.screen, lambda: device.perform(PressKey("back")), device.foreground):
        with pytest.raises(DeviceError, match="adb server does not answer|not repeated"):
            call()
    with pytest.raises(DeviceError, match=r"adb server does not answer: .*`adb start-server`"):
        connect("R5")
    with pytest.raises(DeviceError, match="adb server does not answer"):
        connect("127.0.0.1:9")
    time.sleep(0.3)
    assert processes(f":{port} ") == {}


def test_a_server_started_for_the_user_ends_with_the_block(port):
    with user_server() as adb, phone_on(adb) as (device, phone, _):
        assert adb.options[-1] == str(port)
        assert len(server_of(adb)) == 1
        assert adb.env["HOME"] == os.environ["HOME"]  # the keys that the user's phones trust
        assert device.screen().pixels.shape == phone.pixels.shape
        with user_server() as second:  # a concurrent run uses it and leaves it running
            assert second.run("devices").returncode == 0
        assert len(server_of(adb)) == 1
    assert server_of(adb) == {}
    assert processes(f":{port} ") == {}


def test_a_server_that_cannot_start_is_one_sentence(port, monkeypatch):
    monkeypatch.setattr("uivlm.devices.adb.server.find_adb", lambda prefer_bundled: shutil.which("false"))
    with pytest.raises(DeviceError, match=rf"did not start on port {port} \(exit status 1\)"), user_server():
        pass
    monkeypatch.setenv("ANDROID_ADB_SERVER_ADDRESS", "adb.invalid")
    with pytest.raises(DeviceError, match=r"no adb server answers at adb\.invalid"), user_server():
        pass


@pytest.mark.parametrize(
    ("environment", "address"),
    [
        ({}, ("127.0.0.1", 5037)),
        ({"ANDROID_ADB_SERVER_PORT": "6000"}, ("127.0.0.1", 6000)),
        ({"ANDROID_ADB_SERVER_ADDRESS": "pc"}, ("pc", 5037)),
        ({"ADB_SERVER_SOCKET": "tcp:pc:7", "ANDROID_ADB_SERVER_PORT": "6000"}, ("pc", 7)),
        ({"ADB_SERVER_SOCKET": "tcp:7"}, ("127.0.0.1", 7)),
    ],
)
def test_the_users_address_comes_from_adbs_environment(monkeypatch, environment, address):
    for name in SERVER_ENV_VARS:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert user_server_address() == address


def test_an_invalid_address(monkeypatch):
    monkeypatch.setenv("ADB_SERVER_SOCKET", "localfilesystem:/tmp/x")
    with pytest.raises(DeviceError, match="got 'localfilesystem:/tmp/x'; expected tcp:HOST:PORT"):
        user_server_address()


# -- the simulated phone's side ------------------------------------------------------------------------------


def test_adbd_disconnects_clients_that_do_not_speak_adb():
    with serve_adb(FakePhone()) as port:
        for noise in (
            b"GET / HTTP/1.1\r\n\r\n" + b"x" * 100,
            struct.pack("<6I", 1, 2, 3, 1 << 31, 5, 1 ^ 0xFFFFFFFF),
        ):
            with socket.create_connection(("127.0.0.1", port), 5) as connection:
                connection.sendall(noise)
                connection.settimeout(5)
                with suppress(ConnectionResetError):
                    assert connection.recv(10) == b""
