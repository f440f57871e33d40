"""Requests to the server that httpx would not send: heads and bodies without their end."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

JSON_HEAD = b"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@contextmanager
def line(url: str, *sent: bytes, address: str = "127.0.0.1") -> Iterator[socket.socket]:
    """A connection on which this was sent. `address`: the client's own, of this machine."""
    parts = urlsplit(url)
    target = (parts.hostname or "", parts.port or 0)
    with socket.create_connection(target, timeout=10, source_address=(address, 0)) as connection:
        for data in sent:
            connection.sendall(data)
        yield connection


def unfinished_body(body: bytes) -> bytes:
    """A request whose body has one byte more."""
    return JSON_HEAD + b"Content-Length: %d\r\n\r\n" % (len(body) + 1) + body


def answer(connection: socket.socket) -> bytes:
    """A whole answer; nothing if the server closed the connection."""
    data = b""
    with suppress(ConnectionResetError):
        while not _is_whole(data) and (more := connection.recv(1 << 16)):
            data += more
    return data


def _is_whole(data: bytes) -> bool:
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    return length is not None and len(body) >= int(length[1])
