"""Type text into the focused field of a phone behind adb: exactly that text, and none of it is executed.

Text of the key map goes through `input text`, all other text through the keyboard app ADBKeyboard. It may
contain a secret, so no list of arguments and no error contains it.
"""

import base64
import re
import time

from uivlm.devices.adb.link import Link
from uivlm.devices.device import DeviceError

ENTER_KEYCODE = "66"  # Android's key code
MAX_CHUNK_CHARS = 40  # of one `input text`
MAX_CHUNKS_PER_COMMAND = 20  # `input text` commands in one shell line
ADB_KEYBOARD = "com.android.adbkeyboard/.AdbIME"
MAX_BROADCAST_CHARS = 500  # of one broadcast


def type_text(link: Link, text: str, keyboard_delay_s: float) -> None:
    """Type the text. `keyboard_delay_s`: how long ADBKeyboard needs before it receives broadcasts."""
    commands = input_commands(text)
    if commands is None:
        _type_with_adb_keyboard(link, text, keyboard_delay_s)
        return
    for i in range(0, len(commands), MAX_CHUNKS_PER_COMMAND):
        link.execute(*commands[i : i + MAX_CHUNKS_PER_COMMAND], private=True)


def input_commands(text: str) -> list[tuple[str, ...]] | None:
    """Return the commands that type a text; None if a character has no key.

    `input text` replaces every `%s` by a space and has no escape, so a `%` before an `s` is sent separately.
    """
    if not all(" " <= char <= "~" or char == "\n" for char in text):
        return None
    commands: list[tuple[str, ...]] = []
    for i, line in enumerate(text.split("\n")):
        if i:
            commands.append(("input", "keyevent", ENTER_KEYCODE))
        for part in re.split(r"(?<=%)(?=s)", line):
            pieces = [part[j : j + MAX_CHUNK_CHARS] for j in range(0, len(part), MAX_CHUNK_CHARS)]
            commands += [("input", "text", piece.replace(" ", "%s")) for piece in pieces]
    return commands


def has_adb_keyboard(link: Link) -> bool:
    return ADB_KEYBOARD in link.query("ime", "list", "-a", "-s").split()


def _type_with_adb_keyboard(link: Link, text: str, keyboard_delay_s: float) -> None:
    """Type through ADBKeyboard, and always restore the previous keyboard."""
    try:
        messages = [
            text[i : i + MAX_BROADCAST_CHARS].encode() for i in range(0, len(text), MAX_BROADCAST_CHARS)
        ]
    except UnicodeEncodeError:
        raise DeviceError("the text contains half of a surrogate pair, which cannot be typed") from None
    if not has_adb_keyboard(link):
        raise DeviceError(
            f"phone {link.serial} cannot type non-ASCII text: install the app ADBKeyboard. Nothing was typed."
        )
    previous = link.query("settings", "get", "secure", "default_input_method").strip()
    try:
        link.execute(("ime", "enable", ADB_KEYBOARD), ("ime", "set", ADB_KEYBOARD))
        time.sleep(keyboard_delay_s)
        target = ("-p", ADB_KEYBOARD.split("/")[0], "-a", "ADB_INPUT_B64")
        for message in messages:
            broadcast = ("am", "broadcast", *target, "--es", "msg", base64.b64encode(message).decode())
            link.execute(broadcast, private=True)
    finally:
        if previous not in ("", "null", ADB_KEYBOARD):
            link.query("ime", "set", previous)  # a query may be repeated, which is harmless here
