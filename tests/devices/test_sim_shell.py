"""The simulated phone's shell splits lines as mksh does and answers commands as Android does."""

import io
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

from tests.helpers.fake_phone import FakePhone
from uivlm.actions.gesture import PressKey
from uivlm.devices.sim.shell import Shell
from uivlm.devices.sim.shell_parser import ShellSyntaxError, parse_commands

LINES = [
    ("a b  c\td", [("a", "b", "c", "d")]),
    ("a 'b c' \"d e\"f", [("a", "b c", "d ef")]),
    ("a; b && c || d", [("a",), ("b",), ("c",), ("d",)]),
    ("a '' \"\"", [("a", "", "")]),
    (r"""a \' \\ \" '\' "\"\\\$\a" """, [("a", "'", "\\", '"', "\\", '"\\$\\a')]),
    ("a # b\nc", [("a",), ("c",)]),
    ("a b#c", [("a", "b#c")]),
    ("a \\\nb;", [("a", "b")]),
    ("a&&\nb", [("a",), ("b",)]),
    ("", []),
    ("\n\n", []),
]


@pytest.mark.parametrize(("line", "argvs"), LINES)
def test_lines_are_split_as_a_shell_splits_them(line, argvs):
    assert [command.argv for command in parse_commands(line)] == argvs


@pytest.mark.parametrize(
    "line",
    [
        "a 'b",
        'a "b',
        "a $b",
        "a `b`",
        'a "$(b)"',
        "a | b",
        "a & b",
        "a > b",
        "a *",
        "a ~",
        "a {b,c}",
        "&& a",
        "a &&",
        ";",
    ],
)
def test_lines_that_need_a_real_shell_are_refused(line):
    with pytest.raises(ShellSyntaxError):
        parse_commands(line)
    assert Shell(FakePhone()).run(line).returncode == 2


def test_command_sequences():
    shell = Shell(FakePhone())
    assert (
        shell.run("true && echo 1; false && echo 2; false || echo 3; nonsense || echo 4").stdout
        == b"1\n3\n4\n"
    )
    assert shell.run("nonsense").returncode == 127
    assert shell.run("true; false").returncode == 1


def test_input_text_works_as_on_android():
    phone = FakePhone()
    shell = Shell(phone)
    assert shell.run("input text 'a%sb' ignored").returncode == 0
    assert phone.text == "a b"  # only the first argument; %s is a space
    result = shell.run("input text 'aé'")
    assert result.returncode == 255
    assert b"NullPointerException" in result.stderr
    assert phone.text == "a b"


def test_commands_with_unknown_keys_and_arguments_do_nothing():
    phone = FakePhone()
    shell = Shell(phone)
    for line in (
        "input keyevent 4 9999",
        "input keycombination 113 29",
        "input tap 1",
        "input tap x y",
        "input tap 1e999 1",
        "input swipe 1 1 2 2 -5",
        "input",
        "am start x",
        "am broadcast -a ADB_INPUT_B64 --es msg",
        "ime set nobody/.Keys",
        "wm nonsense",
        "settings get nowhere x",
        "screencap /sdcard/x.png",
    ):
        result = shell.run(line)
        assert result.returncode != 0, line
        assert result.stderr, line
    assert phone.gestures == []
    assert shell.run("input keyevent 224 KEYCODE_HOME 66").returncode == 0
    assert phone.gestures == [PressKey("home"), PressKey("enter")]


def test_a_screencap_of_the_shell_is_a_png():
    phone = FakePhone()
    png = Shell(phone).run("screencap -p").stdout
    assert np.array_equal(np.array(Image.open(io.BytesIO(png))), phone.pixels)


MKSH = shutil.which("mksh")


@pytest.mark.skipif(MKSH is None, reason="mksh, Android's shell, is not installed")
@pytest.mark.parametrize(("line", "argvs"), [case for case in LINES if "||" not in case[0]])
def test_a_real_mksh_splits_the_same_lines(line, argvs):
    show = "".join(f"{name}() {{ printf '%s\\0' {name} \"$@\" END; }}\n" for name in "abcd")
    output = subprocess.run([MKSH, "-c", f"{show}{line}\n"], capture_output=True, check=True).stdout.decode()
    assert output == "".join("\0".join((*argv, "END")) + "\0" for argv in argvs)
