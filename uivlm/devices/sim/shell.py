"""Android's shell on one of our devices: a command line in, the output of a phone out.

This file has the commands that act and take screenshots; `services.py` has the queries. No program of the
host is run. Every command is logged as its list of arguments.
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
from uivlm.actions.gesture import PressKey, Touch, TypeText
from uivlm.devices.device import DeviceError
from uivlm.devices.sim.faults import Faults
from uivlm.devices.sim.services import SERVICES, SizedDevice, am_start
from uivlm.devices.sim.shell_parser import (
    CommandResult,
    ShellSyntaxError,
    error_result,
    parse_commands,
    success_result,
)

ADB_KEYBOARD = "com.android.adbkeyboard/.AdbIME"
LATIN_KEYBOARD = "com.android.inputmethod.latin/.LatinIME"
TAP_MS = 60
SWIPE_MS = 300  # Android's default

KEY_BY_CODE: dict[int, Key] = {3: "home", 4: "back", 66: "enter"}
IGNORED_KEYCODES = {0: "unknown", 224: "wake up"}  # accepted: the phone is always awake
KEYCODES = {"HOME": 3, "BACK": 4, "ENTER": 66, "WAKEUP": 224}

UNMAPPED_CHARACTER_ERROR = (
    "Exception occurred while executing 'text':\n"
    "java.lang.NullPointerException: Attempt to get length of null array\n"
    "\tat com.android.server.input.InputShellCommand.sendText(InputShellCommand.java:329)\n"
)
INJECTION_DENIED_ERROR = (
    "Exception occurred while executing '{}':\n"
    "java.lang.SecurityException: Injecting input events requires the caller (or the source of the "
    "instrumentation, if any) to have the INJECT_EVENTS permission.\n"
)


class Shell:
    """The shell of one phone. `keyboards`: the installed ones."""

    def __init__(
        self,
        device: SizedDevice,
        keyboards: Sequence[str] = (LATIN_KEYBOARD, ADB_KEYBOARD),
        faults: Faults | None = None,
    ) -> None:
        self.device = device
        self.keyboards = tuple(keyboards)
        self.faults = faults or Faults()
        self.enabled_keyboards = {self.keyboards[0]}
        self.settings: dict[tuple[str, str], str] = {("secure", "default_input_method"): self.keyboards[0]}
        self.command_lines: list[str] = []  # as received
        self.command_log: list[tuple[str, ...]] = []
        self._frozen_screenshot: Image.Image | None = None
        self._lock = threading.Lock()

    def run(self, line: str) -> CommandResult:
        """Run a command line and return its result. No line makes it raise."""
        self.command_lines.append(line)
        try:
            parsed = parse_commands(line)
        except ShellSyntaxError as error:
            return error_result(f"/system/bin/sh: {error}", 2)
        out, err, code = b"", b"", 0
        with self._lock:
            for command in parsed:
                if (command.operator == "&&" and code) or (command.operator == "||" and not code):
                    continue
                self.command_log.append(command.argv)
                result = self._run_command(command.argv[0], command.argv[1:])
                out, err, code = out + result.stdout, err + result.stderr, result.returncode
        return CommandResult(out, err, code)

    def _run_command(self, name: str, args: tuple[str, ...]) -> CommandResult:
        commands: dict[str, Callable[[tuple[str, ...]], CommandResult]] = {
            "input": self._input,
            "screencap": self._screencap,
            "am": self._am,
            "ime": self._ime,
            "settings": self._settings,
            "uiautomator": self._uiautomator,
            "echo": lambda argv: success_result(" ".join(argv)),
            "true": lambda _: CommandResult(),
            "false": lambda _: CommandResult(returncode=1),
        }
        try:
            if name in commands:
                result = commands[name](args)
            elif name in SERVICES:
                result = SERVICES[name](self.device, args)
            else:
                return error_result(f"/system/bin/sh: {name}: inaccessible or not found", 127)
        except (ValueError, OverflowError, DeviceError) as error:
            return error_result(f"Error: {error}", 255)
        if self.faults.garbage_output and name != "echo":
            return CommandResult(random.Random(len(self.command_log)).randbytes(3000))
        return result

    def _input(self, args: tuple[str, ...]) -> CommandResult:
        if args[:1] in (("touchscreen",), ("keyboard",)):
            args = args[1:]
        if self.faults.rejects_input and args:
            return error_result(INJECTION_DENIED_ERROR.format(args[0]).rstrip("\n"), 255)
        match args:
            case ("tap", x, y):
                self.device.perform(Touch((self._parse_point(x, y),), TAP_MS))
            case ("swipe", x1, y1, x2, y2, *rest) if len(rest) <= 1:
                ms = int(rest[0]) if rest else SWIPE_MS
                if ms < 0:
                    raise ValueError(f"swipe duration: got {ms} ms; expected at least 0")
                self.device.perform(Touch((self._parse_point(x1, y1), self._parse_point(x2, y2)), ms))
            case ("text", text, *_):
                return self._type(text)
            case ("keyevent", _, *_):
                for key in [_keycode(name) for name in args[1:]]:  # check all before pressing one
                    if key in KEY_BY_CODE:
                        self.device.perform(PressKey(KEY_BY_CODE[key]))
            case ("keycombination", _, _, *_):
                raise ValueError("keycombination: this phone has no keyboard shortcuts")
            case _:
                raise ValueError(f"Invalid arguments for command: {' '.join(args[:1])}")
        return CommandResult()

    def _parse_point(self, x: str, y: str) -> tuple[int, int]:
        point = int(float(x)), int(float(y))
        if not (0 <= point[0] < self.device.width and 0 <= point[1] < self.device.height):
            raise ValueError(f"{point} is outside the {self.device.width} x {self.device.height} screen")
        return point

    def _type(self, text: str) -> CommandResult:
        text = text.replace("%s", " ")  # as Android does; there is no escape
        if not all(" " <= char <= "~" for char in text):  # outside the key map: nothing is typed
            return error_result(UNMAPPED_CHARACTER_ERROR.rstrip("\n"), 255)
        if text:
            self.device.perform(TypeText(text))
        return CommandResult()

    def _screencap(self, args: tuple[str, ...]) -> CommandResult:
        if args not in ((), ("-p",)):
            raise ValueError(f"screencap {' '.join(args)}: expected '-p' or no argument")
        method = "png" if args else "raw"
        time.sleep(self.faults.capture_delay_s.get(method, 0.0))
        image = self._take_screenshot()
        if method == "png":
            file = io.BytesIO()
            image.save(file, "PNG", compress_level=1)
            data = file.getvalue()
        else:
            rgba_8888, srgb = 1, 0x08820000
            data = struct.pack("<IIII", *image.size, rgba_8888, srgb) + image.convert("RGBA").tobytes()
        return CommandResult(data[: len(data) // 2] if method in self.faults.truncated_captures else data)

    def _take_screenshot(self) -> Image.Image:
        image = Image.fromarray(self.device.screen().pixels)
        if self.faults.black_screenshots:
            return Image.new("RGB", image.size)
        if self.faults.frozen_screenshots:
            self._frozen_screenshot = self._frozen_screenshot or image
            return self._frozen_screenshot
        return image

    def _uiautomator(self, args: tuple[str, ...]) -> CommandResult:
        if self.faults.never_idle:
            return success_result("ERROR: could not get idle state.")
        return SERVICES["uiautomator"](self.device, args)

    def _am(self, args: tuple[str, ...]) -> CommandResult:
        if args[:1] == ("start",):
            return am_start(self.device, args[1:])
        if args[:1] != ("broadcast",):
            raise ValueError(f"am {' '.join(args[:1])}: expected 'start' or 'broadcast'")
        options, extras = _parse_broadcast(args[1:])
        action = options.get("-a")
        if action is None:
            raise ValueError("am broadcast: the action (-a) is missing")
        received = self.settings.get(("secure", "default_input_method")) == ADB_KEYBOARD
        received &= options.get("-p", ADB_KEYBOARD.split("/")[0]) == ADB_KEYBOARD.split("/")[0]
        if received and action in ("ADB_INPUT_B64", "ADB_INPUT_TEXT") and extras.get("msg"):
            text = extras["msg"]
            if action == "ADB_INPUT_B64":
                try:
                    text = base64.b64decode(text, validate=True).decode()
                except (binascii.Error, UnicodeDecodeError) as error:
                    raise ValueError(f"ADB_INPUT_B64: the message is not base64 of UTF-8: {error}") from None
            self.device.perform(TypeText(text))
        intent = f"Intent {{ act={action} flg=0x400000 (has extras) }}"
        return success_result(f"Broadcasting: {intent}\nBroadcast completed: result=0")

    def _ime(self, args: tuple[str, ...]) -> CommandResult:
        match args:
            case ("list", *options) if set(options) <= {"-a", "-s"}:
                keyboards = [k for k in self.keyboards if "-a" in options or k in self.enabled_keyboards]
                return success_result("\n".join(keyboards))
            case ("enable", name):
                if name not in self.keyboards:
                    return error_result(f"Unknown input method {name} cannot be enabled for user #0", 255)
                self.enabled_keyboards.add(name)
                return success_result(f"Input method {name}: now enabled for user #0")
            case ("set", name):
                if name not in self.enabled_keyboards:
                    return error_result(f"Unknown input method {name} cannot be selected for user #0", 255)
                self.settings["secure", "default_input_method"] = name
                return success_result(f"Input method {name} selected for user #0")
        raise ValueError(f"ime {' '.join(args)}: expected list, enable or set")

    def _settings(self, args: tuple[str, ...]) -> CommandResult:
        match args:
            case ("get", "system" | "secure" | "global" as space, name):
                return success_result(self.settings.get((space, name), "null"))
            case ("put", "system" | "secure" | "global" as space, name, value):
                self.settings[space, name] = value
                return CommandResult()
        raise ValueError(f"settings {' '.join(args)}: expected get|put system|secure|global NAME [VALUE]")


def _keycode(name: str) -> int:
    name = name.removeprefix("KEYCODE_")
    code = KEYCODES[name] if name in KEYCODES else int(name) if name.isdecimal() else -1
    if code not in KEY_BY_CODE and code not in IGNORED_KEYCODES:
        raise ValueError(f"key event: got {name}; expected one of {sorted(KEYCODES)}")
    return code


def _parse_broadcast(args: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options and extras of `am broadcast`."""
    options: dict[str, str] = {}
    extras: dict[str, str] = {}
    rest = list(args)
    while rest:
        match rest:
            case ["-a" | "-p" | "-n" | "--user" as option, value, *rest]:
                options[option] = value
            case ["--es" | "--ei" | "-e", name, value, *rest]:
                extras[name] = value
            case _:
                raise ValueError(f"am broadcast: unknown option or missing value: {rest[0]}")
    return options, extras
