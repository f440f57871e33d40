"""The doctor: each thing that is wrong is found, named, and told how to mend."""

import io
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from rich.console import Console

pytest.importorskip("adbutils", reason="adb comes in adbutils' wheel")

from phones import phone_on, processes

from uivlm.devices.adb_server import FOREIGN, Adb, own_server
from uivlm.devices.sim.answer import told
from uivlm.devices.sim.faults import Faults, Unplug
from uivlm.devices.sim.services import PROPERTIES, SERVICES, dumpsys
from uivlm.devices.sim.shell import LATIN_KEYBOARD
from uivlm.doctor import ANIMATIONS, Finding, doctor, examine, server_version


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch):
    """No adb but ours on the PATH, no settings of the user's."""
    for name in (*FOREIGN, "ANDROID_HOME", "ANDROID_SDK_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")


def found(adb: Adb, serial: str) -> dict[str, Finding]:
    return {one.what: one for one in examine(serial, adb) if one.what != "other adb servers"}


def printed(serial: str | None, adb: Adb | None) -> tuple[bool, str]:
    out = io.StringIO()
    well = doctor(Console(file=out, width=300), serial, adb)
    return well, out.getvalue()


def test_all_is_well(adb):
    with phone_on(adb) as (device, phone, shell):
        for name in ANIMATIONS:
            shell.settings["global", name] = "0"
        shell.settings["system", "accelerometer_rotation"] = "0"
        findings = found(adb, device.serial)
        assert {one.mark for one in findings.values()} == {"ok"}
        assert list(findings)[:3] == ["adb program", "adb server", "phone"]
        assert "123 x 271 pixels" in findings["screenshots"].found
        assert "Android 14 (API 34)" in findings["Android"].found
        well, words = printed(device.serial, adb)
    assert well
    assert " wrong " not in words.replace("0 wrong", "")
    assert phone.gestures == []  # it touches nothing


def with_dump(monkeypatch, *words: str, said: str) -> None:
    """`dumpsys` of these words answers otherwise."""

    def other(device, asked):
        return told(said) if asked == words else dumpsys(device, asked)

    monkeypatch.setitem(SERVICES, "dumpsys", other)


@pytest.mark.parametrize(
    ("faults", "what", "mark", "words"),
    [
        (Faults(refuses=True), "input", "wrong", "USB debugging (Security settings)"),
        (Faults(black=True), "screenshots", "wrong", "the screen is black"),
        (Faults(cut=("raw", "png")), "screenshots", "wrong", "no whole screenshot"),
        (Faults(slow={"raw": 0.6, "png": 0.6}), "screenshots", "hint", "pixels"),
    ],
)
def test_what_goes_wrong_on_a_phone(adb, monkeypatch, faults, what, mark, words):
    monkeypatch.setattr("uivlm.doctor.SLOW_MS", 500.0)
    with phone_on(adb, faults) as (device, _, _):
        findings = found(adb, device.serial)
        well, table = printed(device.serial, adb)
    assert findings[what].mark == mark
    assert words in findings[what].found
    assert well == (mark != "wrong")
    assert words in table
    assert {one.what for one in findings.values() if one.mark == "wrong"} == ({what} if not well else set())


@pytest.mark.parametrize(
    ("dump", "said", "what", "mark", "mend"),
    [
        (("power",), "mWakefulness=Asleep", "display", "wrong", "keyevent 224"),
        (("power",), "?", "display", "hint", ""),
        (("window", "policy"), "   showing=true", "lock", "wrong", "unlock"),
        (("window", "policy"), " mShowingLockscreen=true mShowing=x", "lock", "wrong", "unlock"),
        (("window", "policy"), "?", "lock", "hint", ""),
        (("window", "displays"), "?", "size", "hint", "lock the rotation"),
    ],
)
def test_what_the_services_say(adb, monkeypatch, dump, said, what, mark, mend):
    with_dump(monkeypatch, *dump, said=said)
    with phone_on(adb) as (device, _, _):
        finding = found(adb, device.serial)[what]
    assert finding.mark == mark
    assert mend in finding.mend


def test_what_could_be_better(adb, monkeypatch):
    monkeypatch.setitem(SERVICES, "dumpsys", lambda device, words: told("null"))
    with phone_on(adb, keyboards=(LATIN_KEYBOARD,)) as (device, _, shell):
        shell.settings["system", "accelerometer_rotation"] = "1"
        shell.settings["global", "window_animation_scale"] = "1.0"
        findings = found(adb, device.serial)
        for what in ("rotation", "animations"):  # the cure that is told is one that the phone understands
            assert findings[what].mark == "hint"
            line = findings[what].mend.strip("`").partition(" shell ")[2].strip('"')
            assert shell.run(line).code == 0
        again = found(adb, device.serial)
    assert {findings[what].mark for what in ("keyboard", "app in front")} == {"hint"}
    assert "ADBKeyboard" in findings["keyboard"].mend
    assert {again[what].mark for what in ("rotation", "animations")} == {"ok"}


def test_an_old_android(adb, monkeypatch):
    monkeypatch.setitem(PROPERTIES, "ro.build.version.sdk", "22")
    with phone_on(adb) as (device, _, _):
        assert found(adb, device.serial)["Android"].mark == "wrong"


def test_a_phone_of_noise_neither_stops_it_nor_writes_on_the_terminal(adb):
    with phone_on(adb, Faults(garbage=True)) as (device, _, _):
        well, table = printed(device.serial, adb)
    assert not well
    assert all(line.isprintable() for line in table.splitlines())
    assert len(table) < 20_000


# -- which phone, which server -----------------------------------------------------------------------------------


def test_no_phone_and_several(adb):
    with own_server() as lonely:
        well, words = printed(None, lonely)
        assert not well
        assert "no phone is connected: plug one in" in words
        with ExitStack() as stack:
            one, two = (stack.enter_context(phone_on(lonely))[0].serial for _ in range(2))
            assert "2 phones are connected: name one of" in printed(None, lonely)[1]
            _, words = printed(one, lonely)
            assert f"also there: {two} (device)" in words


def test_without_a_server_it_starts_one_and_ends_it(monkeypatch):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for name, value in (("ANDROID_ADB_SERVER_PORT", port), ("ADB_USB", 0), ("ADB_MDNS", 0)):
        monkeypatch.setenv(name, str(value))
    well, words = printed(None, None)
    assert not well
    assert "none runs: each run starts one and ends it" in words
    assert "no phone is connected" in words
    assert processes(f":{port} ") == {}


@contextmanager
def answering(said: bytes) -> Iterator[int]:
    """A port where everybody is told the same."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    line, _ = listener.accept()
                except OSError:
                    return
                with line:
                    line.recv(100)
                    line.sendall(said)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_versions_of_servers(adb):
    assert server_version(adb.options[1], int(adb.options[3])) == "41"
    for said, version in (
        (b"OKAY00040020", "32"),
        (b"FAIL0000", None),
        (b"HTTP/1.1 400 Bad", None),
        (b"", None),
    ):
        with answering(said) as port:
            assert server_version("127.0.0.1", port) == version
    assert server_version("127.0.0.1", 1) is None


def test_a_server_of_another_version(adb):
    with answering(b"OKAY00040020") as port:
        other = Adb(adb.program, ("-H", "127.0.0.1", "-P", str(port)), adb.environment)
        findings = list(examine("R5", other))
    (server,) = (one for one in findings if one.what == "adb server")
    assert server.mark == "wrong"
    assert "speaks version 32" in server.found
    assert "kill-server" in server.mend


def test_another_adb_on_the_path(adb, tmp_path, monkeypatch):
    for folder, version in (("old", "1.0.32"), ("same", "1.0.41")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "adb").write_text(f"#!/bin/sh\necho Android Debug Bridge version {version}\n")
        (tmp_path / folder / "adb").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/same:/usr/bin:/bin")
    assert next(iter(examine("R5", adb))).mark == "ok"
    monkeypatch.setenv("PATH", f"{tmp_path}/same:{tmp_path}/old:/usr/bin:/bin")
    program = next(iter(examine("R5", adb)))
    assert program.mark == "hint"
    assert f"{tmp_path}/old/adb (1.0.32)" in program.found
    assert str(tmp_path / "same") not in program.found
    (tmp_path / "same" / "adb").write_text("#!/bin/sh\nexit 1\n")
    assert "(of no version)" in next(iter(examine("R5", adb))).found


def test_no_adb_at_all(monkeypatch):
    import builtins

    genuine = builtins.__import__

    def without(name, *rest):
        if name == "adbutils":
            raise ImportError(name)
        return genuine(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    well, words = printed(None, None)
    assert not well
    assert "no adb program: install adbutils" in words


def test_a_phone_that_is_unplugged_meanwhile(adb):
    with phone_on(adb, Faults(unplug=Unplug(2))) as (device, _, _):
        findings = found(adb, device.serial)
    assert list(findings)[3:] == ["Android", "display"]  # and no more is asked of it
    assert findings["Android"].mark == "ok"
    assert findings["display"].mark == "wrong"
    assert "is gone" in findings["display"].found
