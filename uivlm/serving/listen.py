"""Listening sockets of this machine's servers: open one, name its URL, run a server in a thread."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

LOOPBACK_HOSTS = ("127.0.0.1", "localhost")


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
