"""What a person allowed for good, kept as blocks at the end of the policy file.

[[always]]
app = "com.whatsapp"
label = "Send"        # the whole label of a touched element

[[always]]
app = "com.android.settings"
gesture = "tap"       # tap, long_press, swipe, text, enter, back or home

To be asked again, delete a block. A gesture in a denied app, and one with a secret, has no exception.
"""

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

from pydantic import with_config

from uivlm.actions.schema import STRICT
from uivlm.atomic import write_file

GESTURE_KINDS = ("tap", "long_press", "swipe", "text", "enter", "back", "home")


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class Exemption:
    """Either the label or the kind of gesture is set."""

    app: str
    label: str = ""
    gesture: str = ""

    def __post_init__(self) -> None:
        if not self.app or bool(self.label) == bool(self.gesture):
            raise ValueError(
                f"always: got app {self.app!r}, label {self.label!r}, gesture {self.gesture!r}; "
                "expected an app and either a label or a gesture"
            )
        if self.gesture and self.gesture not in GESTURE_KINDS:
            raise ValueError(
                f"always.gesture: got {self.gesture!r}; expected one of {', '.join(GESTURE_KINDS)}"
            )

    def __str__(self) -> str:
        what = repr(self.label) if self.label else f"each {self.gesture.replace('_', ' ')}"
        return f"{what} in {self.app}"


def append_exemptions(file: Path, exemptions: tuple[Exemption, ...]) -> None:
    """Append a block each to the policy file. The text before is kept; the file is replaced at once.

    Raises OSError, and ValueError if the file is not TOML any more.
    """
    path = file.resolve()  # a link stays a link
    mode = path.stat().st_mode
    text = path.read_text("utf-8")
    if text and not text.endswith("\n"):
        text += "\n"
    text += "".join(f"\n{_block(exemption)}" for exemption in exemptions)
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file} is not a TOML file: {error}") from None
    write_file(path, text)
    os.chmod(path, mode)


def _block(exemption: Exemption) -> str:
    key, value = ("label", exemption.label) if exemption.label else ("gesture", exemption.gesture)
    return f'[[always]]\napp = "{_escape(exemption.app)}"\n{key} = "{_escape(value)}"\n'


def _escape(text: str) -> str:
    """TOML's basic string. Half of a surrogate pair has no escape: such a label is never matched."""
    clean = text.encode("utf-8", "replace").decode()
    return "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08X}" for c in clean)
