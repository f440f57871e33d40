"""Typed text arrives exactly, and none of it is executed."""

import base64
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("adbutils", reason="adb comes in adbutils' wheel")

from tests.helpers.fake_phone import phone_on
from uivlm.actions.gesture import TypeText
from uivlm.devices.adb.device import AdbDevice
from uivlm.devices.adb.link import Link, shell_join
from uivlm.devices.adb.settle import NO_WAIT
from uivlm.devices.adb.text_input import ADB_KEYBOARD, input_commands
from uivlm.devices.device import DeviceError
from uivlm.devices.sim.faults import Faults
from uivlm.devices.sim.shell import LATIN_KEYBOARD
from uivlm.devices.sim.shell_parser import parse_commands

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


def texts(seed: int, num_texts: int) -> list[str]:
    """Random sequences of hostile fragments, and noise. A tenth is not ASCII."""
    rng = random.Random(seed)
    noise = [chr(code) for code in range(32, 127)] + ["\n", "%s", "'", '"', "\\", "$", "`"] * 4
    ascii_only = [fragment for fragment in FRAGMENTS if fragment.isascii()]
    sources = (FRAGMENTS, ascii_only, ascii_only, noise)
    result = [*HOSTILE, *BEYOND_ASCII]
    while len(result) < num_texts:
        result.append("".join(rng.choices(rng.choice(sources), k=rng.randrange(1, 30))))
    return result


# -- through the real adb ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE)
def test_typed_text_arrives_unchanged(wired, text):
    device, phone, shell = wired
    device.perform(TypeText(text))
    assert phone.text == text
    assert {argv[0] for argv in shell.command_log} == {"input", "echo"}  # nothing else was run


@pytest.mark.slow
def test_hundreds_of_texts_arrive_unchanged(wired):
    device, phone, shell = wired
    for text in texts(3, 250):
        phone.text = ""
        device.perform(TypeText(text))
        assert phone.text == text
    assert {argv[0] for argv in shell.command_log} == {"input", "echo", "am", "ime", "settings"}
    assert {argv for argv in shell.command_log if argv[0] == "echo"} == {("echo", "uivlm-done")}


@pytest.mark.parametrize("text", BEYOND_ASCII)
def test_text_beyond_ascii_goes_through_the_broadcast(wired, text):
    device, phone, shell = wired
    device.perform(TypeText(text))
    assert phone.text == text
    assert shell.settings["secure", "default_input_method"] == LATIN_KEYBOARD  # the user's keyboard again
    assert not any(argv[:2] == ("input", "text") for argv in shell.command_log)


def test_the_keyboard_is_restored_when_typing_fails(wired):
    device, phone, shell = wired
    phone.error = DeviceError("the field refuses")
    with pytest.raises(DeviceError, match=r"`am` failed .* \(exit status 255\): its output .* is not shown"):
        device.perform(TypeText("é"))
    assert ("ime", "set", ADB_KEYBOARD) in shell.command_log
    assert shell.settings["secure", "default_input_method"] == LATIN_KEYBOARD


def test_a_missing_keyboard_is_one_sentence(adb):
    with phone_on(adb, keyboards=(LATIN_KEYBOARD,)) as (device, phone, _):
        with pytest.raises(DeviceError, match="cannot type non-ASCII text.* ADBKeyboard"):
            device.perform(TypeText("naïve"))
        with pytest.raises(DeviceError, match="surrogate"):
            device.perform(TypeText("\ud800"))
        assert phone.gestures == []


def test_a_text_is_never_half_typed_by_a_refusal(adb):
    with phone_on(adb, Faults(rejects_input=True)) as (device, phone, _):
        with pytest.raises(DeviceError, match="rejects input"):
            device.perform(TypeText("x" * 3000))
        assert phone.text == ""


# -- through a real mksh -------------------------------------------------------------------------------------

MKSH = shutil.which("mksh")
needs_mksh = pytest.mark.skipif(MKSH is None, reason="mksh, Android's shell, is not installed")


class RecordingAdb:
    """An adb that keeps every shell line and answers as a phone with ADBKeyboard does."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def run(self, *arguments: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        line = " ".join(arguments[3:]) or stdin.decode().removesuffix("\n")
        assert arguments[2] == "shell"
        self.lines.append(line)
        output = ADB_KEYBOARD if line.startswith("ime list") else LATIN_KEYBOARD
        return subprocess.CompletedProcess(arguments, 0, f"{output}\nuivlm-done\n".encode(), b"")

    def take_lines(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines


# Shell functions that print their arguments: \1 between arguments, \2 after the last.
NAMES = ("input", "am", "ime", "settings", "echo")
SHOW = "".join(
    f"{name}() {{ typeset IFS=$'\\x01'; print -rn -- \"{name}$IFS$*\"$'\\x02'; }}\n" for name in NAMES
)


def run_in_mksh(lines: list[str], folder: Path) -> list[list[str]]:
    """The argument lists of the commands that a real mksh runs for these lines."""
    script = folder / "lines.sh"
    script.write_text(SHOW + "\n".join(lines) + "\n", "utf-8", errors="surrogateescape")
    completed = subprocess.run([MKSH, script], capture_output=True, cwd=folder, stdin=subprocess.DEVNULL)
    assert (completed.returncode, completed.stderr) == (0, b"")
    calls = completed.stdout.decode().split("\x02")
    assert calls.pop() == ""
    return [call.split("\x01") for call in calls]


def android_types(calls: list[list[str]]) -> Iterator[str]:
    """The text that a phone types for these commands: `input text` with `%s` for spaces; keys; base64."""
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
                raise AssertionError(f"unexpected command {call}")


@pytest.mark.slow
@needs_mksh
def test_ten_thousand_texts_arrive_and_nothing_is_run(tmp_path):
    adb = RecordingAdb()
    device = AdbDevice(Link("R5", adb), NO_WAIT)
    all_texts = texts(11, 10_000)
    assert sum("touch pwned" in text for text in all_texts) > 3000
    assert sum(input_commands(text) is None for text in all_texts) > 500
    for start in range(0, len(all_texts), 1000):
        batch, lines = all_texts[start : start + 1000], []
        for text in batch:
            device.perform(TypeText(text))
            lines += [*adb.take_lines(), "echo NEXT"]
        calls = run_in_mksh(lines, tmp_path)
        arrived: list[str] = []
        while calls:
            end = calls.index(["echo", "NEXT"])
            arrived.append("".join(android_types(calls[:end])))
            del calls[: end + 1]
        assert arrived == batch
    assert [path.name for path in tmp_path.iterdir()] == ["lines.sh"]  # no `touch` and no `>` was executed


@needs_mksh
@pytest.mark.parametrize("quote", ['"', "", "\\"])
def test_wrong_quoting_is_detected(tmp_path, quote):
    """With other quoting a command runs, so the test above can fail."""
    lines = [f"input text {quote}$(touch pwned){quote}"] if quote != "\\" else ["input text \\\\;touch pwned"]
    run_in_mksh(lines, tmp_path)
    assert (tmp_path / "pwned").exists()


@needs_mksh
def test_a_real_mksh_reads_the_same_words_as_the_simulated_shell(tmp_path):
    rng = random.Random(5)
    letters = [chr(code) for code in range(3, 127) if code != 13] + list("'\"\\$` ") * 8 + ["é", "😀"]
    args = [*HOSTILE, *("".join(rng.choices(letters, k=rng.randrange(30))) for _ in range(500))]
    commands = [["input", "text", arg] for arg in args]
    lines = [shell_join(tuple(argv)) for argv in commands]
    assert run_in_mksh(lines, tmp_path) == commands
    assert [list(command.argv) for command in parse_commands("\n".join(lines))] == commands
