"""A blocking connection of one thread, without an event loop: pipelined requests, answers in order of arrival.

Owns a blocking socket and the bytes read from it. For programs that only read, such as a task of Spark: an answer costs
a few microseconds, and its body is not copied. Nothing is matched and nothing is retried; the caller interprets the
frames. Every failure is an OSError or a ProtocolError, after which the wire is unusable.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import struct
from collections import deque
from typing import Any, Final

from eruca.protocol import frame
from eruca.protocol.errors import ProtocolError
from eruca.remoting.addresses import split_address

READ_BYTES: Final = 1 << 20
"""The most bytes of one read, unless a frame is longer."""
LEAST_ROOM: Final = 64 << 10
"""The least room of one read, in bytes."""
_prefix = struct.Struct(">II").unpack_from

Frame = tuple[int, bytes, memoryview]
"""The serialization of a header, the header, and the body, which is valid until the next read."""


class Wire:
    """A connection to ``address`` (``host:port``).

    ``security`` holds the TLS arguments of ``create_connection``, empty for a plain connection. ``timeout`` is in
    seconds, for each read and each write.
    """

    def __init__(self, address: str, security: dict[str, Any], *, connect_timeout: float, timeout: float) -> None:
        plain = socket.create_connection(split_address(address), connect_timeout)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = plain
        if security:
            context: ssl.SSLContext = security["ssl"]
            self._socket = context.wrap_socket(plain, server_hostname=security["server_hostname"])
        self._socket.settimeout(timeout)
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._at = self._end = 0
        self._frames: deque[Frame] = deque()

    def settle(self, timeout: float) -> bool:
        """Prepare it for the next user; False if the peer has closed it or answers are outstanding."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            readable = selector.select(0)
        self._socket.settimeout(timeout)
        return not readable and not self._frames and self._at == self._end

    def send(self, requests: bytes) -> None:
        """Send whole frames."""
        self._socket.sendall(requests)

    def next_frame(self) -> Frame:
        """Wait for the next frame of the peer."""
        while not self._frames:
            self._read()
        return self._frames.popleft()

    def close(self) -> None:
        """End the connection at once."""
        self._socket.close()

    def _read(self) -> None:
        self._make_room()
        count = self._socket.recv_into(self._buffer[self._end :])
        if not count:
            raise ConnectionResetError("the connection was closed by its peer")
        buffer, at, end, frames = self._buffer, self._at, self._end + count, self._frames
        while end - at >= 8:
            length, word = _prefix(buffer, at)
            frame.check_length(length)
            body_at, stop = at + 8 + (word & 0xFFFFFF), at + 4 + length
            if body_at > stop:
                raise ProtocolError(f"a header of {word & 0xFFFFFF} bytes in a frame of {length}")
            if stop > end:
                break
            frames.append((word >> 24, bytes(buffer[at + 8 : body_at]), buffer[body_at:stop]))
            at = stop
        self._at, self._end = at, end

    def _make_room(self) -> None:
        """Move the read part of an incomplete frame to the front, into a larger buffer if necessary."""
        rest = self._end - self._at
        if not rest:
            self._at = self._end = 0
            return
        need = rest + LEAST_ROOM
        if rest >= 4:
            need = max(need, 4 + int.from_bytes(self._buffer[self._at : self._at + 4], "big"))
        if need <= len(self._buffer) - self._at:
            return
        target = self._buffer if need <= len(self._buffer) else memoryview(bytearray(need))
        target[:rest] = self._buffer[self._at : self._end]
        self._buffer, self._at, self._end = target, 0, rest
