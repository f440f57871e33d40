"""Servers of this machine: open a listening socket, name its URL, run a server with limits on connections."""

import asyncio
import errno
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from uivlm.serving.connections import LimitedConnection, connection_limit

log = logging.getLogger(__name__)

LOOPBACK_HOSTS = ("127.0.0.1", "localhost")
BACKLOG = 128  # connections that asyncio accepts before it looks at any of them
REPORT_INTERVAL_S = 60  # between two lines of the log on the limit of open files


class LimitedServer(uvicorn.Server):
    """A server of an application: it stops within 5 s, and its connections have limits."""

    def __init__(self, app: ASGIApp) -> None:
        limit = connection_limit()
        super().__init__(
            uvicorn.Config(
                app,
                http=partial(LimitedConnection, limit),  # type: ignore[arg-type]
                ws="none",  # another protocol would not have the limits
                backlog=min(BACKLOG, max(1, limit // 4)),
                log_level="warning",
                timeout_graceful_shutdown=5,
                server_header=False,
            )
        )
        self._next_report_s = 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self.report_error)
        await super().startup(sockets)

    def report_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """asyncio reports each connection that it cannot accept; a full disk would be the next fault."""
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)):
            loop.default_exception_handler(context)
        elif loop.time() >= self._next_report_s:
            self._next_report_s = loop.time() + REPORT_INTERVAL_S
            log.error("cannot accept connections: no file descriptor is free; raise the limit (ulimit -n)")


def open_listener(host: str, port: int) -> socket.socket:
    """Port 0 takes a free one. Raises ValueError when the address is not available."""
    try:
        return socket.create_server((host, port), backlog=256)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"cannot listen at {host}:{port}: {reason}; choose another --port") from error


def socket_url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{host}:{port}"


@contextmanager
def run_in_thread(server: uvicorn.Server, name: str) -> Iterator[str]:
    """The URL of the server on a free loopback port; its thread ends with the block."""
    with open_listener(LOOPBACK_HOSTS[0], 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name=name)
        thread.start()
        try:
            yield socket_url(listener)
        finally:
            server.should_exit = True
            thread.join()
