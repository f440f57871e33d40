"""Screenshots through the real adb: exact pixels, a method that works; and the wait for a still display."""

import io
import struct
import time

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("adbutils", reason="adb comes in adbutils' wheel")

from tests.helpers.fake_phone import FakePhone, phone_on
from uivlm.actions.gesture import PressKey
from uivlm.devices.adb.capture import SCREENCAP_COMMANDS, InvalidFrameError, decode_png, decode_raw
from uivlm.devices.adb.device import AdbDevice
from uivlm.devices.adb.settle import NO_WAIT, SettleTiming, capture_still_frame, is_still
from uivlm.devices.device import DeviceError
from uivlm.devices.sim.faults import Faults
from uivlm.devices.sim.shell import Shell
from uivlm.episodes.episode import Screen
from uivlm.serving.screen_cache import decode_screen_image

PIXELS = np.random.default_rng(5).integers(0, 256, (40, 30, 3), dtype=np.uint8)
RGBA = np.dstack([PIXELS, np.full((40, 30), 255, np.uint8)]).tobytes()


def png(pixels: np.ndarray = PIXELS) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def methods(shell: Shell) -> list[str]:
    return ["png" if argv[1:] else "raw" for argv in shell.command_log if argv[0] == "screencap"]


def test_a_screenshot_has_the_exact_pixels(wired):
    device, phone, _ = wired
    for _ in range(2):
        pixels = device.screen().pixels
        assert pixels.dtype == np.uint8
        assert np.array_equal(pixels, phone.pixels)


@pytest.mark.parametrize("method", ["png", "raw"])
def test_the_screen_keeps_the_png_of_the_phone(wired, method):
    device, phone, shell = wired
    device.screen_capture.method = method
    screen = device.screen()
    if method == "png":
        assert screen.png == shell.run("screencap -p").stdout  # not encoded again
    assert np.array_equal(np.array(Image.open(io.BytesIO(screen.png))), phone.pixels)


@pytest.mark.parametrize(("slow", "kept"), [("raw", "png"), ("png", "raw")])
def test_the_faster_method_is_kept(adb, slow, kept):
    with phone_on(adb, Faults(capture_delay_s={slow: 0.3})) as (device, phone, shell):
        for _ in range(3):
            assert np.array_equal(device.screen().pixels, phone.pixels)
        assert methods(shell) == ["png", "raw", kept, kept]
        assert device.screen_capture.method == kept
        assert device.screen_capture.durations_ms[slow] > 300


@pytest.mark.parametrize(("bad", "kept"), [("raw", "png"), ("png", "raw")])
def test_the_method_that_works_is_kept(adb, bad, kept):
    with phone_on(adb, Faults(truncated_captures=(bad,), capture_delay_s={kept: 0.1})) as (
        device,
        phone,
        shell,
    ):
        assert np.array_equal(device.screen().pixels, phone.pixels)
        assert device.screen_capture.method == kept
        assert methods(shell) == ["png", "raw"]


def test_a_method_that_stops_working_is_left(wired):
    device, phone, shell = wired
    device.screen()
    before = device.screen_capture.method
    other = "png" if before == "raw" else "raw"
    shell.faults.truncated_captures = (before,)
    assert np.array_equal(device.screen().pixels, phone.pixels)
    assert device.screen_capture.method == other
    assert methods(shell)[2:] == [before, before, other]
    shell.faults.truncated_captures = ("raw", "png")
    for _ in range(2):
        with pytest.raises(DeviceError, match="did not send a complete screenshot"):
            device.screen()
    shell.faults.truncated_captures = ()
    assert np.array_equal(device.screen().pixels, phone.pixels)


def test_no_working_method_is_one_sentence(adb):
    with phone_on(adb, Faults(truncated_captures=("raw", "png"))) as (device, _, shell):
        with pytest.raises(DeviceError, match=r"complete screenshot: .*`uivlm doctor`"):
            device.screen()
        assert methods(shell) == ["png", "raw"] * 2


def test_a_bad_frame_is_captured_again(wired):
    device, phone, _ = wired
    device.screen()
    complete = device.link.query_bytes(*SCREENCAP_COMMANDS[device.screen_capture.method])
    link = device.link

    class BadOnce:
        """A link whose first response is bad."""

        serial = link.serial

        def __init__(self, bad: bytes) -> None:
            self.responses = [bad]

        def query_bytes(self, *argv: str) -> bytes:
            return self.responses.pop() if self.responses else link.query_bytes(*argv)

    method = device.screen_capture.method
    for bad in (b"", complete[:-20], b"\0" * 50, complete[8:], complete + b"x"):
        device.screen_capture.link = BadOnce(bad)
        assert np.array_equal(device.screen().pixels, phone.pixels)
        assert device.screen_capture.method == method


def test_large_screens(adb):
    phone = FakePhone(700, 900)  # 2.5 MB raw: many packets
    with phone_on(adb, phone=phone) as (device, _, _):
        for method in SCREENCAP_COMMANDS:
            device.screen_capture.method = method
            assert np.array_equal(device.screen().pixels, phone.pixels)
            assert device.screen_capture.method == method


@pytest.mark.parametrize("header", [12, 16])
def test_raw_screens_of_old_and_new_androids(header):
    head = struct.pack("<IIII", 30, 40, 1, 0x08820000)[:header]
    assert np.array_equal(decode_raw(head + RGBA).pixels, PIXELS)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"Error: cannot open display",
        struct.pack("<III", 30, 40, 1) + RGBA[:-1],
        struct.pack("<III", 30, 40, 1) + RGBA + b"x",
        struct.pack("<IIII", 32, 40, 1, 0) + RGBA,  # rows with padding
        struct.pack("<III", 30, 40, 4) + RGBA[: 30 * 40 * 2],  # RGB_565
        struct.pack("<IIII", 30, 40, 5, 0) + RGBA,  # BGRA
        struct.pack("<IIII", 0, 0, 1, 0),
        struct.pack("<IIII", 1 << 31, 1 << 31, 1, 0) + RGBA,
    ],
)
def test_invalid_raw_screens_are_refused(data):
    with pytest.raises(InvalidFrameError):
        decode_raw(data)


def test_a_png_may_come_after_a_warning():
    """As from phones with two displays."""
    for before in (b"", b"[Warning] Multiple displays were found, but no display id was specified!\n"):
        screen = decode_png(before + png() + b"\r\n")
        assert np.array_equal(screen.pixels, PIXELS)
        assert screen.png == png()


def test_an_rgba_png_is_kept_as_it_is():
    """As Android sends it."""
    file = io.BytesIO()
    Image.frombytes("RGBA", (30, 40), RGBA).save(file, "PNG")
    screen = decode_png(file.getvalue())
    assert np.array_equal(screen.pixels, PIXELS)
    assert screen.png == file.getvalue()
    read_by_server = decode_screen_image(screen.png, lambda num_pixels: None, "PNG")
    assert np.array_equal(read_by_server, PIXELS)


@pytest.mark.parametrize(
    "data", [b"", png()[:-20], png()[8:], b"x" * 2000 + png(), png()[:60] + bytes(40) + png()[100:]]
)
def test_invalid_pngs_are_refused(data):
    with pytest.raises(InvalidFrameError):
        decode_png(data)


def test_a_png_larger_than_memory_is_refused():
    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    from zlib import crc32

    chunk = b"IHDR" + head
    bomb = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", crc32(chunk)) + png()[33:]
    with pytest.raises(InvalidFrameError, match="damaged"):
        decode_png(bomb)


# -- settling ------------------------------------------------------------------------------------------------


def test_the_screen_is_returned_when_it_is_still(adb):
    phone = FakePhone(num_moving_screens=4)
    with phone_on(adb, phone=phone) as (plain, _, _):
        device = AdbDevice(plain.link, SettleTiming(0.0, 0.0, 20.0))
        assert np.array_equal(device.screen().pixels, phone.pixels)
    assert phone.num_screens == 6  # one more than the first still screen
    assert device.last_settle.settled
    assert device.last_settle.num_frames == 5  # the first was taken both ways


def test_a_screen_that_never_settles_is_returned_at_the_timeout(adb):
    with phone_on(adb, phone=FakePhone(num_moving_screens=10**9)) as (plain, _, _):
        device = AdbDevice(plain.link, SettleTiming(0.0, 0.01, 0.3))
        device.screen()
        assert not device.last_settle.settled
        assert 0.3 <= device.last_settle.wait_s < 10
        assert device.last_settle.num_frames >= 2
        assert AdbDevice(plain.link, NO_WAIT).last_settle is None


def test_the_effect_of_a_gesture_has_time_to_start(wired):
    device = AdbDevice(wired[0].link, SettleTiming(20.0, 0.0, 0.01))
    device.screen()
    assert device.last_settle.wait_s < 15  # nothing was touched before
    device.settle_timing = SettleTiming(0.3, 0.0, 0.01)
    device.perform(PressKey("back"))
    touched = time.monotonic()
    device.screen()
    assert time.monotonic() - touched >= 0.29


def test_the_time_between_frames_is_kept():
    times: list[float] = []

    def frame() -> Screen:
        times.append(time.monotonic())
        return Screen(np.full((50, 50, 3), 40 * min(len(times), 3), np.uint8))

    _, wait = capture_still_frame(frame, SettleTiming(0.0, 0.05, 5.0), None)
    assert wait.settled
    assert wait.num_frames == len(times) == 4
    assert all(after - before >= 0.049 for before, after in zip(times, times[1:], strict=False))


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
