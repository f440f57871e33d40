"""What is wrong with a set-up of adb and a phone, and how to mend it: a serial number in, a table out.

Three marks: `ok`; `hint`: it works, but could be better; `wrong`: no run can go well.
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

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from uivlm.devices.adb import AdbDevice
from uivlm.devices.adb_link import Link, open_link, phones
from uivlm.devices.adb_server import Adb, listens, one_line, program, users_address, users_server
from uivlm.devices.device import DeviceError
from uivlm.devices.foreground import shown_size
from uivlm.devices.settle import AT_ONCE
from uivlm.devices.typed_text import has_adb_keyboard

Mark = Literal["ok", "hint", "wrong"]
COLOURS: dict[Mark, str] = {"ok": "green", "hint": "yellow", "wrong": "bold red"}
OLDEST_API = 24  # Android 7: `adb shell` tells exit statuses, `cmd package` is there
SLOW_MS = 1500.0  # of a screenshot
EDGE = 0.06  # top and bottom share of a black screen that may show the bars
BLACK = 4  # grey levels: nothing brighter is on a black screen
MOST_SAID = 300  # letters of one finding
ANIMATIONS = ("window_animation_scale", "transition_animation_scale", "animator_duration_scale")


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    mark: Mark
    found: str
    mend: str = ""


def doctor(console: Console, serial: str | None = None, adb: Adb | None = None) -> bool:
    """Print what is found; True where nothing is wrong. Without `adb`: the user's server, or one for this check."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    marks: list[Mark] = []
    for one in examine(serial, adb):
        lines = one_line(one.found)[:MOST_SAID] + (f"\n-> {one.mend}" if one.mend else "")
        table.add_row(one.what, Text(one.mark, COLOURS[one.mark]), Text(lines))
        marks.append(one.mark)
    console.print(table)
    wrong, hints = marks.count("wrong"), marks.count("hint")
    console.print(f"{wrong} wrong, {hints} to improve" if wrong or hints else "all is well", highlight=False)
    return not wrong


def examine(serial: str | None = None, adb: Adb | None = None) -> Iterator[Finding]:
    """Findings in the order in which they should be mended; what cannot be looked at is left out."""
    try:
        yield _program(adb.program if adb else program(bundled=False))
        running = adb is not None or listens(*users_address())
        with nullcontext(adb) if adb else users_server() as client:
            yield from _servers(client, running)
            link = open_link(serial, client, patience_s=1.0)
            yield _phone(link)
            device = AdbDevice(link, AT_ONCE)
            for what, check in CHECKS.items():
                yield _checked(what, check, device)
                if phones(client).get(link.serial) != "device":
                    return
    except DeviceError as error:
        yield Finding("connection", "wrong", str(error))


def _checked(what: str, check: "Callable[[AdbDevice], Told]", device: AdbDevice) -> Finding:
    try:
        return Finding(what, *check(device))
    except DeviceError as error:
        return Finding(what, "wrong", str(error))


# -- this computer ---------------------------------------------------------------------------------------------------

Told = tuple[Mark, str, str]  # mark, what was found, how to mend it


def _program(own: str) -> Finding:
    version = version_of(own)
    others = {path: version_of(path) for path in _other_programs(own)}
    differing = [f"{path} ({other})" for path, other in others.items() if other != version]
    if not differing:
        return Finding("adb program", "ok", f"{own} ({version})")
    mend = "programs of two versions end each other's server: keep one on the PATH"
    return Finding("adb program", "hint", f"{own} ({version}); also {', '.join(differing)}", mend)


def version_of(adb: str) -> str:
    """The protocol version of a program, which decides whose server it ends: such as 1.0.41."""
    found = re.search(rb"version ([\d.]+)", Adb(adb).run("version").stdout)
    return found[1].decode() if found else "of no version"


def _other_programs(own: str) -> list[str]:
    roots = [os.environ[name] for name in ("ANDROID_HOME", "ANDROID_SDK_ROOT") if name in os.environ]
    folders = [*os.environ.get("PATH", "").split(os.pathsep), *(f"{root}/platform-tools" for root in roots)]
    found = {os.path.realpath(path) for folder in folders if (path := shutil.which("adb", path=folder))}
    return sorted(found - {os.path.realpath(own)})


def _servers(adb: Adb, running: bool) -> Iterator[Finding]:
    host, port = adb.options[1], int(adb.options[3])
    ours, theirs = version_of(adb.program).rpartition(".")[2], server_version(host, port)
    if not running:
        yield Finding("adb server", "ok", "none runs: each run starts one and ends it")
    elif theirs == ours:
        yield Finding("adb server", "ok", f"at {host}:{port}")
    else:
        found = f"the one at {host}:{port} speaks version {theirs or 'unknown'}, {adb.program} speaks {ours}"
        yield Finding(
            "adb server", "wrong", found, "end it with `adb kill-server`, or use its own adb program"
        )
    others = [words for words in _server_processes() if not re.search(rf":{port}\b", words)]
    if others:
        mend = "only one server can hold a phone on USB: end those that nobody needs"
        yield Finding("other adb servers", "hint", ", ".join(others), mend)


def server_version(host: str, port: int) -> str | None:
    """The protocol version of a server, such as 41; None where no adb server answers."""
    with suppress(OSError, ValueError), socket.create_connection((host, port), 5) as line:
        line.settimeout(5)
        line.sendall(b"000chost:version")
        answer = line.makefile("rb").read(12)
        if answer.startswith(b"OKAY0004"):
            return str(int(answer[8:], 16))
    return None


def _server_processes() -> list[str]:
    """adb servers on this machine, where it shows its processes; without those that leave USB alone, as ours do."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is somebody else's
            words = (process / "cmdline").read_text(errors="replace").split("\0")
            if os.path.basename(words[0]) != "adb" or "server" not in words:
                continue
            if "ADB_USB=0" not in (process / "environ").read_text(errors="replace").split("\0"):
                found.append(f"process {process.name}: {' '.join(words).strip()}")
    return found


def _phone(link: Link) -> Finding:
    others = {serial: state for serial, state in phones(link.adb).items() if serial != link.serial}
    also = (
        f"; also there: {', '.join(f'{serial} ({state})' for serial, state in others.items())}"
        if others
        else ""
    )
    return Finding("phone", "ok", link.serial + also)


# -- the phone -------------------------------------------------------------------------------------------------------


def _android(device: AdbDevice) -> Told:
    release = device.link.ask("getprop", "ro.build.version.release").strip()
    api = device.link.ask("getprop", "ro.build.version.sdk").strip()
    if not api.isdigit() or int(api) < OLDEST_API:
        return (
            "wrong",
            f"Android {release} (API {api})",
            f"Android 7 (API {OLDEST_API}) is the oldest that works",
        )
    return "ok", f"Android {release} (API {api})", ""


def _awake(device: AdbDevice) -> Told:
    found = re.search(r"mWakefulness=(\w+)", device.link.ask("dumpsys", "power"))
    if found is None:
        return "hint", "whether it is awake cannot be told", ""
    if found[1] != "Awake":
        mend = f"`adb -s {device.serial} shell input keyevent 224` wakes it; turn on 'Stay awake' in the developer options"
        return "wrong", f"it is {found[1].lower()}", mend
    return "ok", "awake", ""


def _unlocked(device: AdbDevice) -> Told:
    policy = device.link.ask("dumpsys", "window", "policy")
    found = re.search(r"\b(?:showing|mShowingLockscreen|mIsShowing)=(true|false)", policy)
    if found is None:
        return "hint", "whether it is locked cannot be told", ""
    return ("wrong", "it is locked", "unlock it") if found[1] == "true" else ("ok", "unlocked", "")


def _input(device: AdbDevice) -> Told:
    device.link.act(("input", "keyevent", "0"))  # the key that does nothing
    return "ok", "input from adb is allowed", ""


def _capture(device: AdbDevice) -> Told:
    pixels = device.screen().pixels
    camera = device.camera
    assert camera.way is not None
    times = ", ".join(f"{way} {ms:.0f} ms" for way, ms in sorted(camera.ms.items()))
    found = f"{pixels.shape[1]} x {pixels.shape[0]} pixels; {times}; {camera.way} is used"
    edge = int(pixels.shape[0] * EDGE)
    if np.max(pixels[edge : pixels.shape[0] - edge]) <= BLACK:
        mend = "the app in front keeps its window secret (a bank, a private tab), or the display is off: open another app"
        return "wrong", f"the screen is black ({found})", mend
    if camera.ms[camera.way] > SLOW_MS:
        return "hint", found, "a cable is faster than Wi-Fi, a USB 3 port faster than a USB 2 port"
    return "ok", found, ""


def _size(device: AdbDevice) -> Told:
    told = " ".join(device.link.ask("wm", "size").split())
    if shown_size(device.link.ask("dumpsys", "window", "displays")) is None:
        return "hint", f"{told}; a turn of the screen cannot be seen", "lock the rotation"
    return "ok", f"{told}; the pixels of screenshots are what counts", ""


def _rotation(device: AdbDevice) -> Told:
    if device.link.ask("settings", "get", "system", "accelerometer_rotation").strip() == "1":
        mend = f"`adb -s {device.serial} shell settings put system accelerometer_rotation 0`"
        return "hint", "it turns with the phone, which ends a run between two gestures", mend
    return "ok", "locked", ""


def _animations(device: AdbDevice) -> Told:
    scales = {name: device.link.ask("settings", "get", "global", name).strip() for name in ANIMATIONS}
    running = [name for name, scale in scales.items() if scale not in ("0", "0.0")]
    if running:
        each = "; ".join(f"settings put global {name} 0" for name in running)
        return "hint", "on: each screen settles later", f'`adb -s {device.serial} shell "{each}"`'
    return "ok", "off", ""


def _keyboard(device: AdbDevice) -> Told:
    if has_adb_keyboard(device.link):
        return "ok", "ADBKeyboard is there: any text can be typed", ""
    return "hint", "only ASCII can be typed", "install the app ADBKeyboard"


def _front(device: AdbDevice) -> Told:
    package = device.foreground()
    if not package:
        return (
            "hint",
            "it cannot be told: rules on apps cannot be kept",
            "unlock the phone, open an app, try again",
        )
    return "ok", package, ""


CHECKS: dict[str, Callable[[AdbDevice], Told]] = {
    "Android": _android,
    "display": _awake,
    "lock": _unlocked,
    "input": _input,
    "screenshots": _capture,
    "size": _size,
    "rotation": _rotation,
    "animations": _animations,
    "keyboard": _keyboard,
    "app in front": _front,
}
