"""How this process keeps memory that was freed: one function."""

import ctypes
from functools import lru_cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # mallopt's numbers in glibc's malloc.h
KEPT = 64 << 20  # bytes at the end of the heap


@lru_cache(maxsize=1)
def hold_freed() -> None:
    """Let the C library keep up to 64 MiB for the next screen, instead of giving it back after each: a page that comes
    anew from the system is cleared first, and a raw screen has hundreds. No effect where the library is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(TRIM_THRESHOLD, KEPT)
        mallopt(MMAP_THRESHOLD, KEPT // 2)
