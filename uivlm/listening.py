"""A program of ours that listens on this machine: a free or a wished port, its address, and its end with a block."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

LOOPBACK = ("127.0.0.1", "localhost")


def listening(host: str, port: int) -> socket.socket:
    """Port 0 takes a free one. ValueError where it cannot be had."""
    try:
        return socket.create_server((host, port), backlog=256)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"cannot listen at {host}:{port}: {reason}; choose another --port") from error


def url_of(line: socket.socket) -> str:
    host, port = line.getsockname()[:2]
    return f"http://{host}:{port}"


@contextmanager
def in_thread(server: uvicorn.Server, name: str) -> Iterator[str]:
    """The URL of the server on a free port of this machine, in a thread that ends with the block."""
    with listening(LOOPBACK[0], 0) as line:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [line]}, name=name)
        thread.start()
        try:
            yield url_of(line)
        finally:
            server.should_exit = True
            thread.join()
