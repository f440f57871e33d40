"""Slots for the work of threads: whoever holds the least memory goes first, so small requests do not wait."""

import heapq
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class FairSlots:
    """A large request takes a slot for each screen, so a small one waits for one screen at most."""

    def __init__(self, num_slots: int) -> None:
        self._num_free = num_slots
        self._waiting: list[tuple[int, int]] = []  # size and order of arrival, a heap
        self._arrivals = itertools.count()
        self._changed = threading.Condition()

    @contextmanager
    def slot(self, size: int) -> Iterator[None]:
        """Wait for a slot; smaller sizes go first, equal ones in order."""
        ticket = (size, next(self._arrivals))
        with self._changed:
            heapq.heappush(self._waiting, ticket)
            self._changed.wait_for(lambda: self._num_free > 0 and self._waiting[0] == ticket)
            heapq.heappop(self._waiting)
            self._num_free -= 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._num_free += 1
                self._changed.notify_all()
