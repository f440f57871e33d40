"""The real adb program on a fake device: what it is told arrives, what fails is said."""

import subprocess
import threading
from contextlib import ExitStack

import numpy as np
import pytest

pytest.importorskip("adbutils", reason="adb comes in adbutils' wheel")

from phones import FakePhone, phone_on

from uivlm.actions.gesture import Button, Keys, Touch
from uivlm.devices.adb import connect
from uivlm.devices.adb_link import Link, trouble
from uivlm.devices.adb_server import own_server
from uivlm.devices.device import DeviceError, Telling
from uivlm.devices.sim.adbd import serve
from uivlm.devices.sim.faults import Faults


def test_it_is_a_device_that_tells(wired):
    assert isinstance(wired[0], Telling)


def test_touches_land_on_the_exact_pixel(wired):
    device, phone, _ = wired
    sent = [
        Touch(((0, 0),), 60),
        Touch(((122, 270),), 60),
        Touch(((61, 17),), 60),
        Touch(((10, 200), (11, 20)), 500),
        Touch(((122, 0), (0, 270)), 12_345),
    ]
    for gesture in sent:
        device.perform(gesture)
    assert phone.gestures == sent


def test_a_long_touch_is_no_tap(wired):
    device, phone, shell = wired
    device.perform(Touch(((5, 6),), 900))
    assert phone.gestures == [Touch(((5, 6), (5, 6)), 900)]
    assert ("input", "swipe", "5", "6", "5", "6", "900") in shell.log


def test_keys(wired):
    device, phone, shell = wired
    for name in ("back", "home", "enter"):
        device.perform(Button(name))
    assert phone.gestures == [Button("back"), Button("home"), Button("enter")]
    assert [argv[2] for argv in shell.log if argv[0] == "input"] == ["4", "3", "66"]


def test_refused_injection_is_one_sentence(adb):
    with phone_on(adb, Faults(refuses=True)) as (device, phone, _):
        for gesture in (Touch(((1, 1),), 60), Keys("a"), Button("back")):
            with pytest.raises(DeviceError, match=r"USB debugging \(Security settings\)"):
                device.perform(gesture)
        assert phone.gestures == []
        assert device.screen().pixels.shape == (271, 123, 3)


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


@pytest.mark.parametrize("seen", [False, True])
def test_a_touch_off_the_screen_raises(wired, seen):
    device, phone, _ = wired
    if seen:
        device.screen()
    for at in ((-1, 5), (123, 5), (5, 271)):
        with pytest.raises(DeviceError, match="outside"):
            device.perform(Touch((at,), 60))
    with pytest.raises(DeviceError, match="one or two points"):
        device.perform(Touch(((1, 1), (2, 2), (3, 3)), 60))
    with pytest.raises(DeviceError, match="20000 is the most"):
        device.perform(Touch(((1, 1), (2, 2)), 60_000))
    assert phone.gestures == []


def test_a_turned_screen_is_not_touched(wired):
    device, phone, _ = wired
    device.screen()
    phone.turn()
    with pytest.raises(DeviceError, match=r"was turned .*123 x 271 then, 271 x 123 now"):
        device.perform(Touch(((120, 20),), 60))
    assert phone.gestures == []
    assert np.array_equal(device.screen().pixels, phone.pixels)  # whoever looks again
    device.perform(Touch(((270, 20),), 60))  # may touch again, in the new screen's pixels
    device.perform(Button("back"))
    assert phone.gestures == [Touch(((270, 20),), 60), Button("back")]


def test_an_overridden_size_is_the_screenshots(wired):
    """The pixels of the panel, which `wm size` also tells, are never asked for."""
    device, phone, shell = wired
    device.screen()
    device.perform(Touch(((122, 270),), 60))
    assert phone.gestures == [Touch(((122, 270),), 60)]
    assert not any(argv[0] == "wm" for argv in shell.log)


def test_commands_at_once_do_not_mix(wired):
    device, _, _ = wired
    heard: list[str] = []
    threads = [
        threading.Thread(target=lambda i=i: heard.append(device.link.ask("echo", str(i) * 5000)))
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(heard) == [f"{str(i) * 5000}\n" for i in range(8)]


def test_several_phones_get_only_their_own_gestures(adb):
    with ExitStack() as stack:
        wired = [stack.enter_context(phone_on(adb, phone=FakePhone(100 + i, 200))) for i in range(3)]
        failed: list[BaseException] = []

        def use(number: int) -> None:
            device, phone, _ = wired[number]
            try:
                for i in range(8):
                    assert np.array_equal(device.screen().pixels, phone.pixels)
                    device.perform(Touch(((number, i),), 60))
                    device.perform(Keys(f"{number}."))
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=use, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        for number, (_, phone, _) in enumerate(wired):
            assert phone.text == f"{number}." * 8
            assert [g for g in phone.gestures if isinstance(g, Touch)] == [
                Touch(((number, i),), 60) for i in range(8)
            ]


def test_what_a_shell_answers(wired):
    link = wired[0].link
    assert link.ask("wm", "size") == "Physical size: 123x271\n"
    assert link.ask("getprop", "ro.build.version.sdk").strip().isdigit()
    with pytest.raises(DeviceError, match="127"):
        link.ask("rm", "-rf", "/")
    with pytest.raises(DeviceError, match="127"):
        link.act(("sh", "-c", "id"))


def test_words_of_an_error_are_an_error_even_with_exit_status_0(wired):
    """As of Androids before 8."""
    link = wired[0].link
    for words in ("Exception occurred while executing", "Error: no such thing"):
        with pytest.raises(DeviceError, match="`echo E.*` failed"):
            link.act(("echo", words))
        assert link.ask("echo", words) == f"{words}\n"  # what is only asked may tell of errors


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
        with pytest.raises(DeviceError, match=r"no phone R5CT is connected \(there: 127"):
            connect("R5CT", adb)
        with pytest.raises(DeviceError, match=r"no phone answers at 127\.0\.0\.1:1:"):
            connect("127.0.0.1:1", adb)


class Told:
    """An adb that says what a list says: exit status, output, error output."""

    def __init__(self, *answers: tuple[int, bytes, bytes]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, ...]] = []

    def run(self, *arguments, timeout_s=None):
        self.asked.append(arguments)
        return subprocess.CompletedProcess(arguments, *self.answers.pop(0))

    def revive(self) -> None:
        pass


def listed(state: str) -> tuple[int, bytes, bytes]:
    return 0, f"List of devices attached\nR5\t{state}\n\n".encode(), b""


NONE = (0, b"List of devices attached\n\n", b"")


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("unauthorized", "does not trust this computer"),
        ("offline", "is offline: plug it in again"),
        ("no permissions (missing udev rules?); see [http://x]", "udev rules"),
        ("recovery", "is in recovery mode: start Android"),
        ("connecting", "is connecting: wait"),
    ],
)
def test_a_phone_that_is_not_ready(state, sentence):
    with pytest.raises(DeviceError, match=sentence):
        connect("R5", Told(listed(state)))
    assert trouble("R5", "device") is None


# -- a phone that goes away --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lost",
    [
        (1, b"", b"error: closed\n"),
        (1, b"", b"error: device 'R5' not found\n"),
        (1, b"", b"adb: device offline\n"),
        (255, b"", b""),
        (0, b"", b""),  # an older adb
        (1, b"", b"error: cannot connect to daemon at tcp:127.0.0.1:5: Connection refused\n"),
    ],
)
def test_on_usb_it_is_waited_for_and_only_what_asks_is_repeated(lost):
    adb = Told(lost, NONE, listed("offline"), (0, b"", b""), listed("device"), (0, b"14\nuivlm-done\n", b""))
    assert Link("R5", adb).ask("getprop", "x") == "14\n"
    shells = [words for words in adb.asked if "shell" in words]
    assert len(shells) == 2
    assert ("reconnect", "offline") in adb.asked
    assert not any(words[0] == "connect" for words in adb.asked)
    adb = Told(lost)
    with pytest.raises(DeviceError, match="nobody knows whether that was done, so it is not repeated"):
        Link("R5", adb).act(("input", "tap", "1", "1"))
    assert len(adb.asked) == 1


def test_what_fails_on_the_phone_is_no_loss():
    adb = Told((20, b"", b"Error: type not found\n"), listed("device"))
    with pytest.raises(DeviceError, match=r"`am` failed on phone R5 \(20\): Error: type not found"):
        Link("R5", adb).ask("am", "x")


def test_a_phone_for_ever_away_is_one_sentence():
    adb = Told((1, b"", b"adb: device 'R5' not found\n"), *[NONE] * 99)
    with pytest.raises(DeviceError, match="phone R5 is gone: no phone R5 is connected"):
        Link("R5", adb, patience_s=0.3).ask("getprop", "x")


def test_what_a_phone_says_cannot_write_on_the_terminal():
    adb = Told((3, b"", "\x1b[31m\x07 \u202e bad\n".encode()), listed("device"))
    with pytest.raises(DeviceError) as caught:
        Link("R5", adb).ask("getprop")
    assert str(caught.value).isprintable()
