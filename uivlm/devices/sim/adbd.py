"""A phone's side of the adb protocol on a loopback port: a device in, a port for the real adb client out.

    with serve_adb(device) as port:      # then: adb connect 127.0.0.1:<port>

It implements only what screenshots and input need: `shell:`, `exec:` and `shell,v2`, which also reads
commands from stdin; no keys, files or forwarding. Protocol: AOSP packages/modules/adb, protocol.txt and
shell_protocol.h.
"""

import logging
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from uivlm.devices.sim.faults import UnplugFault
from uivlm.devices.sim.services import SizedDevice
from uivlm.devices.sim.shell import Shell
from uivlm.devices.sim.shell_parser import CommandResult

log = logging.getLogger(__name__)

HEADER = struct.Struct("<6I")  # command, two arguments, length, sum of bytes, command ^ 0xffffffff
CNXN, OPEN, OKAY, WRTE, CLSE = struct.unpack("<5I", b"CNXNOPENOKAYWRTECLSE")
VERSION = 0x01000001  # since this version the checksum may be 0
MAX_PACKET_BYTES = 262144
STDIN, STDOUT, STDERR, EXIT, CLOSE_STDIN = range(5)  # ids of shell_v2 packets
SHELL_V2_HEADER = struct.Struct("<BI")  # id, length
BANNER = (
    b"device::ro.product.name=simulated;ro.product.model=simulated;ro.product.device=simulated;"
    b"features=shell_v2,cmd"
)


class ProtocolError(ValueError):
    """The client does not speak adb or violates its protocol."""


@contextmanager
def serve_adb(device: SizedDevice | Shell) -> Iterator[int]:
    """Serve the device on a free loopback port until the block and all server threads end."""
    shell = device if isinstance(device, Shell) else Shell(device)
    server = _AdbdServer(shell)
    listener = threading.Thread(target=server.serve_forever, args=(0.02,), name="adbd")
    listener.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        listener.join()
        server.close_connections()
        server.server_close()  # waits for the connections' threads


class _AdbdServer(socketserver.ThreadingTCPServer):
    daemon_threads = False
    block_on_close = True
    server_address: tuple[str, int]

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self._sockets: set[socket.socket] = set()
        self._reconnect_time = 0.0  # monotonic seconds
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Connection)

    def close_connections(self) -> None:
        with self._lock:
            for connection in self._sockets:
                with suppress(OSError):  # the client may have disconnected first
                    connection.shutdown(socket.SHUT_RDWR)

    @property
    def plugged_in(self) -> bool:
        return time.monotonic() >= self._reconnect_time

    def unplug(self, seconds: float) -> None:
        self._reconnect_time = time.monotonic() + seconds
        self.close_connections()

    def process_request(self, request, client_address) -> None:  # type: ignore[no-untyped-def]
        with self._lock:
            self._sockets.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request) -> None:  # type: ignore[no-untyped-def]
        with self._lock:
            self._sockets.discard(request)
        super().shutdown_request(request)


@dataclass(slots=True)
class _Stream:
    """A response being sent: one packet is in flight until the client sends OKAY."""

    remote: int
    remaining: memoryview


@dataclass(slots=True)
class _StdinShell:
    """A shell that reads its commands from stdin."""

    remote: int
    packets: bytearray = field(default_factory=bytearray)  # received, not yet complete
    commands: bytearray = field(default_factory=bytearray)


class _Connection(socketserver.BaseRequestHandler):
    server: _AdbdServer
    request: socket.socket

    def handle(self) -> None:
        self.streams: dict[int, _Stream] = {}
        self.shells: dict[int, _StdinShell] = {}
        self.num_opened = 0
        self.max_packet_bytes = MAX_PACKET_BYTES
        if not self.server.plugged_in:
            return
        # Otherwise each response waits 40 ms for an ACK.
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            command, _, max_bytes, _ = self._receive()
            if command != CNXN:
                raise ProtocolError("the first packet must be CNXN")
            self.max_packet_bytes = max(64, min(MAX_PACKET_BYTES, max_bytes))
            self._send(CNXN, VERSION, MAX_PACKET_BYTES, BANNER)
            while True:
                self._handle_packet(*self._receive())
        except (ProtocolError, OSError) as error:
            log.debug("adb connection ended: %s", error)

    def _handle_packet(self, command: int, first: int, second: int, payload: bytes) -> None:
        """`first` and `second` are the client's and our stream id."""
        if command == OPEN:
            self._open(first, payload)
        elif command == OKAY:
            self._send_next_chunk(second)
        elif command == WRTE and second in self.shells:
            self._send(OKAY, second, first)
            self._read_commands(second, payload)
        elif command == WRTE and second in self.streams:
            self._send(OKAY, second, first)  # commands here do not read their input
        elif command == CLSE:
            self.streams.pop(second, None)
            self.shells.pop(second, None)

    def _open(self, remote: int, payload: bytes) -> None:
        service, colon, line = payload.rstrip(b"\0").partition(b":")
        name, *options = service.split(b",")
        v2 = b"v2" in options
        if not colon or name not in (b"shell", b"exec") or not (line or v2):
            self._send(CLSE, 0, remote)
            return
        self.num_opened += 1
        if line:
            self._answer(line, v2, self.num_opened, remote, opens=True)
        else:
            self.shells[self.num_opened] = _StdinShell(remote)
            self._send(OKAY, self.num_opened, remote)

    def _read_commands(self, local: int, payload: bytes) -> None:
        """Run what a shell without a command line read, once its stdin is closed."""
        shell = self.shells[local]
        shell.packets += payload
        while len(shell.packets) >= SHELL_V2_HEADER.size:
            stream, length = SHELL_V2_HEADER.unpack_from(shell.packets)
            end = SHELL_V2_HEADER.size + length
            if len(shell.packets) < end:
                return
            if stream == STDIN:
                shell.commands += shell.packets[SHELL_V2_HEADER.size : end]
            del shell.packets[:end]
            if stream == CLOSE_STDIN:
                del self.shells[local]
                self._answer(bytes(shell.commands), True, local, shell.remote, opens=False)
                return

    def _answer(self, line: bytes, v2: bool, local: int, remote: int, opens: bool) -> None:
        """Run a line and send its output. `opens`: the stream is not yet accepted."""
        unplug = self._take_unplug_fault()
        if unplug is not None and not unplug.mid_output:
            self.server.unplug(unplug.reconnect_after_s)
            return
        result = self._run(line)
        output = _shell_v2(result) if v2 else result.stdout + result.stderr
        if unplug is not None:
            output = output[: len(output) // 2]
        self.streams[local] = _Stream(remote, memoryview(output))
        if opens:
            self._send(OKAY, local, remote)
        self._send_next_chunk(local)
        if unplug is not None:
            self.server.unplug(unplug.reconnect_after_s)

    def _take_unplug_fault(self) -> UnplugFault | None:
        """Return the fault for this command, if any, and remove it: it happens once."""
        shell = self.server.shell
        unplug = shell.faults.unplug
        if unplug is None or unplug.command_index != len(shell.command_lines):
            return None
        shell.faults.unplug = None
        return unplug

    def _run(self, line: bytes) -> CommandResult:
        try:
            return self.server.shell.run(line.decode())
        except Exception as error:  # without a response the client would hang
            log.exception("the simulated phone failed at a command")
            return CommandResult(
                stderr=f"Error: {type(error).__name__}: {error}\n".encode(errors="replace"), returncode=255
            )

    def _send_next_chunk(self, local: int) -> None:
        stream = self.streams.get(local)
        if stream is None:
            return
        if not stream.remaining:
            del self.streams[local]
            self._send(CLSE, local, stream.remote)
            return
        chunk = stream.remaining[: self.max_packet_bytes]
        stream.remaining = stream.remaining[self.max_packet_bytes :]
        self._send(WRTE, local, stream.remote, bytes(chunk))

    def _send(self, command: int, first: int, second: int, payload: bytes = b"") -> None:
        total = sum(payload) if command == CNXN else 0
        header = HEADER.pack(command, first, second, len(payload), total, command ^ 0xFFFFFFFF)
        self.request.sendall(header + payload)

    def _receive(self) -> tuple[int, int, int, bytes]:
        command, first, second, length, _, magic = HEADER.unpack(self._read_exactly(HEADER.size))
        if magic != command ^ 0xFFFFFFFF:
            raise ProtocolError("the magic number of a packet is wrong")
        if length > MAX_PACKET_BYTES:
            raise ProtocolError(f"packet size: got {length} bytes; the maximum is {MAX_PACKET_BYTES}")
        return command, first, second, self._read_exactly(length)

    def _read_exactly(self, length: int) -> bytes:
        parts: list[bytes] = []
        while length:
            part = self.request.recv(min(length, 65536))
            if not part:
                raise ConnectionResetError("the adb client disconnected")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)


def _shell_v2(result: CommandResult) -> bytes:
    """Encode stdout, stderr and the exit status as shell_v2 packets."""
    packets = [(STDOUT, result.stdout)] if result.stdout else []
    if result.stderr:
        packets.append((STDERR, result.stderr))
    packets.append((EXIT, bytes([result.returncode & 255])))
    return b"".join(SHELL_V2_HEADER.pack(stream, len(data)) + data for stream, data in packets)
