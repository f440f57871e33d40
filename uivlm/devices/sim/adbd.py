"""A phone's side of the adb protocol on a loopback port: a device in, the real adb client may connect.

    with serve(device) as port:      # then: adb connect 127.0.0.1:<port>

Only what screens and input need is spoken: `shell:`, `exec:` and `shell,v2`; no keys, no files, no forwarding.
Protocol: AOSP packages/modules/adb, protocol.txt and shell_protocol.h.
"""

import logging
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from uivlm.devices.sim.answer import Answer
from uivlm.devices.sim.faults import Unplug
from uivlm.devices.sim.services import Glass
from uivlm.devices.sim.shell import Shell

log = logging.getLogger(__name__)

HEADER = struct.Struct("<6I")  # command, two arguments, length, sum of bytes, command ^ 0xffffffff
CNXN, OPEN, OKAY, WRTE, CLSE = struct.unpack("<5I", b"CNXNOPENOKAYWRTECLSE")
VERSION = 0x01000001  # from here on the byte sum may be 0
MOST_BYTES = 262144  # of one packet
STDOUT, STDERR, EXIT = 1, 2, 3  # ids of shell_v2 packets
BANNER = (
    b"device::ro.product.name=simulated;ro.product.model=simulated;ro.product.device=simulated;"
    b"features=shell_v2,cmd"
)


class ProtocolError(ValueError):
    """The other side does not speak adb, or breaks its rules."""


@contextmanager
def serve(device: Glass | Shell) -> Iterator[int]:
    """The device on a free loopback port, until the block ends; then all its threads have ended too."""
    shell = device if isinstance(device, Shell) else Shell(device)
    server = _Server(shell)
    listener = threading.Thread(target=server.serve_forever, args=(0.02,), name="adbd")
    listener.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        listener.join()
        server.hang_up()
        server.server_close()  # waits for the connections' threads


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = False
    block_on_close = True
    server_address: tuple[str, int]

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self._lines: set[socket.socket] = set()
        self._plugged_in_at = 0.0  # monotonic seconds
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Connection)

    def hang_up(self) -> None:
        with self._lock:
            for line in self._lines:
                with suppress(OSError):  # the client may have gone first
                    line.shutdown(socket.SHUT_RDWR)

    @property
    def plugged_in(self) -> bool:
        return time.monotonic() >= self._plugged_in_at

    def unplug(self, seconds: float) -> None:
        self._plugged_in_at = time.monotonic() + seconds
        self.hang_up()

    def process_request(self, request, client_address) -> None:  # type: ignore[no-untyped-def]
        with self._lock:
            self._lines.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request) -> None:  # type: ignore[no-untyped-def]
        with self._lock:
            self._lines.discard(request)
        super().shutdown_request(request)


@dataclass(slots=True)
class _Stream:
    """An answer on its way: one packet is in flight until the client says OKAY."""

    remote: int
    left: memoryview


class _Connection(socketserver.BaseRequestHandler):
    server: _Server
    request: socket.socket

    def handle(self) -> None:
        self.streams: dict[int, _Stream] = {}
        self.num_opened = 0
        self.most_bytes = MOST_BYTES
        if not self.server.plugged_in:
            return
        self.request.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )  # else each answer waits 40 ms for an ACK
        try:
            command, _, most_bytes, _ = self._receive()
            if command != CNXN:
                raise ProtocolError("a connection has to begin with CNXN")
            self.most_bytes = max(64, min(MOST_BYTES, most_bytes))
            self._send(CNXN, VERSION, MOST_BYTES, BANNER)
            while True:
                self._answer(*self._receive())
        except (ProtocolError, OSError) as error:
            log.debug("adb connection ended: %s", error)

    def _answer(self, command: int, first: int, second: int, payload: bytes) -> None:
        """`first` and `second` are the client's and our stream id."""
        if command == OPEN:
            self._open(first, payload)
        elif command == OKAY:
            self._flow(second)
        elif command == WRTE and second in self.streams:
            self._send(OKAY, second, first)  # nobody here reads what is typed into a command
        elif command == CLSE:
            self.streams.pop(second, None)

    def _open(self, remote: int, payload: bytes) -> None:
        service, colon, line = payload.rstrip(b"\0").partition(b":")
        kind = service.split(b",")
        if not colon or kind[0] not in (b"shell", b"exec") or not line:
            self._send(CLSE, 0, remote)
            return
        unplug = self._unplug()
        if unplug is not None and not unplug.during:
            self.server.unplug(unplug.back_s)
            return
        answer = self._run(line)
        v2 = b"v2" in kind
        self.num_opened += 1
        said = _shell_v2(answer) if v2 else answer.out + answer.err
        if unplug is not None:
            said = said[: len(said) // 2]
        self.streams[self.num_opened] = _Stream(remote, memoryview(said))
        self._send(OKAY, self.num_opened, remote)
        self._flow(self.num_opened)
        if unplug is not None:
            self.server.unplug(unplug.back_s)

    def _unplug(self) -> Unplug | None:
        """The fault that strikes at this command; it strikes once."""
        shell = self.server.shell
        unplug = shell.faults.unplug
        if unplug is None or unplug.at != len(shell.lines):
            return None
        shell.faults.unplug = None
        return unplug

    def _run(self, line: bytes) -> Answer:
        try:
            return self.server.shell.run(line.decode())
        except Exception as error:  # whatever it is, the client has to get an answer: else it hangs
            log.exception("the simulated phone failed at a command")
            return Answer(err=f"Error: {type(error).__name__}: {error}\n".encode(errors="replace"), code=255)

    def _flow(self, local: int) -> None:
        stream = self.streams.get(local)
        if stream is None:
            return
        if not stream.left:
            del self.streams[local]
            self._send(CLSE, local, stream.remote)
            return
        chunk, stream.left = stream.left[: self.most_bytes], stream.left[self.most_bytes :]
        self._send(WRTE, local, stream.remote, bytes(chunk))

    def _send(self, command: int, first: int, second: int, payload: bytes = b"") -> None:
        total = sum(payload) if command == CNXN else 0
        header = HEADER.pack(command, first, second, len(payload), total, command ^ 0xFFFFFFFF)
        self.request.sendall(header + payload)

    def _receive(self) -> tuple[int, int, int, bytes]:
        command, first, second, length, _, magic = HEADER.unpack(self._read(HEADER.size))
        if magic != command ^ 0xFFFFFFFF:
            raise ProtocolError("a packet's magic number is wrong")
        if length > MOST_BYTES:
            raise ProtocolError(f"a packet of {length} bytes: {MOST_BYTES} is the most")
        return command, first, second, self._read(length)

    def _read(self, length: int) -> bytes:
        parts: list[bytes] = []
        while length:
            part = self.request.recv(min(length, 65536))
            if not part:
                raise ConnectionResetError("the adb client left")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)


def _shell_v2(answer: Answer) -> bytes:
    """stdout, stderr and the exit status as shell_v2 packets."""
    packets = [(STDOUT, answer.out)] if answer.out else []
    if answer.err:
        packets.append((STDERR, answer.err))
    packets.append((EXIT, bytes([answer.code & 255])))
    return b"".join(struct.pack("<BI", kind, len(data)) + data for kind, data in packets)
