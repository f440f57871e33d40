"""The doctor finds each problem, names it and prints a fix."""

import io
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from rich.console import Console

pytest.importorskip("adbutils", reason="adb comes in adbutils' wheel")

from tests.helpers.fake_phone import phone_on, processes
from uivlm.devices.adb.doctor import ANIMATION_SETTINGS, Finding, doctor, run_checks, server_version
from uivlm.devices.adb.server import SERVER_ENV_VARS, Adb, private_server
from uivlm.devices.sim.faults import Faults, UnplugFault
from uivlm.devices.sim.services import PROPERTIES, SERVICES, dumpsys
from uivlm.devices.sim.shell import LATIN_KEYBOARD
from uivlm.devices.sim.shell_parser import success_result


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch):
    """No adb but ours on the PATH, no settings of the user's."""
    for name in (*SERVER_ENV_VARS, "ANDROID_HOME", "ANDROID_SDK_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")


def findings_of(adb: Adb, serial: str) -> dict[str, Finding]:
    return {
        finding.check: finding for finding in run_checks(serial, adb) if finding.check != "other adb servers"
    }


def printed(serial: str | None, adb: Adb | None) -> tuple[bool, str]:
    out = io.StringIO()
    succeeded = doctor(Console(file=out, width=300), serial, adb)
    return succeeded, out.getvalue()


def test_a_phone_without_problems(adb):
    with phone_on(adb) as (device, phone, shell):
        for name in ANIMATION_SETTINGS:
            shell.settings["global", name] = "0"
        shell.settings["system", "accelerometer_rotation"] = "0"
        findings = findings_of(adb, device.serial)
        assert {finding.severity for finding in findings.values()} == {"ok"}
        assert list(findings)[:3] == ["adb program", "adb server", "phone"]
        assert "123 x 271 pixels" in findings["screenshots"].detail
        assert "Android 14 (API 34)" in findings["Android"].detail
        succeeded, table = printed(device.serial, adb)
    assert succeeded
    assert " wrong " not in table.replace("0 wrong", "")
    assert phone.gestures == []  # it touches nothing


def patch_dumpsys(monkeypatch, *args: str, output: str) -> None:
    """`dumpsys` with these arguments prints another output."""

    def other(device, received):
        return success_result(output) if received == args else dumpsys(device, received)

    monkeypatch.setitem(SERVICES, "dumpsys", other)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "check", "severity", "detail"),
    [
        (Faults(rejects_input=True), "input", "wrong", "USB debugging (Security settings)"),
        (Faults(black_screenshots=True), "screenshots", "wrong", "the screen is black"),
        (Faults(truncated_captures=("raw", "png")), "screenshots", "wrong", "complete screenshot"),
        (Faults(capture_delay_s={"raw": 0.6, "png": 0.6}), "screenshots", "hint", "pixels"),
    ],
)
def test_problems_of_a_phone(adb, monkeypatch, faults, check, severity, detail):
    monkeypatch.setattr("uivlm.devices.adb.doctor.SLOW_SCREENSHOT_MS", 500.0)
    with phone_on(adb, faults) as (device, _, _):
        findings = findings_of(adb, device.serial)
        succeeded, table = printed(device.serial, adb)
    assert findings[check].severity == severity
    assert detail in findings[check].detail
    assert succeeded == (severity != "wrong")
    assert detail in table
    wrong = {finding.check for finding in findings.values() if finding.severity == "wrong"}
    assert wrong == (set() if succeeded else {check})


@pytest.mark.parametrize(
    ("args", "output", "check", "severity", "fix"),
    [
        (("power",), "mWakefulness=Asleep", "display", "wrong", "keyevent 224"),
        (("power",), "?", "display", "hint", ""),
        (("window", "policy"), "   showing=true", "lock", "wrong", "unlock"),
        (("window", "policy"), " mShowingLockscreen=true mShowing=x", "lock", "wrong", "unlock"),
        (("window", "policy"), "?", "lock", "hint", ""),
        (("window", "displays"), "?", "size", "hint", "lock the rotation"),
        (("window", "windows"), "?", "elements", "hint", "whose screen is still"),
    ],
)
def test_findings_from_dumpsys(adb, monkeypatch, args, output, check, severity, fix):
    patch_dumpsys(monkeypatch, *args, output=output)
    with phone_on(adb) as (device, _, _):
        finding = findings_of(adb, device.serial)[check]
    assert finding.severity == severity
    assert fix in finding.fix


@pytest.mark.slow
def test_hints_and_their_fixes(adb, monkeypatch):
    monkeypatch.setitem(SERVICES, "dumpsys", lambda device, args: success_result("null"))
    with phone_on(adb, keyboards=(LATIN_KEYBOARD,)) as (device, _, shell):
        shell.settings["system", "accelerometer_rotation"] = "1"
        shell.settings["global", "window_animation_scale"] = "1.0"
        findings = findings_of(adb, device.serial)
        for check in ("rotation", "animations"):  # the phone accepts the command of the fix
            assert findings[check].severity == "hint"
            line = findings[check].fix.strip("`").partition(" shell ")[2].strip('"')
            assert shell.run(line).returncode == 0
        again = findings_of(adb, device.serial)
    assert {findings[check].severity for check in ("keyboard", "foreground app")} == {"hint"}
    assert "ADBKeyboard" in findings["keyboard"].fix
    assert {again[check].severity for check in ("rotation", "animations")} == {"ok"}


def test_an_old_android(adb, monkeypatch):
    monkeypatch.setitem(PROPERTIES, "ro.build.version.sdk", "22")
    with phone_on(adb) as (device, _, _):
        assert findings_of(adb, device.serial)["Android"].severity == "wrong"


def test_garbage_from_a_phone_neither_stops_it_nor_reaches_the_terminal(adb):
    with phone_on(adb, Faults(garbage_output=True)) as (device, _, _):
        succeeded, table = printed(device.serial, adb)
    assert not succeeded
    assert all(line.isprintable() for line in table.splitlines())
    assert len(table) < 20_000


# -- phones and servers --------------------------------------------------------------------------------------


def test_no_phone_and_several(adb):
    with private_server() as server:
        succeeded, table = printed(None, server)
        assert not succeeded
        assert "no phone is connected" in table
        with ExitStack() as stack:
            first, second = (stack.enter_context(phone_on(server))[0].serial for _ in range(2))
            assert "2 phones are connected" in printed(None, server)[1]
            _, table = printed(first, server)
            assert f"also connected: {second} (device)" in table


def test_without_a_server_it_starts_one_and_ends_it(monkeypatch):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for name, value in (("ANDROID_ADB_SERVER_PORT", port), ("ADB_USB", 0), ("ADB_MDNS", 0)):
        monkeypatch.setenv(name, str(value))
    succeeded, table = printed(None, None)
    assert not succeeded
    assert "no server is running" in table
    assert "no phone is connected" in table
    assert processes(f":{port} ") == {}


@contextmanager
def answering(response: bytes) -> Iterator[int]:
    """A port that gives every client the same response."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(100)
                    connection.sendall(response)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_versions_of_servers(adb):
    assert server_version(adb.options[1], int(adb.options[3])) == "41"
    for response, version in (
        (b"OKAY00040020", "32"),
        (b"FAIL0000", None),
        (b"HTTP/1.1 400 Bad", None),
        (b"", None),
    ):
        with answering(response) as port:
            assert server_version("127.0.0.1", port) == version
    assert server_version("127.0.0.1", 1) is None


def test_a_server_of_another_version(adb):
    with answering(b"OKAY00040020") as port:
        other = Adb(adb.executable, ("-H", "127.0.0.1", "-P", str(port)), adb.env)
        findings = list(run_checks("R5", other))
    (server,) = (finding for finding in findings if finding.check == "adb server")
    assert server.severity == "wrong"
    assert "has version 32" in server.detail
    assert "kill-server" in server.fix


def test_another_adb_on_the_path(adb, tmp_path, monkeypatch):
    for folder, version in (("old", "1.0.32"), ("same", "1.0.41")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "adb").write_text(f"#!/bin/sh\necho Android Debug Bridge version {version}\n")
        (tmp_path / folder / "adb").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/same:/usr/bin:/bin")
    assert next(iter(run_checks("R5", adb))).severity == "ok"
    monkeypatch.setenv("PATH", f"{tmp_path}/same:{tmp_path}/old:/usr/bin:/bin")
    program = next(iter(run_checks("R5", adb)))
    assert program.severity == "hint"
    assert f"{tmp_path}/old/adb (1.0.32)" in program.detail
    assert str(tmp_path / "same") not in program.detail
    (tmp_path / "same" / "adb").write_text("#!/bin/sh\nexit 1\n")
    assert "(unknown version)" in next(iter(run_checks("R5", adb))).detail


def test_no_adb_at_all(monkeypatch):
    import builtins

    original = builtins.__import__

    def import_without_adbutils(name, *args):
        if name == "adbutils":
            raise ImportError(name)
        return original(name, *args)

    monkeypatch.setattr(builtins, "__import__", import_without_adbutils)
    succeeded, table = printed(None, None)
    assert not succeeded
    assert "install adbutils" in table


@pytest.mark.slow
def test_a_phone_that_is_unplugged_meanwhile(adb):
    with phone_on(adb, Faults(unplug=UnplugFault(2))) as (device, _, _):
        findings = findings_of(adb, device.serial)
    assert list(findings)[3:] == ["Android", "display"]  # no further checks
    assert findings["Android"].severity == "ok"
    assert findings["display"].severity == "wrong"
    assert "is gone" in findings["display"].detail
