"""Sends a log over one connection, from an offset on, as fast as the peer reads it.

Owns what goes out next, and when: at once where the bytes are in memory, after a read in a thread where they have to
come from the disk, in the next turn of the loop where much is sent. Must not know what stands in front of the bytes.
Invariant: bytes go out in order and without a gap.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Protocol

from eruca.broker.store.file_system import NotInMemory

FRAMES_A_TURN = 16
"""Frames that are sent before the event loop runs others."""
COLD_READ = 1 << 20
"""Bytes of one read from the disk."""
UNSENT = 1 << 20
"""Bytes that may be buffered for a peer that does not read."""


class Source(Protocol):
    """A log, as ``store.replicator`` has it."""

    @property
    def safe_offset(self) -> int:
        """Up to where it may be sent."""

    def take(self, offset: int, most: int, *, wait: bool = False) -> memoryview | bytes | None:
        """Bytes from there on; None when there are none. Raises NotInMemory unless it is to ``wait``."""


class Receiver(Protocol):
    """The connection to a peer."""

    @property
    def is_closing(self) -> bool:
        """Whether nothing can be sent any more."""

    def room(self, at: int) -> int:
        """How many bytes from ``at`` on may be one frame; 0 if none may be sent."""

    def send(self, at: int, data: memoryview | bytes) -> None:
        """Send a frame of the log."""

    def lacks(self, at: int) -> None:
        """There is nothing to send from ``at`` on: not yet, or not any more."""

    def waits_for_disk(self) -> None:
        """What comes next has to come from the disk."""

    def unreadable(self, fault: str) -> None:
        """The log cannot be read."""


class Pump:
    """What is sent to one peer."""

    def __init__(self, log: Source, receiver: Receiver) -> None:
        self.next = -1
        """The offset to send next; -1 before it is known."""
        self.paused = False
        """Whether the peer reads more slowly than this broker sends."""
        self._log = log
        self._receiver = receiver
        self._turn_over = False
        """Whether the next iteration of the loop continues to send."""
        self._reading: asyncio.Future[memoryview | bytes | None] | None = None

    def resume(self) -> None:
        """The peer reads again."""
        self.paused = False
        self.go_on()

    def go_on(self) -> None:
        """Send what is available."""
        receiver = self._receiver
        for _ in range(FRAMES_A_TURN):
            if self.next < 0 or self.paused or self._turn_over or self._reading is not None or receiver.is_closing:
                return
            most = receiver.room(self.next)
            if not most:
                return
            try:
                data = self._log.take(self.next, most)
            except NotInMemory:
                self._read_cold()
                return
            if not data:
                receiver.lacks(self.next)
                return
            self._send(data)
            if self.next >= self._log.safe_offset:
                return
        self._turn_over = True
        asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_over = False
        self.go_on()

    def _send(self, data: memoryview | bytes) -> None:
        at = self.next
        self.next += len(data)
        self._receiver.send(at, data)

    def _read_cold(self) -> None:
        self._receiver.waits_for_disk()
        work = partial(self._log.take, self.next, COLD_READ, wait=True)
        self._reading = asyncio.get_running_loop().run_in_executor(None, work)
        self._reading.add_done_callback(self._came)

    def _came(self, reading: asyncio.Future[memoryview | bytes | None]) -> None:
        self._reading = None
        receiver = self._receiver
        if receiver.is_closing or reading.cancelled():
            return
        fault = reading.exception()
        if fault is not None:
            receiver.unreadable(str(fault))
            return
        data = memoryview(reading.result() or b"")
        if not data:
            receiver.lacks(self.next)
            return
        while data and (most := receiver.room(self.next)) and not receiver.is_closing:
            self._send(data[:most])
            data = data[most:]
        self.go_on()
