"""The memory that requests hold, counted before it is taken: of all requests, and of each client address."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class MemoryLimitError(Exception):
    """A request would hold too much. `status`: 429 if its address holds too much, 503 if all together do."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class MemoryShare:
    """What one request holds: its body as it arrives, its screens as they are decoded, its history."""

    def __init__(self, budget: "MemoryBudget", address: str) -> None:
        self.budget, self.address = budget, address
        self.num_bytes, self.closed = 0, False

    def resize(self, num_bytes: int) -> None:
        """Raises MemoryLimitError, also for a request that has ended: its thread then ends, too."""
        self.budget.resize(self, num_bytes)

    def grow(self, num_bytes: int) -> None:
        self.resize(self.num_bytes + num_bytes)


class MemoryBudget:
    """Thread-safe."""

    def __init__(self, max_bytes: int, max_address_bytes: int) -> None:
        self.max_bytes, self.max_address_bytes = max_bytes, max_address_bytes
        self.num_bytes = 0
        self._by_address: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def share(self, address: str) -> Iterator[MemoryShare]:
        share = MemoryShare(self, address)
        try:
            yield share
        finally:
            with self._lock:
                share.closed = True
                self._add(share, -share.num_bytes)

    def resize(self, share: MemoryShare, num_bytes: int) -> None:
        with self._lock:
            if share.closed:
                raise MemoryLimitError("the request has ended", 503)
            added = num_bytes - share.num_bytes
            if added > 0 and self._by_address[share.address] + added > self.max_address_bytes:
                message = f"requests from {share.address} hold {self._by_address[share.address] >> 20} MiB"
                raise MemoryLimitError(f"{message}; retry after 10 s", 429)
            if added > 0 and self.num_bytes + added > self.max_bytes:
                message = f"server overloaded: requests hold {self.num_bytes >> 20} MiB; retry after 10 s"
                raise MemoryLimitError(message, 503)
            self._add(share, added)

    def _add(self, share: MemoryShare, num_bytes: int) -> None:
        share.num_bytes += num_bytes
        self.num_bytes += num_bytes
        self._by_address[share.address] += num_bytes
        if not self._by_address[share.address]:
            del self._by_address[share.address]
