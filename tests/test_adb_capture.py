"""Screenshots through the real adb: the very pixels, by the way that works; and when a display is still."""

import io
import struct
import time

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("adbutils", reason="adb comes in adbutils' wheel")

from phones import FakePhone, phone_on

from uivlm.actions.gesture import Button
from uivlm.devices.adb import AdbDevice
from uivlm.devices.capture import COMMANDS, BadFrameError, from_png, from_raw
from uivlm.devices.device import DeviceError
from uivlm.devices.settle import AT_ONCE, Settle, is_still, still_frame
from uivlm.devices.sim.faults import Faults
from uivlm.devices.sim.shell import Shell
from uivlm.episode import Screen

PIXELS = np.random.default_rng(5).integers(0, 256, (40, 30, 3), dtype=np.uint8)
RGBA = np.dstack([PIXELS, np.full((40, 30), 255, np.uint8)]).tobytes()


def png(pixels: np.ndarray = PIXELS) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def ways(shell: Shell) -> list[str]:
    return ["png" if argv[1:] else "raw" for argv in shell.log if argv[0] == "screencap"]


def test_a_screenshot_has_the_very_pixels(wired):
    device, phone, _ = wired
    for _ in range(2):
        seen = device.screen().pixels
        assert seen.dtype == np.uint8
        assert np.array_equal(seen, phone.pixels)


@pytest.mark.parametrize(("slow", "kept"), [("raw", "png"), ("png", "raw")])
def test_the_faster_way_is_kept(adb, slow, kept):
    with phone_on(adb, Faults(slow={slow: 0.3})) as (device, phone, shell):
        for _ in range(3):
            assert np.array_equal(device.screen().pixels, phone.pixels)
        assert ways(shell) == ["png", "raw", kept, kept]
        assert device.camera.way == kept
        assert device.camera.ms[slow] > 300


@pytest.mark.parametrize(("bad", "kept"), [("raw", "png"), ("png", "raw")])
def test_the_way_that_works_is_kept(adb, bad, kept):
    with phone_on(adb, Faults(cut=(bad,), slow={kept: 0.1})) as (device, phone, shell):
        assert np.array_equal(device.screen().pixels, phone.pixels)
        assert device.camera.way == kept
        assert ways(shell) == ["png", "raw"]


def test_a_way_that_stops_working_is_left(wired):
    device, phone, shell = wired
    device.screen()
    before = device.camera.way
    other = "png" if before == "raw" else "raw"
    shell.faults.cut = (before,)
    assert np.array_equal(device.screen().pixels, phone.pixels)
    assert device.camera.way == other
    assert ways(shell)[2:] == [before, before, other]
    shell.faults.cut = ("raw", "png")
    for _ in range(2):
        with pytest.raises(DeviceError, match="no whole screenshot"):
            device.screen()
    shell.faults.cut = ()
    assert np.array_equal(device.screen().pixels, phone.pixels)


def test_no_way_at_all_is_one_sentence(adb):
    with phone_on(adb, Faults(cut=("raw", "png"))) as (device, _, shell):
        with pytest.raises(DeviceError, match="no whole screenshot: .* is it awake"):
            device.screen()
        assert ways(shell) == ["png", "raw"] * 2


def test_a_bad_frame_is_taken_again(wired):
    device, phone, _ = wired
    device.screen()
    whole = device.link.ask_bytes(*COMMANDS[device.camera.way])
    genuine = device.link

    class Once:
        """Gives one bad answer."""

        serial = genuine.serial

        def __init__(self, bad: bytes) -> None:
            self.answers = [bad]

        def ask_bytes(self, *words: str) -> bytes:
            return self.answers.pop() if self.answers else genuine.ask_bytes(*words)

    way = device.camera.way
    for bad in (b"", whole[:-20], b"\0" * 50, whole[8:], whole + b"x"):
        device.camera.link = Once(bad)
        assert np.array_equal(device.screen().pixels, phone.pixels)
        assert device.camera.way == way


def test_large_screens(adb):
    phone = FakePhone(700, 900)  # 2.5 MB raw: many packets
    with phone_on(adb, phone=phone) as (device, _, _):
        for way in COMMANDS:
            device.camera.way = way
            assert np.array_equal(device.screen().pixels, phone.pixels)
            assert device.camera.way == way


@pytest.mark.parametrize("header", [12, 16])
def test_raw_screens_of_old_and_new_androids(header):
    head = struct.pack("<IIII", 30, 40, 1, 0x08820000)[:header]
    assert np.array_equal(from_raw(head + RGBA), PIXELS)


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
def test_what_is_no_raw_screen(data):
    with pytest.raises(BadFrameError):
        from_raw(data)


def test_a_png_may_come_after_a_warning():
    """As from phones with two displays."""
    for before in (b"", b"[Warning] Multiple displays were found, but no display id was specified!\n"):
        assert np.array_equal(from_png(before + png() + b"\r\n"), PIXELS)


@pytest.mark.parametrize(
    "data", [b"", png()[:-20], png()[8:], b"x" * 2000 + png(), png()[:60] + bytes(40) + png()[100:]]
)
def test_what_is_no_png(data):
    with pytest.raises(BadFrameError):
        from_png(data)


def test_a_picture_larger_than_memory_is_refused():
    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    from zlib import crc32

    chunk = b"IHDR" + head
    bomb = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", crc32(chunk)) + png()[33:]
    with pytest.raises(BadFrameError, match="damaged"):
        from_png(bomb)


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
    phone = Moving(5)
    with phone_on(adb, phone=phone) as (plain, _, _):
        device = AdbDevice(plain.link, Settle(0.0, 0.0, 20.0))
        assert np.array_equal(device.screen().pixels, phone.pixels)
    assert phone.frames == -1  # one frame more than the first still one
    assert device.last_wait.settled
    assert device.last_wait.frames == 5  # the first was taken both ways


def test_a_screen_that_never_stops_is_taken_at_the_limit(adb):
    with phone_on(adb, phone=Moving(10**9)) as (plain, _, _):
        device = AdbDevice(plain.link, Settle(0.0, 0.01, 0.3))
        device.screen()
        assert not device.last_wait.settled
        assert 0.3 <= device.last_wait.waited_s < 10
        assert device.last_wait.frames >= 2
        assert AdbDevice(plain.link, AT_ONCE).last_wait is None


def test_what_a_gesture_starts_has_time_to_begin(wired):
    device = AdbDevice(wired[0].link, Settle(20.0, 0.0, 0.01))
    device.screen()
    assert device.last_wait.waited_s < 15  # nothing was touched before
    device.settle = Settle(0.3, 0.0, 0.01)
    device.perform(Button("back"))
    touched = time.monotonic()
    device.screen()
    assert time.monotonic() - touched >= 0.29


def test_frames_are_so_far_apart():
    times: list[float] = []

    def frame() -> np.ndarray:
        times.append(time.monotonic())
        return np.full((50, 50, 3), 40 * min(len(times), 3), np.uint8)

    _, wait = still_frame(frame, Settle(0.0, 0.05, 5.0), None)
    assert wait.settled
    assert wait.frames == len(times) == 4
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
