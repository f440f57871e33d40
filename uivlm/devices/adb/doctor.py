"""Diagnose the setup of adb and a phone: a serial number in, a table of findings and fixes out.

Three severities: `ok`; `hint`: it works, but can be improved; `wrong`: no run can succeed.
"""

import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from uivlm.devices.adb.device import AdbDevice
from uivlm.devices.adb.dumpsys import display_size
from uivlm.devices.adb.link import Link, list_devices, open_link
from uivlm.devices.adb.server import Adb, find_adb, is_listening, one_line, user_server, user_server_address
from uivlm.devices.adb.settle import NO_WAIT
from uivlm.devices.adb.text_input import has_adb_keyboard
from uivlm.devices.device import DeviceError, is_black

Severity = Literal["ok", "hint", "wrong"]
COLORS: dict[Severity, str] = {"ok": "green", "hint": "yellow", "wrong": "bold red"}
MIN_API_LEVEL = 24  # Android 7: `adb shell` returns exit statuses, `cmd package` exists
SLOW_SCREENSHOT_MS = 1500.0
MAX_DETAIL_CHARS = 300  # of one finding
ANIMATION_SETTINGS = ("window_animation_scale", "transition_animation_scale", "animator_duration_scale")


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    severity: Severity
    detail: str
    fix: str = ""


def doctor(console: Console, serial: str | None = None, adb: Adb | None = None) -> bool:
    """Print the findings; return True if nothing is wrong.

    Without `adb`, it uses the user's adb server, or starts one for this check.
    """
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    severities: list[Severity] = []
    for finding in run_checks(serial, adb):
        lines = one_line(finding.detail)[:MAX_DETAIL_CHARS] + (f"\n-> {finding.fix}" if finding.fix else "")
        table.add_row(finding.check, Text(finding.severity, COLORS[finding.severity]), Text(lines))
        severities.append(finding.severity)
    console.print(table)
    wrong, hints = severities.count("wrong"), severities.count("hint")
    summary = f"{wrong} wrong, {hints} to improve" if wrong or hints else "no problems found"
    console.print(summary, highlight=False)
    return not wrong


def run_checks(serial: str | None = None, adb: Adb | None = None) -> Iterator[Finding]:
    """Yield findings in the order in which to fix them. A check that cannot run is left out."""
    try:
        yield _check_program(adb.executable if adb else find_adb(prefer_bundled=False))
        running = adb is not None or is_listening(*user_server_address())
        with nullcontext(adb) if adb else user_server() as client:
            yield from _check_servers(client, running)
            link = open_link(serial, client, reconnect_timeout_s=1.0)
            yield _check_phone(link)
            device = AdbDevice(link, NO_WAIT)
            for name, check in CHECKS.items():
                yield _run_check(name, check, device)
                if list_devices(client).get(link.serial) != "device":
                    return
    except DeviceError as error:
        yield Finding("connection", "wrong", str(error))


def _run_check(name: str, check: "Callable[[AdbDevice], CheckResult]", device: AdbDevice) -> Finding:
    try:
        return Finding(name, *check(device))
    except DeviceError as error:
        return Finding(name, "wrong", str(error))


# -- this computer -------------------------------------------------------------------------------------------

CheckResult = tuple[Severity, str, str]  # severity, detail, fix


def _check_program(program_path: str) -> Finding:
    version = adb_version(program_path)
    others = {path: adb_version(path) for path in _other_adb_programs(program_path)}
    differing = [f"{path} ({other})" for path, other in others.items() if other != version]
    if not differing:
        return Finding("adb program", "ok", f"{program_path} ({version})")
    fix = "two adb versions stop each other's server: keep only one on the PATH"
    return Finding("adb program", "hint", f"{program_path} ({version}); also {', '.join(differing)}", fix)


def adb_version(adb: str) -> str:
    """Return the version of an adb program, such as 1.0.41. A program stops servers of another version."""
    match = re.search(rb"version ([\d.]+)", Adb(adb).run("version").stdout)
    return match[1].decode() if match else "unknown version"


def _other_adb_programs(own: str) -> list[str]:
    roots = [os.environ[name] for name in ("ANDROID_HOME", "ANDROID_SDK_ROOT") if name in os.environ]
    folders = [*os.environ.get("PATH", "").split(os.pathsep), *(f"{root}/platform-tools" for root in roots)]
    paths = {os.path.realpath(path) for folder in folders if (path := shutil.which("adb", path=folder))}
    return sorted(paths - {os.path.realpath(own)})


def _check_servers(adb: Adb, running: bool) -> Iterator[Finding]:
    host, port = adb.options[1], int(adb.options[3])
    client, server = adb_version(adb.executable).rpartition(".")[2], server_version(host, port)
    if not running:
        yield Finding("adb server", "ok", "no server is running: each run starts one and stops it")
    elif server == client:
        yield Finding("adb server", "ok", f"at {host}:{port}")
    else:
        detail = (
            f"the server at {host}:{port} has version {server or 'unknown'}; {adb.executable} has {client}"
        )
        fix = "stop the server with `adb kill-server`, or use the adb program that started it"
        yield Finding("adb server", "wrong", detail, fix)
    others = [process for process in _server_processes() if not re.search(rf":{port}\b", process)]
    if others:
        fix = "only one server can use a phone on USB: stop those that you do not need"
        yield Finding("other adb servers", "hint", ", ".join(others), fix)


def server_version(host: str, port: int) -> str | None:
    """Return the protocol version of a server, such as 41; None if no adb server answers."""
    with suppress(OSError, ValueError), socket.create_connection((host, port), 5) as connection:
        connection.settimeout(5)
        connection.sendall(b"000chost:version")
        response = connection.makefile("rb").read(12)
        if response.startswith(b"OKAY0004"):
            return str(int(response[8:], 16))
    return None


def _server_processes() -> list[str]:
    """List adb servers on this machine, if /proc shows them; not those that ignore USB, as ours do."""
    servers = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended, or belongs to another user
            argv = (process / "cmdline").read_text(errors="replace").split("\0")
            if os.path.basename(argv[0]) != "adb" or "server" not in argv:
                continue
            if "ADB_USB=0" not in (process / "environ").read_text(errors="replace").split("\0"):
                servers.append(f"process {process.name}: {' '.join(argv).strip()}")
    return servers


def _check_phone(link: Link) -> Finding:
    others = [
        f"{serial} ({state})" for serial, state in list_devices(link.adb).items() if serial != link.serial
    ]
    also = f"; also connected: {', '.join(others)}" if others else ""
    return Finding("phone", "ok", link.serial + also)


# -- the phone -----------------------------------------------------------------------------------------------


def _check_android(device: AdbDevice) -> CheckResult:
    release = device.link.query("getprop", "ro.build.version.release").strip()
    api = device.link.query("getprop", "ro.build.version.sdk").strip()
    detail = f"Android {release} (API {api})"
    if not api.isdigit() or int(api) < MIN_API_LEVEL:
        return "wrong", detail, f"use a phone with Android 7 (API {MIN_API_LEVEL}) or newer"
    return "ok", detail, ""


def _check_awake(device: AdbDevice) -> CheckResult:
    match = re.search(r"mWakefulness=(\w+)", device.link.query("dumpsys", "power"))
    if match is None:
        return "hint", "the phone does not report whether it is awake", ""
    if match[1] != "Awake":
        fix = (
            f"wake it with `adb -s {device.serial} shell input keyevent 224` and turn on 'Stay awake' in the "
            "developer options"
        )
        return "wrong", f"the phone is {match[1].lower()}", fix
    return "ok", "awake", ""


def _check_unlocked(device: AdbDevice) -> CheckResult:
    policy = device.link.query("dumpsys", "window", "policy")
    match = re.search(r"\b(?:showing|mShowingLockscreen|mIsShowing)=(true|false)", policy)
    if match is None:
        return "hint", "the phone does not report whether it is locked", ""
    return ("wrong", "the phone is locked", "unlock it") if match[1] == "true" else ("ok", "unlocked", "")


def _check_input(device: AdbDevice) -> CheckResult:
    device.link.execute(("input", "keyevent", "0"))  # the key that does nothing
    return "ok", "input from adb is allowed", ""


def _check_capture(device: AdbDevice) -> CheckResult:
    screen = device.screen()
    height, width = screen.pixels.shape[:2]
    capture = device.screen_capture
    assert capture.method is not None
    times = ", ".join(f"{method} {ms:.0f} ms" for method, ms in sorted(capture.durations_ms.items()))
    detail = f"{width} x {height} pixels; {times}; uses {capture.method}"
    if is_black(screen):
        fix = "open another app, or wake the display: banking apps and private tabs cannot be captured"
        return "wrong", f"the screen is black ({detail})", fix
    if capture.durations_ms[capture.method] > SLOW_SCREENSHOT_MS:
        return "hint", f"slow: {detail}", "use a cable instead of Wi-Fi, and a USB 3 port"
    return "ok", detail, ""


def _check_size(device: AdbDevice) -> CheckResult:
    size = " ".join(device.link.query("wm", "size").split())
    if display_size(device.link.query("dumpsys", "window", "displays")) is None:
        return "hint", f"{size}; a rotation between two gestures cannot be detected", "lock the rotation"
    return "ok", f"{size}; gestures use the pixels of the screenshot", ""


def _check_rotation(device: AdbDevice) -> CheckResult:
    if device.link.query("settings", "get", "system", "accelerometer_rotation").strip() == "1":
        fix = f"`adb -s {device.serial} shell settings put system accelerometer_rotation 0`"
        return "hint", "the screen rotates with the phone; a rotation between two gestures ends a run", fix
    return "ok", "locked", ""


def _check_animations(device: AdbDevice) -> CheckResult:
    scales = {
        name: device.link.query("settings", "get", "global", name).strip() for name in ANIMATION_SETTINGS
    }
    enabled = [name for name, scale in scales.items() if scale not in ("0", "0.0")]
    if enabled:
        commands = "; ".join(f"settings put global {name} 0" for name in enabled)
        return "hint", "on: screens take longer to settle", f'`adb -s {device.serial} shell "{commands}"`'
    return "ok", "off", ""


def _check_keyboard(device: AdbDevice) -> CheckResult:
    if has_adb_keyboard(device.link):
        return "ok", "ADBKeyboard is installed: any text can be typed", ""
    return "hint", "only ASCII text can be typed", "install the app ADBKeyboard"


def _check_foreground(device: AdbDevice) -> CheckResult:
    package = device.foreground()
    if not package:
        detail = "the foreground app is unknown, so rules on apps cannot be enforced"
        return "hint", detail, "unlock the phone, open an app, and run doctor again"
    return "ok", package, ""


def _check_elements(device: AdbDevice) -> CheckResult:
    elements = device.elements()
    if elements is None:
        detail = "the touched elements are unknown, so each touch needs confirmation"
        return "hint", detail, "open an app whose screen is still, and run doctor again"
    return "ok", f"{len(elements)} on this screen", ""


CHECKS: dict[str, Callable[[AdbDevice], CheckResult]] = {
    "Android": _check_android,
    "display": _check_awake,
    "lock": _check_unlocked,
    "input": _check_input,
    "screenshots": _check_capture,
    "size": _check_size,
    "rotation": _check_rotation,
    "animations": _check_animations,
    "keyboard": _check_keyboard,
    "foreground app": _check_foreground,
    "elements": _check_elements,
}
