"""Android's shell on a device of ours: a command line in, what a phone would answer out.

Here are the commands that act and take screenshots; what only tells is in `services.py`. Nothing runs a program of the
host. Every command is logged as the words that it got.
"""

import base64
import binascii
import io
import random
import struct
import threading
import time
from collections.abc import Callable, Sequence

from PIL import Image

from uivlm.actions.action import Key
from uivlm.actions.gesture import Button, Keys, Touch
from uivlm.devices.device import DeviceError
from uivlm.devices.sim.answer import Answer, failed, told
from uivlm.devices.sim.faults import Faults
from uivlm.devices.sim.services import SERVICES, Glass, am_start
from uivlm.devices.sim.shell_words import ShellSyntaxError, commands

ADB_KEYBOARD = "com.android.adbkeyboard/.AdbIME"
LATIN_KEYBOARD = "com.android.inputmethod.latin/.LatinIME"
TAP_MS = 60
SWIPE_MS = 300  # Android's default

BUTTONS: dict[int, Key] = {3: "home", 4: "back", 66: "enter"}
WITHOUT_EFFECT = {0: "unknown", 224: "wake up"}  # accepted: the phone is always awake
KEYCODES = {"HOME": 3, "BACK": 4, "ENTER": 66, "WAKEUP": 224}

UNMAPPED = (
    "Exception occurred while executing 'text':\n"
    "java.lang.NullPointerException: Attempt to get length of null array\n"
    "\tat com.android.server.input.InputShellCommand.sendText(InputShellCommand.java:329)\n"
)
REFUSED = (
    "Exception occurred while executing '{}':\n"
    "java.lang.SecurityException: Injecting input events requires the caller (or the source of the "
    "instrumentation, if any) to have the INJECT_EVENTS permission.\n"
)


class Shell:
    """The commands of one phone. `keyboards` are the installed ones; `faults` is what goes wrong."""

    def __init__(
        self,
        device: Glass,
        keyboards: Sequence[str] = (LATIN_KEYBOARD, ADB_KEYBOARD),
        faults: Faults | None = None,
    ) -> None:
        self.device = device
        self.keyboards = tuple(keyboards)
        self.faults = faults or Faults()
        self.enabled = {self.keyboards[0]}
        self.settings: dict[tuple[str, str], str] = {("secure", "default_input_method"): self.keyboards[0]}
        self.lines: list[str] = []  # as they came
        self.log: list[tuple[str, ...]] = []
        self._frozen: Image.Image | None = None
        self._turn = threading.Lock()

    def run(self, line: str) -> Answer:
        """The answer to a command line; never raises for anything that the line says."""
        self.lines.append(line)
        try:
            parsed = commands(line)
        except ShellSyntaxError as error:
            return failed(f"/system/bin/sh: {error}", 2)
        out, err, code = b"", b"", 0
        with self._turn:
            for command in parsed:
                if (command.after == "&&" and code) or (command.after == "||" and not code):
                    continue
                self.log.append(command.argv)
                answer = self._command(command.argv[0], command.argv[1:])
                out, err, code = out + answer.out, err + answer.err, answer.code
        return Answer(out, err, code)

    def _command(self, name: str, words: tuple[str, ...]) -> Answer:
        verbs: dict[str, Callable[[tuple[str, ...]], Answer]] = {
            "input": self._input,
            "screencap": self._screencap,
            "am": self._am,
            "ime": self._ime,
            "settings": self._settings,
            "uiautomator": self._uiautomator,
            "echo": lambda words: told(" ".join(words)),
            "true": lambda _: Answer(),
            "false": lambda _: Answer(code=1),
        }
        try:
            if name in verbs:
                answer = verbs[name](words)
            elif name in SERVICES:
                answer = SERVICES[name](self.device, words)
            else:
                return failed(f"/system/bin/sh: {name}: inaccessible or not found", 127)
        except (ValueError, OverflowError, DeviceError) as error:
            return failed(f"Error: {error}", 255)
        if self.faults.garbage and name != "echo":
            return Answer(random.Random(len(self.log)).randbytes(3000))
        return answer

    def _input(self, words: tuple[str, ...]) -> Answer:
        if words[:1] in (("touchscreen",), ("keyboard",)):
            words = words[1:]
        if self.faults.refuses and words:
            return failed(REFUSED.format(words[0]).rstrip("\n"), 255)
        match words:
            case ("tap", x, y):
                self.device.perform(Touch((self._place(x, y),), TAP_MS))
            case ("swipe", x1, y1, x2, y2, *rest) if len(rest) <= 1:
                ms = int(rest[0]) if rest else SWIPE_MS
                if ms < 0:
                    raise ValueError(f"a swipe of {ms} ms")
                self.device.perform(Touch((self._place(x1, y1), self._place(x2, y2)), ms))
            case ("text", text, *_):
                return self._type(text)
            case ("keyevent", _, *_):
                for key in [_keycode(word) for word in words[1:]]:  # all are read before one is pressed
                    if key in BUTTONS:
                        self.device.perform(Button(BUTTONS[key]))
            case ("keycombination", _, _, *_):
                raise ValueError("this phone has no keyboard shortcuts: keycombination does nothing here")
            case _:
                raise ValueError(f"Invalid arguments for command: {' '.join(words[:1])}")
        return Answer()

    def _place(self, x: str, y: str) -> tuple[int, int]:
        at = int(float(x)), int(float(y))
        if not (0 <= at[0] < self.device.width and 0 <= at[1] < self.device.height):
            raise ValueError(f"{at} lies outside the {self.device.width} x {self.device.height} screen")
        return at

    def _type(self, text: str) -> Answer:
        text = text.replace("%s", " ")  # no escape exists for it
        if not all(" " <= letter <= "~" for letter in text):
            return failed(UNMAPPED.rstrip("\n"), 255)  # outside the key map: nothing is typed
        if text:
            self.device.perform(Keys(text))
        return Answer()

    def _screencap(self, words: tuple[str, ...]) -> Answer:
        if words not in ((), ("-p",)):
            raise ValueError(f"screencap {' '.join(words)}: only '-p' or no argument")
        way = "png" if words else "raw"
        time.sleep(self.faults.slow.get(way, 0.0))
        picture = self._picture()
        if way == "png":
            file = io.BytesIO()
            picture.save(file, "PNG", compress_level=1)
            data = file.getvalue()
        else:
            rgba_8888, srgb = 1, 0x08820000
            data = struct.pack("<IIII", *picture.size, rgba_8888, srgb) + picture.convert("RGBA").tobytes()
        return Answer(data[: len(data) // 2] if way in self.faults.cut else data)

    def _picture(self) -> Image.Image:
        picture = Image.fromarray(self.device.screen().pixels)
        if self.faults.black:
            return Image.new("RGB", picture.size)
        if self.faults.frozen:
            self._frozen = self._frozen or picture
            return self._frozen
        return picture

    def _uiautomator(self, words: tuple[str, ...]) -> Answer:
        if self.faults.restless:
            return told("ERROR: could not get idle state.")
        return SERVICES["uiautomator"](self.device, words)

    def _am(self, words: tuple[str, ...]) -> Answer:
        if words[:1] == ("start",):
            return am_start(self.device, words[1:])
        if words[:1] != ("broadcast",):
            raise ValueError(f"am {' '.join(words[:1])}: only 'start' and 'broadcast' are known")
        options, extras = _broadcast(words[1:])
        action = options.get("-a")
        if action is None:
            raise ValueError("am broadcast: no action (-a)")
        heard = self.settings.get(("secure", "default_input_method")) == ADB_KEYBOARD
        heard &= options.get("-p", ADB_KEYBOARD.split("/")[0]) == ADB_KEYBOARD.split("/")[0]
        if heard and action in ("ADB_INPUT_B64", "ADB_INPUT_TEXT") and extras.get("msg"):
            text = extras["msg"]
            if action == "ADB_INPUT_B64":
                try:
                    text = base64.b64decode(text, validate=True).decode()
                except (binascii.Error, UnicodeDecodeError) as error:
                    raise ValueError(f"ADB_INPUT_B64: the message is no base64 of UTF-8: {error}") from None
            self.device.perform(Keys(text))
        return told(
            f"Broadcasting: Intent {{ act={action} flg=0x400000 (has extras) }}\nBroadcast completed: result=0"
        )

    def _ime(self, words: tuple[str, ...]) -> Answer:
        match words:
            case ("list", *options) if set(options) <= {"-a", "-s"}:
                known = (
                    self.keyboards if "-a" in options else [k for k in self.keyboards if k in self.enabled]
                )
                return told("\n".join(known))
            case ("enable", name):
                if name not in self.keyboards:
                    return failed(f"Unknown input method {name} cannot be enabled for user #0", 255)
                self.enabled.add(name)
                return told(f"Input method {name}: now enabled for user #0")
            case ("set", name):
                if name not in self.enabled:
                    return failed(f"Unknown input method {name} cannot be selected for user #0", 255)
                self.settings["secure", "default_input_method"] = name
                return told(f"Input method {name} selected for user #0")
        raise ValueError(f"ime {' '.join(words)}: only list, enable and set are known")

    def _settings(self, words: tuple[str, ...]) -> Answer:
        match words:
            case ("get", "system" | "secure" | "global" as space, name):
                return told(self.settings.get((space, name), "null"))
            case ("put", "system" | "secure" | "global" as space, name, value):
                self.settings[space, name] = value
                return Answer()
        raise ValueError(f"settings {' '.join(words)}: say get|put system|secure|global NAME [VALUE]")


def _keycode(word: str) -> int:
    name = word.removeprefix("KEYCODE_")
    key = KEYCODES[name] if name in KEYCODES else int(word) if word.isdecimal() else -1
    if key not in BUTTONS and key not in WITHOUT_EFFECT:
        raise ValueError(f"key event {word} is not known to this phone: it has {sorted(KEYCODES)}")
    return key


def _broadcast(words: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str]]:
    """Options and extras of `am broadcast`."""
    options: dict[str, str] = {}
    extras: dict[str, str] = {}
    rest = list(words)
    while rest:
        match rest:
            case ["-a" | "-p" | "-n" | "--user" as option, value, *rest]:
                options[option] = value
            case ["--es" | "--ei" | "-e", name, value, *rest]:
                extras[name] = value
            case _:
                raise ValueError(f"am broadcast: unknown option or missing value: {rest[0]}")
    return options, extras
