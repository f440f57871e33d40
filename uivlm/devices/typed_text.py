"""Text into the focused field of a phone behind adb: any text in, exactly that text typed, nothing of it run.

What the key map has goes through `input text`, everything else through the keyboard app ADBKeyboard.
"""

import base64
import re
import time

from uivlm.devices.adb_link import Link
from uivlm.devices.device import DeviceError

ENTER = "66"  # Android's key code
PIECE = 40  # most characters of one `input text`
PIECES = 20  # most `input text` of one shell line
ADB_KEYBOARD = "com.android.adbkeyboard/.AdbIME"
MESSAGE = 500  # most characters of one broadcast


def type_text(link: Link, text: str, opening_s: float) -> None:
    """Type it. `opening_s`: what ADBKeyboard needs to open before it listens."""
    commands = typed(text)
    if commands is None:
        _broadcast(link, text, opening_s)
        return
    for i in range(0, len(commands), PIECES):
        link.act(*commands[i : i + PIECES])


def typed(text: str) -> list[tuple[str, ...]] | None:
    """Commands that type a text, or None where a character has no key.

    `input text` makes every `%s` a space and knows no escape: a `%` before an `s` goes alone.
    """
    if not all(" " <= letter <= "~" or letter == "\n" for letter in text):
        return None
    commands: list[tuple[str, ...]] = []
    for i, line in enumerate(text.split("\n")):
        if i:
            commands.append(("input", "keyevent", ENTER))
        for part in re.split(r"(?<=%)(?=s)", line):
            pieces = [part[j : j + PIECE] for j in range(0, len(part), PIECE)]
            commands += [("input", "text", piece.replace(" ", "%s")) for piece in pieces]
    return commands


def has_adb_keyboard(link: Link) -> bool:
    return ADB_KEYBOARD in link.ask("ime", "list", "-a", "-s").split()


def _broadcast(link: Link, text: str, opening_s: float) -> None:
    """Text beyond the key map, through ADBKeyboard; the keyboard of before is set again, come what may."""
    try:
        messages = [text[i : i + MESSAGE].encode() for i in range(0, len(text), MESSAGE)]
    except UnicodeEncodeError:
        raise DeviceError("the text to type holds half of a surrogate pair: no keyboard has it") from None
    if not has_adb_keyboard(link):
        raise DeviceError(
            f"phone {link.serial} cannot type {text[:40]!r}: text beyond ASCII needs the app ADBKeyboard on it"
        )
    before = link.ask("settings", "get", "secure", "default_input_method").strip()
    try:
        link.act(("ime", "enable", ADB_KEYBOARD), ("ime", "set", ADB_KEYBOARD))
        time.sleep(opening_s)
        to = ("-p", ADB_KEYBOARD.split("/")[0], "-a", "ADB_INPUT_B64")
        for message in messages:
            link.act(("am", "broadcast", *to, "--es", "msg", base64.b64encode(message).decode()))
    finally:
        if before not in ("", "null", ADB_KEYBOARD):
            link.ask("ime", "set", before)  # twice does no harm
