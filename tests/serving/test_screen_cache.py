"""Images within their limits; screens that a request names instead of sending."""

import base64
import io
import json
import zlib

import pytest
from PIL import Image

from tests.helpers.served import small_history, small_screen
from uivlm.actions.schema import SchemaError
from uivlm.episodes.episode import Element
from uivlm.serving.protocol import EncodedScreen, UnknownScreenError, read_history, write_history
from uivlm.serving.screen_cache import (
    InvalidImageError,
    ScreenCache,
    ScreenDecoder,
    decode_screen_image,
    screen_bytes,
)


def test_a_named_screen_is_the_same_object_and_its_elements_are_its_own() -> None:
    cache = ScreenCache()
    first = read_history(write_history(small_history()), ScreenDecoder(cache)).screen
    name = EncodedScreen.from_screen(small_screen(0)).sha256
    body = json.loads(write_history(small_history(), known_digests={name}))
    assert body["screen"] == {"sha256": name, "elements": []}
    assert read_history(json.dumps(body), ScreenDecoder(cache)).screen is first
    assert (
        read_history(write_history(small_history()), ScreenDecoder(cache)).screen is first
    )  # sent again, the same
    body["screen"]["elements"] = [{"y": 0, "x": 0, "height": 1, "width": 1, "text": "a", "ui_type": "TEXT"}]
    other = read_history(json.dumps(body), ScreenDecoder(cache)).screen
    assert other.elements[0].text == "a"
    assert other.pixels is first.pixels
    assert other.png == first.png == small_screen(0).png  # the file that came, not encoded again
    with pytest.raises(UnknownScreenError, match=r"history.screen.sha256: "):
        read_history(json.dumps(body), ScreenDecoder(ScreenCache()))


def test_pictures_are_bounded_and_the_least_used_go_first() -> None:
    size = screen_bytes(small_screen(0))
    cache = ScreenCache(3 * size)
    for i in range(3):
        cache.add(str(i), small_screen(i))
    assert cache.find("0", ()) is not None
    cache.add("3", small_screen(3))
    assert cache.find("1", ()) is None
    assert cache.num_bytes == 3 * size
    assert all(cache.find(name, ()) is not None for name in ("0", "2", "3"))
    cache.add("3", small_screen(3))
    assert cache.num_bytes == 3 * size


def test_texts_of_small_pictures_count_too() -> None:
    cache = ScreenCache(1_000_000)
    for i in range(50):
        cache.add(str(i), small_screen(i, *(Element(0, 0, 1, 1, "x" * 20_000) for _ in range(5))))
    assert 0 < len(cache._screens) <= 2
    assert cache.num_bytes <= 1_000_000


def test_all_screens_together_are_limited() -> None:
    """Those that are sent, and those that are named."""
    cache = ScreenCache()
    read_history(write_history(small_history(2)), ScreenDecoder(cache, 3 * 12 * 9))
    known = {EncodedScreen.from_screen(small_screen(i)).sha256 for i in range(4)}
    with pytest.raises(SchemaError, match=r"history.screen.png: .* 324 pixels"):
        read_history(write_history(small_history(3)), ScreenDecoder(cache, 3 * 12 * 9))
    cache.add(EncodedScreen.from_screen(small_screen(3)).sha256, small_screen(3))
    with pytest.raises(SchemaError, match=r"history.screen.sha256: .* 324 pixels"):
        read_history(write_history(small_history(3), known_digests=known), ScreenDecoder(cache, 3 * 12 * 9))


def chunk(name: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + name + data + zlib.crc32(name + data).to_bytes(4, "big")


def test_a_decoder_that_fails_in_its_own_way_is_a_sentence() -> None:
    png = base64.b64decode(EncodedScreen.from_screen(small_screen(0)).png)
    end = png.index(b"IEND") - 4
    with pytest.raises(InvalidImageError, match="damaged"):
        decode_screen_image(png[:end] + chunk(b"iCCP", b"") + png[end:], lambda _: None, "PNG")


def test_a_jpeg_of_many_scans_is_refused_unread() -> None:
    file = io.BytesIO()
    Image.fromarray(small_screen(0).pixels).save(file, "JPEG", progressive=True)
    data = file.getvalue()
    assert decode_screen_image(data, lambda _: None, "JPEG").shape == (12, 9, 3)
    last = data.rindex(b"\xff\xda")
    with pytest.raises(InvalidImageError, match="more than 100 scans"):
        decode_screen_image(data[:-2] + 100 * data[last:-2] + data[-2:], lambda _: None, "JPEG")
