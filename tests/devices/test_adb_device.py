"""The real adb program on a fake device: gestures arrive, failures are reported."""

import subprocess
import threading
from contextlib import ExitStack

import numpy as np
import pytest

pytest.importorskip("adbutils", reason="adb comes in adbutils' wheel")

from tests.helpers.fake_phone import FakePhone, phone_on
from uivlm.actions.gesture import PressKey, Touch, TypeText
from uivlm.devices.adb.device import connect
from uivlm.devices.adb.link import Link, state_problem
from uivlm.devices.adb.server import private_server
from uivlm.devices.device import DeviceError, InspectableDevice
from uivlm.devices.sim.adbd import serve_adb
from uivlm.devices.sim.faults import Faults


def test_it_is_an_inspectable_device(wired):
    assert isinstance(wired[0], InspectableDevice)


def test_touches_land_on_the_exact_pixel(wired):
    device, phone, _ = wired
    gestures = [
        Touch(((0, 0),), 60),
        Touch(((122, 270),), 60),
        Touch(((61, 17),), 60),
        Touch(((10, 200), (11, 20)), 500),
        Touch(((122, 0), (0, 270)), 12_345),
    ]
    for gesture in gestures:
        device.perform(gesture)
    assert phone.gestures == gestures


def test_a_long_touch_is_not_a_tap(wired):
    device, phone, shell = wired
    device.perform(Touch(((5, 6),), 900))
    assert phone.gestures == [Touch(((5, 6), (5, 6)), 900)]
    assert ("input", "swipe", "5", "6", "5", "6", "900") in shell.command_log


def test_keys(wired):
    device, phone, shell = wired
    for name in ("back", "home", "enter"):
        device.perform(PressKey(name))
    assert phone.gestures == [PressKey("back"), PressKey("home"), PressKey("enter")]
    assert [argv[2] for argv in shell.command_log if argv[0] == "input"] == ["4", "3", "66"]


def test_refused_injection_is_one_sentence(adb):
    with phone_on(adb, Faults(rejects_input=True)) as (device, phone, _):
        for gesture in (Touch(((1, 1),), 60), TypeText("a"), PressKey("back")):
            with pytest.raises(DeviceError, match=r"USB debugging \(Security settings\)"):
                device.perform(gesture)
        assert phone.gestures == []
        assert device.screen().pixels.shape == (271, 123, 3)


def test_a_phone_that_fails_internally_answers(wired):
    device, phone, _ = wired
    for error in (StopIteration("x"), KeyError("y"), RuntimeError("z"), DeviceError("w")):
        phone.error = error
        with pytest.raises(DeviceError, match="screenshot"):
            device.screen()
        with pytest.raises(DeviceError, match="failed"):
            device.perform(PressKey("back"))
    phone.error = None
    assert np.array_equal(device.screen().pixels, phone.pixels)


@pytest.mark.parametrize("with_screenshot", [False, True])
def test_a_touch_off_the_screen_raises(wired, with_screenshot):
    device, phone, _ = wired
    if with_screenshot:
        device.screen()
    for point in ((-1, 5), (123, 5), (5, 271)):
        with pytest.raises(DeviceError, match="outside"):
            device.perform(Touch((point,), 60))
    with pytest.raises(DeviceError, match="one or two points"):
        device.perform(Touch(((1, 1), (2, 2), (3, 3)), 60))
    with pytest.raises(DeviceError, match="got 60000 ms; the maximum is 20000"):
        device.perform(Touch(((1, 1), (2, 2)), 60_000))
    assert phone.gestures == []


def test_a_rotated_screen_is_not_touched(wired):
    device, phone, _ = wired
    device.screen()
    phone.rotate()
    with pytest.raises(DeviceError, match=r"was rotated .*from 123 x 271 to 271 x 123"):
        device.perform(Touch(((120, 20),), 60))
    assert phone.gestures == []
    assert np.array_equal(device.screen().pixels, phone.pixels)
    device.perform(Touch(((270, 20),), 60))  # in pixels of the new screen
    device.perform(PressKey("back"))
    assert phone.gestures == [Touch(((270, 20),), 60), PressKey("back")]


def test_gestures_use_the_size_of_the_screenshot(wired):
    """`wm size`, which also reports the size of the panel, is never queried."""
    device, phone, shell = wired
    device.screen()
    device.perform(Touch(((122, 270),), 60))
    assert phone.gestures == [Touch(((122, 270),), 60)]
    assert not any(argv[0] == "wm" for argv in shell.command_log)


def test_concurrent_commands_do_not_mix(wired):
    device, _, _ = wired
    outputs: list[str] = []
    threads = [
        threading.Thread(target=lambda i=i: outputs.append(device.link.query("echo", str(i) * 5000)))
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outputs) == [f"{str(i) * 5000}\n" for i in range(8)]


def test_several_phones_get_only_their_own_gestures(adb):
    with ExitStack() as stack:
        wired = [stack.enter_context(phone_on(adb, phone=FakePhone(100 + i, 200))) for i in range(3)]
        errors: list[BaseException] = []

        def use(index: int) -> None:
            device, phone, _ = wired[index]
            try:
                for i in range(8):
                    assert np.array_equal(device.screen().pixels, phone.pixels)
                    device.perform(Touch(((index, i),), 60))
                    device.perform(TypeText(f"{index}."))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=use, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        for index, (_, phone, _) in enumerate(wired):
            assert phone.text == f"{index}." * 8
            touches = [gesture for gesture in phone.gestures if isinstance(gesture, Touch)]
            assert touches == [Touch(((index, i),), 60) for i in range(8)]


def test_the_shell_answers(wired):
    link = wired[0].link
    assert link.query("wm", "size") == "Physical size: 123x271\n"
    assert link.query("getprop", "ro.build.version.sdk").strip().isdigit()
    with pytest.raises(DeviceError, match="127"):
        link.query("rm", "-rf", "/")
    with pytest.raises(DeviceError, match="127"):
        link.execute(("sh", "-c", "id"))


def test_a_printed_error_is_an_error_even_with_exit_status_0(wired):
    """As of Androids before 8."""
    link = wired[0].link
    for text in ("Exception occurred while executing", "Error: no such thing"):
        with pytest.raises(DeviceError, match="`echo E.*` failed"):
            link.execute(("echo", text))
        assert link.query("echo", text) == f"{text}\n"  # the output of a query may contain errors


# -- the choice of a phone -----------------------------------------------------------------------------------


def test_no_phone_several_phones_and_the_wrong_one():
    with private_server() as adb, ExitStack() as stack:
        with pytest.raises(DeviceError, match="no phone is connected"):
            connect(adb=adb)
        ports = [stack.enter_context(serve_adb(FakePhone())) for _ in range(2)]
        connect(f"127.0.0.1:{ports[0]}", adb)
        assert connect(adb=adb).serial == f"127.0.0.1:{ports[0]}"
        connect(f"127.0.0.1:{ports[1]}", adb)
        with pytest.raises(DeviceError, match=r"2 phones are connected: choose one of 127\.0\.0\.1"):
            connect(adb=adb)
        with pytest.raises(DeviceError, match=r"phone R5CT is not connected \(connected: 127"):
            connect("R5CT", adb)
        with pytest.raises(DeviceError, match=r"no phone answers at 127\.0\.0\.1:1:"):
            connect("127.0.0.1:1", adb)


class ScriptedAdb:
    """An adb that answers from a list: exit status, output, error output."""

    def __init__(self, *results: tuple[int, bytes, bytes]) -> None:
        self.results = list(results)
        self.calls: list[tuple[str, ...]] = []

    def run(self, *arguments, stdin=b"", timeout_s=None):
        self.calls.append(arguments)
        return subprocess.CompletedProcess(arguments, *self.results.pop(0))

    def ensure_running(self) -> None:
        pass


def listed(state: str) -> tuple[int, bytes, bytes]:
    return 0, f"List of devices attached\nR5\t{state}\n\n".encode(), b""


NONE = (0, b"List of devices attached\n\n", b"")


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("unauthorized", "does not trust this computer"),
        ("offline", "is offline: reconnect it"),
        ("no permissions (missing udev rules?); see [http://x]", "udev rules"),
        ("recovery", "is in recovery mode: start Android"),
        ("connecting", "is connecting: wait"),
    ],
)
def test_a_phone_that_is_not_ready(state, sentence):
    with pytest.raises(DeviceError, match=sentence):
        connect("R5", ScriptedAdb(listed(state)))
    assert state_problem("R5", "device") is None


# -- a phone that disconnects --------------------------------------------------------------------------------


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
def test_the_link_waits_for_a_phone_on_usb_and_repeats_only_queries(lost):
    done = (0, b"14\nuivlm-done\n", b"")
    adb = ScriptedAdb(lost, NONE, listed("offline"), (0, b"", b""), listed("device"), done)
    assert Link("R5", adb).query("getprop", "x") == "14\n"
    assert len([argv for argv in adb.calls if "shell" in argv]) == 2
    assert ("reconnect", "offline") in adb.calls
    assert not any(argv[0] == "connect" for argv in adb.calls)
    adb = ScriptedAdb(lost)
    with pytest.raises(DeviceError, match="may have been executed, so it is not repeated"):
        Link("R5", adb).execute(("input", "tap", "1", "1"))
    assert len(adb.calls) == 1


def test_a_failure_on_the_phone_is_not_a_disconnection():
    adb = ScriptedAdb((20, b"", b"Error: type not found\n"), listed("device"))
    with pytest.raises(DeviceError, match=r"`am` failed on phone R5 .*20\): Error: type not found"):
        Link("R5", adb).query("am", "x")


def test_a_phone_that_stays_away_is_one_sentence():
    adb = ScriptedAdb((1, b"", b"adb: device 'R5' not found\n"), *[NONE] * 99)
    with pytest.raises(DeviceError, match="phone R5 is gone: phone R5 is not connected"):
        Link("R5", adb, reconnect_timeout_s=0.3).query("getprop", "x")


def test_a_phone_cannot_write_control_characters_to_the_terminal():
    adb = ScriptedAdb((3, b"", "\x1b[31m\x07 \u202e bad\n".encode()), listed("device"))
    with pytest.raises(DeviceError) as caught:
        Link("R5", adb).query("getprop")
    assert str(caught.value).isprintable()
