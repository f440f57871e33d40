"""The real adb program on a fake device: what it is told arrives, what fails is said."""

import io
import os
import random
import shutil
import signal
import struct
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("adbutils", reason="adb comes in adbutils' wheel")

from uivlm.actions.gesture import Button, Keys, Touch
from uivlm.devices.adb import ADB_KEYBOARD, AT_ONCE, AdbDevice, Settle, connect, is_still, quoted, typed
from uivlm.devices.adb_server import Adb, own_server
from uivlm.devices.device import DeviceError
from uivlm.devices.sim.adbd import serve
from uivlm.devices.sim.shell import LATIN_KEYBOARD, Shell
from uivlm.devices.sim.shell_words import ShellSyntaxError, commands
from uivlm.episode import Screen

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


class FakePhone:
    """A screen of seeded noise, a field that remembers what is typed, a list of gestures."""

    def __init__(self, width: int = 123, height: int = 271) -> None:
        self.width, self.height = width, height
        self.pixels = np.random.default_rng(7).integers(0, 256, (height, width, 3), dtype=np.uint8)
        self.gestures: list[object] = []
        self.text = ""
        self.broken: Exception | None = None

    def screen(self) -> Screen:
        if self.broken:
            raise self.broken
        return Screen(self.pixels)

    def perform(self, gesture: object) -> None:
        if self.broken:
            raise self.broken
        self.gestures.append(gesture)
        match gesture:
            case Keys(text):
                self.text += text
            case Button("enter"):
                self.text += "\n"


@pytest.fixture(scope="module")
def adb():
    with own_server() as server:
        yield server


@contextmanager
def phone_on(adb: Adb, **options):
    phone = FakePhone()
    shell = Shell(phone, **options)
    with serve(shell) as port:
        yield connect(f"127.0.0.1:{port}", adb, AT_ONCE), phone, shell


@pytest.fixture
def wired(adb):
    with phone_on(adb) as (device, phone, shell):
        yield device, phone, shell


def processes(needle: str) -> dict[int, str]:
    """This machine's processes whose command line holds a text."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it ended while we looked
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if needle in line:
                found[int(path.parent.name)] = line
    return found


def test_a_screenshot_has_the_very_pixels(wired):
    device, phone, _ = wired
    seen = device.screen().pixels
    assert seen.dtype == np.uint8
    assert np.array_equal(seen, phone.pixels)


def test_touches_land_on_the_exact_pixel(wired):
    device, phone, _ = wired
    sent = [
        Touch(((0, 0),), 60),
        Touch(((122, 270),), 60),
        Touch(((61, 17),), 60),
        Touch(((10, 200), (11, 20)), 500),
        Touch(((122, 0), (0, 270)), 1234),
    ]
    for gesture in sent:
        device.perform(gesture)
    assert phone.gestures == sent


def test_a_long_touch_is_no_tap(wired):
    device, phone, shell = wired
    device.perform(Touch(((5, 6),), 900))
    assert phone.gestures == [Touch(((5, 6), (5, 6)), 900)]
    assert shell.log[-1] == ("input", "swipe", "5", "6", "5", "6", "900")


def test_keys(wired):
    device, phone, shell = wired
    for name in ("back", "home", "enter"):
        device.perform(Button(name))
    assert phone.gestures == [Button("back"), Button("home"), Button("enter")]
    assert [argv[2] for argv in shell.log] == ["4", "3", "66"]


@pytest.mark.parametrize("text", HOSTILE)
def test_typed_text_arrives_unchanged(wired, text):
    device, phone, shell = wired
    device.perform(Keys(text))
    assert phone.text == text
    assert {argv[0] for argv in shell.log} == {"input"}  # nothing else was run


def test_random_typed_text_arrives_unchanged(wired):
    device, phone, _ = wired
    draw = random.Random(3)
    letters = [chr(code) for code in range(32, 127)] + ["\n", "%s", "s", "%", "'", '"', "\\", "$"] * 4
    for _ in range(12):
        phone.text = ""
        text = "".join(draw.choices(letters, k=draw.randrange(1, 300)))
        device.perform(Keys(text))
        assert phone.text == text


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


def test_refused_injection_is_one_sentence(adb):
    with phone_on(adb, injection=False) as (device, phone, _):
        for gesture in (Touch(((1, 1),), 60), Keys("a"), Button("back")):
            with pytest.raises(DeviceError, match=r"USB debugging \(Security settings\)"):
                device.perform(gesture)
        assert phone.gestures == []
        assert device.screen().pixels.shape == (271, 123, 3)


def test_a_dead_phone_raises(adb):
    with ExitStack() as stack:
        device, phone, _ = stack.enter_context(phone_on(adb))
        device.screen()
        stack.close()
        for do in (
            device.screen,
            lambda: device.perform(Touch(((1, 1),), 60)),
            lambda: device.perform(Keys("a")),
        ):
            with pytest.raises(DeviceError, match="is gone"):
                do()
    assert phone.gestures == []


def test_a_phone_that_fails_inside_answers(wired):
    device, phone, _ = wired
    for broken in (StopIteration("x"), KeyError("y"), RuntimeError("z"), DeviceError("w")):
        phone.broken = broken
        with pytest.raises(DeviceError, match="screenshot"):
            device.screen()
        with pytest.raises(DeviceError, match="failed"):
            device.perform(Button("back"))
    phone.broken = None
    assert np.array_equal(device.screen().pixels, phone.pixels)


def test_a_touch_off_the_screen_raises(wired):
    device, phone, _ = wired
    for at in ((-1, 5), (123, 5), (5, 271)):
        with pytest.raises(DeviceError, match="outside"):
            device.perform(Touch((at,), 60))
    with pytest.raises(DeviceError, match="one or two points"):
        device.perform(Touch(((1, 1), (2, 2), (3, 3)), 60))
    assert phone.gestures == []


def test_a_cut_screenshot_is_tried_once_more(wired, monkeypatch):
    device, phone, _ = wired
    whole = device._capture()
    for bad in (b"", whole[:-20], b"\0" * 50, whole[8:]):
        answers = [bad, whole]
        monkeypatch.setattr(device, "_capture", lambda answers=answers: answers.pop(0))
        assert np.array_equal(device.screen().pixels, phone.pixels)
        answers = [bad, bad]
        monkeypatch.setattr(device, "_capture", lambda answers=answers: answers.pop(0))
        with pytest.raises(DeviceError, match="no whole screenshot"):
            device.screen()


def test_large_screens_and_raw_ones(adb):
    phone = FakePhone(700, 900)  # 2.5 MB raw: many packets
    with serve(phone) as port:
        device = connect(f"127.0.0.1:{port}", adb, AT_ONCE)
        assert np.array_equal(device.screen().pixels, phone.pixels)
        raw = adb.run("-s", device.serial, "exec-out", "screencap").stdout
    assert struct.unpack("<III", raw[:12]) == (700, 900, 1)
    rgba = np.frombuffer(raw[16:], np.uint8).reshape(900, 700, 4)
    assert np.array_equal(rgba[..., :3], phone.pixels)
    assert (rgba[..., 3] == 255).all()


def test_commands_at_once_do_not_mix(wired):
    device, _, _ = wired
    said: list[str] = []
    threads = [
        threading.Thread(target=lambda i=i: said.append(device.shell("echo", str(i) * 5000)))
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == [f"{str(i) * 5000}\n" for i in range(8)]


def test_what_a_shell_answers(wired):
    device, _, _ = wired
    assert device.shell("wm", "size") == "Physical size: 123x271\n"
    assert device.shell("getprop", "ro.build.version.sdk").strip().isdigit()
    with pytest.raises(DeviceError, match="127"):
        device.shell("rm", "-rf", "/")
    with pytest.raises(DeviceError, match="127"):
        device.shell("sh", "-c", "id")


# -- which phone -------------------------------------------------------------------------------------------------


def test_no_phone_several_phones_and_the_wrong_one():
    with own_server() as adb, ExitStack() as stack:
        with pytest.raises(DeviceError, match="no phone is connected"):
            connect(adb=adb)
        ports = [stack.enter_context(serve(FakePhone())) for _ in range(2)]
        connect(f"127.0.0.1:{ports[0]}", adb)
        assert connect(adb=adb).serial == f"127.0.0.1:{ports[0]}"
        connect(f"127.0.0.1:{ports[1]}", adb)
        with pytest.raises(DeviceError, match=r"2 phones are connected: name one of 127\.0\.0\.1"):
            connect(adb=adb)
        with pytest.raises(DeviceError, match="no phone R5CT is connected"):
            connect("R5CT", adb)
        with pytest.raises(DeviceError, match=r"no phone answers at 127\.0\.0\.1:1:"):
            connect("127.0.0.1:1", adb)


@pytest.mark.parametrize(
    ("listed", "sentence"),
    [
        (b"R5\tunauthorized\n", "does not trust this computer"),
        (b"R5\toffline\n", "is offline: plug it in again"),
    ],
)
def test_a_phone_that_is_not_ready(listed, sentence):
    class Listing:
        def run(self, *arguments):
            return subprocess.CompletedProcess(arguments, 0, b"List of devices attached\n" + listed, b"")

    with pytest.raises(DeviceError, match=sentence):
        connect("R5", Listing())


def test_a_hanging_adb_raises():
    with pytest.raises(DeviceError, match=r"no answer within 0\.2 s"):
        Adb(shutil.which("sleep"), timeout_s=0.2).run("20")
    with pytest.raises(DeviceError, match="cannot be started"):
        Adb("/nonexistent/adb").run("devices")


# -- servers end -------------------------------------------------------------------------------------------------


def test_no_server_and_no_thread_is_left():
    threads = threading.active_count()
    with own_server() as adb:
        port, home = adb.options[-1], adb.environment["HOME"]
        with serve(FakePhone()) as phone_port:
            connect(f"127.0.0.1:{phone_port}", adb, AT_ONCE).screen()
        assert len(processes(f"tcp:localhost:{port}")) == 1
    assert processes(f"tcp:localhost:{port}") == {}
    assert not os.path.exists(home)
    assert threading.active_count() == threads


def test_a_client_whose_server_died_starts_no_stray_one():
    with own_server() as adb:
        port = adb.options[-1]
        (pid,) = processes(f"tcp:localhost:{port}")
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # own_server still has to take leave of it
        try:
            with pytest.raises(DeviceError, match="cannot connect"):
                AdbDevice("127.0.0.1:9", adb, AT_ONCE).screen()
            time.sleep(0.3)
            assert processes(f":{port} ") == {}
        finally:
            for stray in processes(f"-L tcp:{port} "):
                os.kill(stray, signal.SIGKILL)


def test_a_server_of_our_own_ends_with_an_error_too():
    ports = []

    def interrupted() -> None:
        with own_server() as adb:
            ports.append(adb.options[-1])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert processes(f"tcp:localhost:{ports[0]}") == {}


def test_adbd_hangs_up_on_who_does_not_speak_adb():
    import socket

    with serve(FakePhone()) as port:
        for noise in (
            b"GET / HTTP/1.1\r\n\r\n" + b"x" * 100,
            struct.pack("<6I", 1, 2, 3, 1 << 31, 5, 1 ^ 0xFFFFFFFF),
        ):
            with socket.create_connection(("127.0.0.1", port), 5) as line:
                line.sendall(noise)
                line.settimeout(5)
                with suppress(ConnectionResetError):
                    assert line.recv(10) == b""


# -- settling ----------------------------------------------------------------------------------------------------


class Moving(FakePhone):
    """Shows something else for a number of frames."""

    def __init__(self, frames: int) -> None:
        super().__init__()
        self.frames = frames

    def screen(self) -> Screen:
        self.frames -= 1
        return Screen(np.full_like(self.pixels, 10 * (self.frames % 20)) if self.frames > 0 else self.pixels)


def test_the_screen_is_taken_when_it_is_still(adb):
    phone = Moving(4)
    with serve(phone) as port:
        device = connect(f"127.0.0.1:{port}", adb, Settle(0.0, 0.0, 20.0))
        assert np.array_equal(device.screen().pixels, phone.pixels)
    assert phone.frames == -1  # one frame more than the first still one


def test_a_screen_that_never_stops_is_taken_at_the_limit(adb):
    with serve(Moving(10**9)) as port:
        device = connect(f"127.0.0.1:{port}", adb, Settle(0.0, 0.01, 0.2))
        began = time.monotonic()
        device.screen()
        assert 0.2 <= time.monotonic() - began < 10


def test_still():
    frame = np.full((400, 200, 3), 128, np.uint8)
    clock, caret, page = frame.copy(), frame.copy(), frame.copy()
    clock[:16] = 0
    caret[200:220, 50:52] = 0
    page[100:300] = 0
    assert is_still(frame, clock)
    assert is_still(frame, caret)
    assert not is_still(frame, page)
    assert not is_still(frame, frame.transpose(1, 0, 2))


# -- words of a shell ----------------------------------------------------------------------------------------------

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
    assert [command.argv for command in commands(line)] == argvs


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
def test_what_needs_a_real_shell_is_refused(line):
    with pytest.raises(ShellSyntaxError):
        commands(line)
    assert Shell(FakePhone()).run(line).code == 2


def test_commands_follow_each_other():
    shell = Shell(FakePhone())
    assert (
        shell.run("true && echo 1; false && echo 2; false || echo 3; nonsense || echo 4").out == b"1\n3\n4\n"
    )
    assert shell.run("nonsense").code == 127
    assert shell.run("true; false").code == 1


def test_input_text_is_androids():
    phone = FakePhone()
    shell = Shell(phone)
    assert shell.run("input text 'a%sb' ignored").code == 0
    assert phone.text == "a b"  # the first argument only, %s is a space
    answer = shell.run("input text 'aé'")
    assert answer.code == 255
    assert b"NullPointerException" in answer.err
    assert phone.text == "a b"


def test_unknown_keys_and_arguments_are_refused_whole():
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
        answer = shell.run(line)
        assert answer.code != 0, line
        assert answer.err, line
    assert phone.gestures == []
    assert shell.run("input keyevent 224 KEYCODE_HOME 66").code == 0
    assert phone.gestures == [Button("home"), Button("enter")]


def test_a_screencap_of_the_shell_is_a_png():
    phone = FakePhone()
    png = Shell(phone).run("screencap -p").out
    assert np.array_equal(np.array(Image.open(io.BytesIO(png))), phone.pixels)


MKSH = shutil.which("mksh")


@pytest.mark.skipif(MKSH is None, reason="mksh, Android's shell, is not installed")
def test_a_real_mksh_reads_the_same_words():
    draw = random.Random(5)
    letters = [chr(code) for code in range(1, 127)] + list("'\"\\$` ") * 8 + ["é", "😀"]
    texts = (
        HOSTILE
        + BEYOND_ASCII[:-1]
        + ["".join(draw.choices(letters, k=draw.randrange(30))) for _ in range(300)]
    )
    every = [("input", "text", text) for text in texts]
    every += [argv for text in HOSTILE for argv in typed(text)]
    script = "".join(f"show {quoted(words)}\n" for words in every)
    said = subprocess.run(
        [MKSH, "-c", "show() { printf '%s\\0' \"$@\" END; }\n" + script], capture_output=True, check=True
    ).stdout.decode()
    assert said == "".join("\0".join((*words, "END")) + "\0" for words in every)
    assert [command.argv for command in commands("\n".join(quoted(words) for words in every))] == every


@pytest.mark.skipif(MKSH is None, reason="mksh, Android's shell, is not installed")
@pytest.mark.parametrize(("line", "argvs"), [case for case in LINES if "||" not in case[0]])
def test_a_real_mksh_splits_the_same_lines(line, argvs):
    show = "".join(f"{name}() {{ printf '%s\\0' {name} \"$@\" END; }}\n" for name in "abcd")
    said = subprocess.run([MKSH, "-c", f"{show}{line}\n"], capture_output=True, check=True).stdout.decode()
    assert said == "".join("\0".join((*words, "END")) + "\0" for words in argvs)
