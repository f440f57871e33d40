"""A connection of a server: its request head must arrive in time, and connections leave room for files.

uvicorn limits neither. Without these limits, silent connections take every file descriptor of the process.
"""

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_TIMEOUT_S = 10.0
MAX_CONNECTIONS = 1024  # where the limit of open files allows as many


def connection_limit() -> int:
    """Half of the process's limit of open files, at most MAX_CONNECTIONS. The rest is for everything else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, soft // 2)


class LimitedConnection(H11Protocol):
    """uvicorn's HTTP/1.1 with a deadline for each head.

    One connection more than `max_connections` closes the one that has waited longest for a head.
    """

    def __init__(self, max_connections: int, **options: Any) -> None:
        super().__init__(**options)
        self.max_connections = max_connections
        self.waiting_since = self.loop.time()
        self._head_timer: asyncio.TimerHandle | None = None

    @property
    def waits_for_head(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()
        if len(self.connections) > self.max_connections:
            self._close_longest_waiting()

    def on_response_complete(self) -> None:
        self._expect_head()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
        self.waiting_since = self.loop.time()
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._close_if_waiting)

    def _close_if_waiting(self) -> None:
        if self.waits_for_head:
            self.transport.abort()  # a client that does not read its answer could delay a `close`

    def _close_longest_waiting(self) -> None:
        connections = [each for each in self.connections if isinstance(each, LimitedConnection)]
        opened = [each for each in connections if not each.transport.is_closing()]
        if len(opened) > self.max_connections:  # this connection waits, too
            waiting = (each for each in opened if each.waits_for_head)
            min(waiting, key=lambda each: each.waiting_since).transport.abort()
