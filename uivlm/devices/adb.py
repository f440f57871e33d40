"""A phone driven through the real adb: gestures in, screens out.

    with adb_server.own_server() as adb:              # a simulated phone: a private adb server
        phone = connect(f"127.0.0.1:{port}", adb, AT_ONCE)
    phone = connect()                                 # a real phone: the user's adb server

adb gets argument lists; what the phone's shell parses again is quoted by `quoted`, and only there.
"""

import base64
import io
import re
import shlex
import subprocess
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from uivlm.actions.action import Key
from uivlm.actions.gesture import Button, Gesture, Keys, Touch
from uivlm.devices.adb_server import Adb, program
from uivlm.devices.device import DeviceError
from uivlm.episode import Screen

KEYCODES: dict[Key, int] = {"home": 3, "back": 4, "enter": 66}
LONG_PRESS_MS = 400  # Android's long-press time-out: a touch this long is no tap
PIECE = 40  # most characters of one `input text`
PIECES = 20  # most `input text` of one shell line
ADB_KEYBOARD = "com.android.adbkeyboard/.AdbIME"
MESSAGE = 500  # most characters of one broadcast
STATUS_BAR = 0.04  # top share of the screen that may change at any time (clock, notifications)
STILL = 1.0  # grey levels of 255: mean difference under which two frames are equal
PNG_SIGNATURE, PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"
GONE = re.compile(
    r"not found|offline|no devices|closed|cannot connect|protocol fault|connection reset", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Settle:
    """How long to wait until the display is still."""

    first_s: float = 0.3  # before the first frame
    every_s: float = 0.2  # between two frames
    limit_s: float = 6.0  # after this the last frame counts; 0 takes one frame and compares none


AT_ONCE = Settle(0.0, 0.0, 0.0)  # a simulated phone is still when its command returns


def connect(serial: str | None = None, adb: Adb | None = None, settle: Settle | None = None) -> "AdbDevice":
    """The phone of this serial number or HOST:PORT; without one, the only phone there is."""
    adb = adb or Adb(program(bundled=False))
    if serial is not None and re.fullmatch(r"[\w.-]+:\d+", serial):
        done = adb.run("connect", serial)
        said = _text(done)
        if done.returncode or not re.search(r"connected to", said) or "cannot" in said or "failed" in said:
            raise DeviceError(f"no phone answers at {serial}: {said or 'adb said nothing'}")
    phones = _phones(adb)
    if serial is None:
        if not phones:
            raise DeviceError("no phone is connected: plug one in with USB debugging on, or use --device sim")
        if len(phones) > 1:
            raise DeviceError(f"{len(phones)} phones are connected: name one of {', '.join(sorted(phones))}")
        serial = next(iter(phones))
    if serial not in phones:
        there = ", ".join(sorted(phones)) or "none"
        raise DeviceError(f"no phone {serial} is connected (there: {there})")
    if phones[serial] == "unauthorized":
        raise DeviceError(f"phone {serial} does not trust this computer: confirm USB debugging on its screen")
    if phones[serial] != "device":
        raise DeviceError(f"phone {serial} is {phones[serial]}: plug it in again")
    return AdbDevice(serial, adb, settle or Settle())


def _phones(adb: Adb) -> dict[str, str]:
    """Serial number -> state of every phone that adb knows."""
    done = adb.run("devices")
    if done.returncode:
        raise DeviceError(f"adb cannot list the phones: {_text(done)}")
    lines = [line.split("\t") for line in done.stdout.decode(errors="replace").splitlines() if "\t" in line]
    return {line[0]: line[1].strip() for line in lines}


class AdbDevice:
    """One phone behind adb. It is a Device."""

    def __init__(self, serial: str, adb: Adb, settle: Settle | None = None) -> None:
        self.serial = serial
        self.adb = adb
        self.settle = settle or Settle()

    def screen(self) -> Screen:
        """The screen once two frames are equal, or the last frame at the time limit."""
        began = time.monotonic()
        time.sleep(self.settle.first_s)
        frame = self._frame()
        while time.monotonic() - began < self.settle.limit_s:
            time.sleep(self.settle.every_s)
            frame, before = self._frame(), frame
            if is_still(before, frame):
                break
        return Screen(frame)

    def perform(self, gesture: Gesture) -> None:
        match gesture:
            case Touch(((x, y),), ms) if ms < LONG_PRESS_MS:
                self._input([("input", "tap", *_pixels(x, y))])
            case Touch(((x, y),), ms):
                self._input([("input", "swipe", *_pixels(x, y, x, y, ms))])
            case Touch(((x1, y1), (x2, y2)), ms):
                self._input([("input", "swipe", *_pixels(x1, y1, x2, y2, ms))])
            case Keys(text):
                self._type(text)
            case Button(name):
                self._input([("input", "keyevent", str(KEYCODES[name]))])
            case _:
                raise DeviceError(f"adb cannot perform {gesture}: a touch has one or two points")

    def shell(self, *words: str) -> str:
        """The output of one command on the phone. Raises DeviceError where its exit status is not 0."""
        return self._shell([words])

    def _shell(self, commands: list[tuple[str, ...]]) -> str:
        line = " && ".join(quoted(words) for words in commands)
        done = self.adb.run("-s", self.serial, "shell", line)
        said = _text(done)
        if "INJECT_EVENTS" in said:
            raise DeviceError(
                f"phone {self.serial} refuses input from adb: on Xiaomi and OPPO turn on "
                "'USB debugging (Security settings)' in the developer options"
            )
        if done.returncode:
            self._check_there(said)
            raise DeviceError(
                f"`{commands[0][0]}` failed on phone {self.serial} ({done.returncode}): {said[:300]}"
            )
        return done.stdout.decode(errors="replace")

    def _input(self, commands: list[tuple[str, ...]]) -> None:
        """Commands that say nothing when they go well: older phones answer 0 even where they do not."""
        said = self._shell(commands)
        if re.search(r"Exception|Error:", said):
            raise DeviceError(f"`input` failed on phone {self.serial}: {said.strip()[:300]}")

    def _check_there(self, said: str) -> None:
        if GONE.search(said) and _phones(self.adb).get(self.serial) != "device":
            raise DeviceError(f"phone {self.serial} is gone: {said[:200]}")

    def _frame(self) -> NDArray[np.uint8]:
        data = self._capture()
        if not _is_png(data):
            data = self._capture()
        if not _is_png(data):
            raise DeviceError(
                f"phone {self.serial} sent no whole screenshot ({len(data)} bytes): is it locked?"
            )
        try:
            return np.array(Image.open(io.BytesIO(data), formats=["PNG"]).convert("RGB"))
        except (OSError, ValueError, Image.DecompressionBombError) as error:
            raise DeviceError(f"phone {self.serial} sent a damaged screenshot: {error}") from error

    def _capture(self) -> bytes:
        done = self.adb.run("-s", self.serial, "exec-out", "screencap", "-p")
        if done.returncode:
            said = _text(done)
            self._check_there(said)
            raise DeviceError(f"phone {self.serial} gives no screenshot ({done.returncode}): {said[:300]}")
        return done.stdout

    def _type(self, text: str) -> None:
        commands = typed(text)
        if commands is None:
            self._broadcast(text)
            return
        for i in range(0, len(commands), PIECES):
            self._input(commands[i : i + PIECES])

    def _broadcast(self, text: str) -> None:
        """Text beyond the key map, through ADBKeyboard; the keyboard of before is set again, come what may."""
        try:
            messages = [text[i : i + MESSAGE].encode() for i in range(0, len(text), MESSAGE)]
        except UnicodeEncodeError:
            raise DeviceError("the text to type holds half of a surrogate pair: no keyboard has it") from None
        if ADB_KEYBOARD not in self.shell("ime", "list", "-a", "-s").split():
            raise DeviceError(
                f"phone {self.serial} cannot type {text[:40]!r}: text beyond ASCII needs the app ADBKeyboard on it"
            )
        before = self.shell("settings", "get", "secure", "default_input_method").strip()
        try:
            self.shell("ime", "enable", ADB_KEYBOARD)
            self.shell("ime", "set", ADB_KEYBOARD)
            time.sleep(self.settle.first_s)  # the keyboard has to open before it listens
            to = ("-p", ADB_KEYBOARD.split("/")[0], "-a", "ADB_INPUT_B64")
            for message in messages:
                said = base64.b64encode(message).decode()
                self._input([("am", "broadcast", *to, "--es", "msg", said)])
        finally:
            if before not in ("", "null", ADB_KEYBOARD):
                self.shell("ime", "set", before)


def quoted(words: tuple[str, ...]) -> str:
    """Words as a line that the phone's shell reads back as exactly these words."""
    return " ".join(shlex.quote(word) for word in words)


def typed(text: str) -> list[tuple[str, ...]] | None:
    """Commands that type a text, or None where a character has no key.

    `input text` makes every `%s` a space and knows no escape: a `%` before an `s` goes alone.
    """
    if not all(" " <= letter <= "~" or letter == "\n" for letter in text):
        return None
    commands: list[tuple[str, ...]] = []
    for i, line in enumerate(text.split("\n")):
        if i:
            commands.append(("input", "keyevent", str(KEYCODES["enter"])))
        for part in re.split(r"(?<=%)(?=s)", line):
            pieces = [part[j : j + PIECE] for j in range(0, len(part), PIECE)]
            commands += [("input", "text", piece.replace(" ", "%s")) for piece in pieces]
    return commands


def is_still(before: NDArray[np.uint8], now: NDArray[np.uint8]) -> bool:
    """Do two frames show the same below the status bar? A blinking caret is the same, a turned screen is not."""
    if before.shape != now.shape:
        return False
    top = int(before.shape[0] * STATUS_BAR)
    difference = before[top::4, ::4].astype(np.int16) - now[top::4, ::4]
    return bool(np.abs(difference).mean() < STILL)


def _pixels(*numbers: int) -> tuple[str, ...]:
    if min(numbers) < 0:
        raise DeviceError(f"a touch at {numbers} lies outside the screen")
    return tuple(str(int(number)) for number in numbers)


def _is_png(data: bytes) -> bool:
    return data.startswith(PNG_SIGNATURE) and data.rstrip(b"\r\n").endswith(PNG_END)


def _text(done: "subprocess.CompletedProcess[bytes]") -> str:
    """All that a command said, in one line."""
    return " ".join((done.stdout + b" " + done.stderr).decode(errors="replace").split())
