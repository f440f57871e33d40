"""Typed text: whatever it is, it arrives exactly, and nothing of it is run."""

import base64
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("adbutils", reason="adb comes in adbutils' wheel")

from phones import phone_on

from uivlm.actions.gesture import Keys
from uivlm.devices.adb import AdbDevice
from uivlm.devices.adb_link import Link, quoted
from uivlm.devices.device import DeviceError
from uivlm.devices.settle import AT_ONCE
from uivlm.devices.sim.faults import Faults
from uivlm.devices.sim.shell import LATIN_KEYBOARD
from uivlm.devices.sim.shell_words import commands
from uivlm.devices.typed_text import ADB_KEYBOARD, typed

HOSTILE = [
    "hello world",
    "100%sure",
    "%s",
    "%%s %s%s% s%",
    'it\'s "quoted"',
    "$(reboot) `reboot` $HOME ${HOME}",
    "; rm -rf / && echo x || true | cat & <in >out",
    "\\ \\n \\\\ \\' \\\"",
    "~ ~root *.txt [ab] {a,b} ?",
    "  two  spaces  ",
    "# no comment !! ^x^",
    "-p --help",
    "first line\nsecond line\n\nlast\n",
    "x" * 39 + "%s" + "y" * 50,
    "''''\"\"\"\"",
    "=1 A=b cmd",
]
BEYOND_ASCII = [
    "Zürich",
    "日本語 テスト",
    "👩‍👩‍👧 🇨🇭 ok",
    "tab\there",
    "a\u0301 'é' $(x) %s",
    "😀" * 700,
    "\0\x07",
]
FRAGMENTS = (
    *(
        "$(touch pwned)",
        "`touch pwned`",
        "; touch pwned #",
        "| touch pwned ",
        "> pwned ",
        "&& touch pwned ",
        "& touch pwned\n",
    ),
    *(
        "'",
        '"',
        "\\",
        "$",
        "`",
        "%s",
        "%",
        "s",
        "%%s",
        " ",
        "  ",
        "\n",
        "~",
        "*",
        "?",
        "[ab]",
        "{a,b}",
        "!!",
        "#",
        "--",
        "-p",
    ),
    *(
        "${HOME}",
        "$HOME",
        "$((1+1))",
        "<<E",
        "'$(touch pwned)'",
        "\\'",
        "\"'",
        "x" * 45,
        "uivlm-done",
        "echo",
        "=",
        "a=b",
        "é",
        "😀",
    ),
)


def texts(seed: int, number: int) -> list[str]:
    """Hostile fragments in any order, and plain noise. A tenth is beyond ASCII."""
    draw = random.Random(seed)
    noise = [chr(code) for code in range(32, 127)] + ["\n", "%s", "'", '"', "\\", "$", "`"] * 4
    ascii_only = [each for each in FRAGMENTS if each.isascii()]
    kinds = (FRAGMENTS, ascii_only, ascii_only, noise)
    found = [*HOSTILE, *BEYOND_ASCII]
    while len(found) < number:
        found.append("".join(draw.choices(draw.choice(kinds), k=draw.randrange(1, 30))))
    return found


# -- through the real adb ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE)
def test_typed_text_arrives_unchanged(wired, text):
    device, phone, shell = wired
    device.perform(Keys(text))
    assert phone.text == text
    assert {argv[0] for argv in shell.log} == {"input", "echo"}  # nothing else was run


def test_hundreds_of_texts_arrive_unchanged(wired):
    device, phone, shell = wired
    for text in texts(3, 250):
        phone.text = ""
        device.perform(Keys(text))
        assert phone.text == text
    assert {argv[0] for argv in shell.log} == {"input", "echo", "am", "ime", "settings"}
    assert {argv for argv in shell.log if argv[0] == "echo"} == {("echo", "uivlm-done")}


@pytest.mark.parametrize("text", BEYOND_ASCII)
def test_text_beyond_ascii_goes_through_the_broadcast(wired, text):
    device, phone, shell = wired
    device.perform(Keys(text))
    assert phone.text == text
    assert shell.settings["secure", "default_input_method"] == LATIN_KEYBOARD  # the user's keyboard again
    assert not any(argv[:2] == ("input", "text") for argv in shell.log)


def test_the_keyboard_is_restored_when_typing_fails(wired):
    device, phone, shell = wired
    phone.broken = DeviceError("the field refuses")
    with pytest.raises(DeviceError, match="the field refuses"):
        device.perform(Keys("é"))
    assert ("ime", "set", ADB_KEYBOARD) in shell.log
    assert shell.settings["secure", "default_input_method"] == LATIN_KEYBOARD


def test_a_missing_keyboard_is_one_sentence(adb):
    with phone_on(adb, keyboards=(LATIN_KEYBOARD,)) as (device, phone, _):
        with pytest.raises(DeviceError, match="needs the app ADBKeyboard"):
            device.perform(Keys("naïve"))
        with pytest.raises(DeviceError, match="surrogate"):
            device.perform(Keys("\ud800"))
        assert phone.gestures == []


def test_a_text_is_never_half_typed_by_a_refusal(adb):
    with phone_on(adb, Faults(refuses=True)) as (device, phone, _):
        with pytest.raises(DeviceError, match="refuses input"):
            device.perform(Keys("x" * 3000))
        assert phone.text == ""


# -- through a real mksh -----------------------------------------------------------------------------------------

MKSH = shutil.which("mksh")
needs_mksh = pytest.mark.skipif(MKSH is None, reason="mksh, Android's shell, is not installed")


class Heard:
    """An adb that keeps every line of shell it is given, and answers as a phone with ADBKeyboard."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        _, _, shell, line = arguments
        assert shell == "shell"
        self.lines.append(line)
        answer = ADB_KEYBOARD if line.startswith("ime list") else LATIN_KEYBOARD
        return subprocess.CompletedProcess(arguments, 0, f"{answer}\nuivlm-done\n".encode(), b"")

    def take(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines


# Each command says what it got, without a program of its own: \1 between words, \2 after the last.
NAMES = ("input", "am", "ime", "settings", "echo")
SHOW = "".join(
    f"{name}() {{ typeset IFS=$'\\x01'; print -rn -- \"{name}$IFS$*\"$'\\x02'; }}\n" for name in NAMES
)


def ran(lines: list[str], folder: Path) -> list[list[str]]:
    """The commands that a real mksh makes of these lines, as words."""
    script = folder / "lines.sh"
    script.write_text(SHOW + "\n".join(lines) + "\n", "utf-8", errors="surrogateescape")
    done = subprocess.run([MKSH, script], capture_output=True, cwd=folder, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, b"")
    calls = done.stdout.decode().split("\x02")
    assert calls.pop() == ""
    return [call.split("\x01") for call in calls]


def android_types(calls: list[list[str]]) -> Iterator[str]:
    """What a phone does with commands: the first word of `input text`, each `%s` a space; keys; base64."""
    for call in calls:
        match call:
            case ["input", "text", text]:
                assert text
                yield text.replace("%s", " ")
            case ["input", "keyevent", "66"]:
                yield "\n"
            case [
                "am",
                "broadcast",
                "-p",
                "com.android.adbkeyboard",
                "-a",
                "ADB_INPUT_B64",
                "--es",
                "msg",
                text,
            ]:
                yield base64.b64decode(text, validate=True).decode()
            case ["echo", "uivlm-done"] | ["ime", *_] | ["settings", "get", "secure", "default_input_method"]:
                pass
            case _:
                raise AssertionError(f"nobody asked for {call}")


@needs_mksh
def test_ten_thousand_texts_arrive_and_nothing_is_run(tmp_path):
    heard = Heard()
    device = AdbDevice(Link("R5", heard), AT_ONCE)
    every = texts(11, 10_000)
    assert sum("touch pwned" in text for text in every) > 3000
    assert sum(typed(text) is None for text in every) > 500
    for start in range(0, len(every), 1000):
        batch, lines = every[start : start + 1000], []
        for text in batch:
            device.perform(Keys(text))
            lines += [*heard.take(), "echo NEXT"]
        calls = ran(lines, tmp_path)
        arrived: list[str] = []
        while calls:
            end = calls.index(["echo", "NEXT"])
            arrived.append("".join(android_types(calls[:end])))
            del calls[: end + 1]
        assert arrived == batch
    assert [path.name for path in tmp_path.iterdir()] == ["lines.sh"]  # no `touch` was run, no `>` was obeyed


@needs_mksh
@pytest.mark.parametrize("quote", ['"', "", "\\"])
def test_other_quoting_would_have_been_seen(tmp_path, quote):
    """The test above can fail: as others quote, a command runs."""
    lines = [f"input text {quote}$(touch pwned){quote}"] if quote != "\\" else ["input text \\\\;touch pwned"]
    ran(lines, tmp_path)
    assert (tmp_path / "pwned").exists()


@needs_mksh
def test_a_real_mksh_reads_the_same_words_as_the_simulated_shell(tmp_path):
    draw = random.Random(5)
    letters = [chr(code) for code in range(3, 127) if code != 13] + list("'\"\\$` ") * 8 + ["é", "😀"]
    words = [*HOSTILE, *("".join(draw.choices(letters, k=draw.randrange(30))) for _ in range(500))]
    every = [["input", "text", word] for word in words]
    lines = [quoted(tuple(each)) for each in every]
    assert ran(lines, tmp_path) == every
    assert [list(command.argv) for command in commands("\n".join(lines))] == every
