"""Picture files that came over a wire: bytes in, pixels out, never more of them than is allowed; and those that came lately."""

import hashlib
import io
import struct
import threading
from collections import OrderedDict
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from uivlm.episode import Element, Screen

MOST_PIXELS = 16_000_000  # of one screen; 1440 x 3120 has 4.5 million
KEPT = 512 << 20  # bytes of pixels
Codec = Literal["PNG", "JPEG"]


class PictureError(ValueError):
    """This is no such picture; the text goes on after the name of what was read: "is damaged: ..."."""


def read_picture(data: bytes, *codecs: Codec) -> NDArray[np.uint8]:
    """Pixels uint8 [H, W, 3]. The size is checked in the file's head, before anything is unpacked."""
    named = " or ".join(codecs)
    try:
        image = Image.open(io.BytesIO(data), formats=codecs)
        if not 0 < image.width * image.height <= MOST_PIXELS:
            raise PictureError(f"has {image.width} x {image.height} pixels: at most {MOST_PIXELS} are read")
        return np.array(image.convert("RGB"))
    except UnidentifiedImageError:
        raise PictureError(f"is no {named}: {len(data)} bytes") from None
    except Image.DecompressionBombError as error:
        raise PictureError(f"has too many pixels: {error}") from None
    except (OSError, SyntaxError, struct.error, ValueError) as error:
        if isinstance(error, PictureError):
            raise
        raise PictureError(f"is damaged: {error}") from None


def digest(data: bytes) -> str:
    """By which a picture file is known."""
    return hashlib.sha256(data).hexdigest()


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
            if found.elements != elements:
                found = self._kept[name] = Screen(found.pixels, elements)
            self._kept.move_to_end(name)
            return found

    def add(self, name: str, screen: Screen) -> None:
        with self._lock:
            old = self._kept.pop(name, None)
            self._kept[name] = screen
            self.bytes += screen.pixels.nbytes - (0 if old is None else old.pixels.nbytes)
            while self.bytes > self.most:
                self.bytes -= self._kept.popitem(last=False)[1].pixels.nbytes
