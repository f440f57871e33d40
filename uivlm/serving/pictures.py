"""Picture files that came over a wire: bytes in, pixels out, never more of them than is allowed; and those that came lately."""

import hashlib
import io
import threading
from collections import OrderedDict
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from uivlm.episode import Element, Screen

MOST_PIXELS = 16_000_000  # of one screen; 1440 x 3120 has 4.5 million
MOST_SEEN = 600_000_000  # pixels of all screens of a request: 200 of 1080 x 2400 have 518 million
MOST_SCANS = 100  # of a JPEG: each is unpacked over the whole picture
KEPT = 2 << 30  # bytes of screens that came lately
Codec = Literal["PNG", "JPEG"]


class PictureError(ValueError):
    """This is no such picture; the text goes on after the name of what was read: "is damaged: ..."."""


def read_picture(data: bytes, room: int, *codecs: Codec) -> NDArray[np.uint8]:
    """Pixels uint8 [H, W, 3], at most `room` of them. The size is checked in the file's head, before anything is unpacked."""
    if data.startswith(b"\xff\xd8") and data.count(b"\xff\xda") > MOST_SCANS:
        raise PictureError(f"is a JPEG of more than {MOST_SCANS} scans")
    try:
        image = Image.open(io.BytesIO(data), formats=codecs)
        if not 0 < image.width * image.height <= MOST_PIXELS:
            raise PictureError(f"has {image.width} x {image.height} pixels: at most {MOST_PIXELS} are read")
        if image.width * image.height > room:
            raise PictureError(f"is one too many: all screens may have {MOST_SEEN} pixels together")
        return np.array(image.convert("RGB"))
    except PictureError:
        raise
    except UnidentifiedImageError:
        raise PictureError(f"is no {' or '.join(codecs)}: {len(data)} bytes") from None
    except Image.DecompressionBombError as error:
        raise PictureError(f"has too many pixels: {error}") from None
    except Exception as error:  # a damaged file may raise anything in a decoder
        raise PictureError(f"is damaged: {error or type(error).__name__}") from None


def digest(data: bytes) -> str:
    """By which a picture file is known."""
    return hashlib.sha256(data).hexdigest()


def weight(screen: Screen) -> int:
    """Bytes that it holds, roughly: a text may have four a letter."""
    return screen.pixels.nbytes + 1000 + sum(500 + 4 * (len(e.text) + len(e.kind)) for e in screen.elements)


class Pictures:
    """Screens that came lately, by the digest of their picture file, so that none has to be sent twice. Bounded; the least
    recently used go first. Safe to share by threads."""

    def __init__(self, most: int = KEPT) -> None:
        self.most, self.bytes = most, 0
        self._kept: OrderedDict[str, Screen] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, name: str, elements: tuple[Element, ...]) -> Screen | None:
        """The same object for the same screen: what was computed of it is found again."""
        with self._lock:
            found = self._kept.get(name)
            if found is None:
                return None
            self._kept.move_to_end(name)
            return found if found.elements == elements else Screen(found.pixels, elements)

    def add(self, name: str, screen: Screen) -> None:
        with self._lock:
            old = self._kept.pop(name, None)
            self._kept[name] = screen
            self.bytes += weight(screen) - (0 if old is None else weight(old))
            while self.bytes > self.most:
                self.bytes -= weight(self._kept.popitem(last=False)[1])


class Unpacking:
    """The screens of one request, which may have so many pixels together."""

    def __init__(self, seen: Pictures) -> None:
        self.seen, self.room = seen, MOST_SEEN

    def named(self, name: str, elements: tuple[Element, ...]) -> Screen | None:
        """One that was sent lately. PictureError where all screens are too many pixels."""
        found = self.seen.find(name, elements)
        if found is not None:
            self.room -= found.pixels.size // 3
            if self.room < 0:
                raise PictureError(f"is one too many: all screens may have {MOST_SEEN} pixels together")
        return found

    def sent(self, data: bytes, elements: tuple[Element, ...], *codecs: Codec) -> Screen:
        """One that comes as a file. PictureError."""
        name = digest(data)
        if (found := self.named(name, elements)) is not None:
            return found
        screen = Screen(read_picture(data, self.room, *codecs), elements)
        self.room -= screen.pixels.size // 3
        self.seen.add(name, screen)
        return screen
