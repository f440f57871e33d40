"""Images of requests: bytes in, screens out, never more pixels than the limits; and a cache of screens."""

import base64
import binascii
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from uivlm.episodes.episode import Element, Screen
from uivlm.episodes.images import ImageSizeError, open_image
from uivlm.serving.memory import MemoryLimitError

MAX_REQUEST_PIXELS = 600_000_000  # of all screens of a request: 200 of 1080 x 2400 have 518 million
MAX_PIXELS_WITHOUT_KEY = 300_000_000  # of a server that asks nobody for an API key
MAX_JPEG_SCANS = 100  # each is decoded over the whole image
MAX_CACHE_BYTES = 2 << 30
ImageFormat = Literal["PNG", "JPEG"]


class InvalidImageError(ValueError):
    """An image that cannot be read or is too large."""


def decode_base64(text: str) -> bytes:
    """Raises InvalidImageError."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidImageError(f"not valid base64 ({error})") from None


def decode_screen_image(
    data: bytes, reserve: Callable[[int], None], *formats: ImageFormat
) -> NDArray[np.uint8]:
    """Pixels uint8 [H, W, 3]. The size is checked in the file's header, before any pixel is decoded.

    `reserve` gets the number of pixels before that, and raises if they are too many.
    """
    if data.startswith(b"\xff\xd8") and data.count(b"\xff\xda") > MAX_JPEG_SCANS:
        raise InvalidImageError(f"JPEG with more than {MAX_JPEG_SCANS} scans")
    try:
        image = open_image(data, formats)
        reserve(image.width * image.height)
        return np.array(image.convert("RGB"))
    except (InvalidImageError, MemoryLimitError):
        raise
    except ImageSizeError as error:
        raise InvalidImageError(str(error)) from None
    except UnidentifiedImageError:
        names = " or ".join(formats)
        raise InvalidImageError(f"got {len(data)} bytes that are not a {names} image") from None
    except Image.DecompressionBombError as error:
        raise InvalidImageError(f"too many pixels ({error})") from None
    except Exception as error:  # a decoder may raise anything on a damaged file
        raise InvalidImageError(f"damaged image ({error or type(error).__name__})") from None


def digest(data: bytes) -> str:
    """The name of an image file: its SHA-256, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def screen_bytes(screen: Screen) -> int:
    """Approximate memory of a screen: its pixels, its PNG, its elements at four bytes a character."""
    elements = sum(500 + 4 * (len(e.text) + len(e.ui_type)) for e in screen.elements)
    return screen.pixels.nbytes + len(screen._png or b"") + 1000 + elements


class ScreenCache:
    """Recent screens by the digest of their image file, so that a client sends each once.

    Bounded in bytes; the least recently used is dropped first. Thread-safe.
    """

    def __init__(self, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self.max_bytes, self.num_bytes = max_bytes, 0
        self._screens: OrderedDict[str, Screen] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, digest: str, elements: tuple[Element, ...]) -> Screen | None:
        """The same object for the same screen, so that what was computed from it is reused."""
        with self._lock:
            screen = self._screens.get(digest)
            if screen is None:
                return None
            self._screens.move_to_end(digest)
            return screen if screen.elements == elements else replace(screen, elements=elements)

    def add(self, digest: str, screen: Screen) -> None:
        with self._lock:
            old = self._screens.pop(digest, None)
            self._screens[digest] = screen
            self.num_bytes += screen_bytes(screen) - (0 if old is None else screen_bytes(old))
            while self.num_bytes > self.max_bytes:
                self.num_bytes -= screen_bytes(self._screens.popitem(last=False)[1])


class ScreenDecoder:
    """Decodes the screens of one request, at most `max_pixels` together.

    `turn`: heavy work is done within it. `reserve` gets the number of bytes before they are taken.
    """

    def __init__(
        self,
        cache: ScreenCache,
        max_pixels: int = MAX_REQUEST_PIXELS,
        turn: Callable[[], AbstractContextManager[None]] = nullcontext,
        reserve: Callable[[int], None] = lambda num_bytes: None,
    ) -> None:
        self.cache, self.max_pixels, self.num_pixels = cache, max_pixels, 0
        self.turn, self._reserve = turn, reserve

    def find_cached(self, digest: str, elements: tuple[Element, ...]) -> Screen | None:
        """A screen that was sent before. Raises InvalidImageError when the request has too many pixels."""
        screen = self.cache.find(digest, elements)
        if screen is not None:
            self._count(screen.pixels.size // 3)
        return screen

    def decode(self, data: bytes, elements: tuple[Element, ...], *formats: ImageFormat) -> Screen:
        """A screen that is sent as a file. Keeps its PNG. Raises InvalidImageError."""
        name = digest(data)
        if (cached := self.find_cached(name, elements)) is not None:
            return cached
        with self.turn():
            pixels = decode_screen_image(data, self._count_and_reserve, *formats)
        screen = Screen(pixels, elements, _png=data if data.startswith(b"\x89PNG") else None)
        self.cache.add(name, screen)
        return screen

    def _count_and_reserve(self, num_pixels: int) -> None:
        self._count(num_pixels)
        self._reserve(3 * num_pixels)

    def _count(self, num_pixels: int) -> None:
        self.num_pixels += num_pixels
        if self.num_pixels > self.max_pixels:
            raise InvalidImageError(f"the screens of one request exceed {self.max_pixels} pixels together")
