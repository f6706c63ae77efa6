"""What a connection sends: what is unsent, when it leaves, and whether the peer reads it.

Owns the bytes on their way out: what a turn of the loop brings together leaves in one write. Knows nothing of frames.
"""

from __future__ import annotations

import asyncio

HAND_OVER = 1024 * 1024
"""Bytes of a turn above which they leave at once, before more is made."""
WRITE_HIGH_WATER = 4 * 1024 * 1024
"""Bytes waiting to be sent above which a peer is congested: nothing more is done for it until it reads."""
_JOIN_UP_TO = 16 * 1024
_LINGER = 0.02
"""Seconds between two looks whether an encrypted connection that is to end has sent everything."""


class Sending(asyncio.Protocol):
    """The sending half of a connection; ``congested`` tells that the peer does not read what is sent to it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.closed = False
        self.congested = False
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes | memoryview] = []
        self._out_size = 0
        self._flushing = False
        self._relief: asyncio.Future[None] | None = None

    @property
    def unsent(self) -> int:
        """Bytes that leave at the end of this turn of the loop."""
        return self._out_size

    @property
    def encrypted(self) -> bool:
        """Whether TLS is spoken."""
        return self._transport is not None and self._transport.get_extra_info("ssl_object") is not None

    @property
    def ending(self) -> bool:
        """Whether nothing that comes now is sent any more."""
        return self.closed or self._transport is None or self._transport.is_closing()

    # ------------------------------------------------------------------ what leaves

    def send(self, whole: bytes) -> None:
        """Send a frame that was encoded already (the later answer of a short way); dropped when closed."""
        if not self.closed:
            self._out.append(whole)
            self._out_size += len(whole)
            self._flush_soon()

    async def drain(self) -> None:
        """Let what is unsent leave, and wait while the peer does not read."""
        self._flush()
        await asyncio.sleep(0)
        if self._relief is not None:
            await asyncio.shield(self._relief)

    @property
    def crowded(self) -> bool:
        """Whether a large answer had better be made later, when what is there has left."""
        return not self.closed and (self.congested or self._out_size > HAND_OVER)

    async def room(self) -> None:
        """Wait until the peer has read enough for a large answer to be made for it."""
        while self.crowded:
            await self.drain()

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        out = self._out
        if not out or self._transport is None:
            return
        self._out = []
        size, self._out_size = self._out_size, 0
        if len(out) == 1:
            self._transport.write(out[0])
        elif size <= _JOIN_UP_TO or size <= len(out) * 512:
            self._transport.write(b"".join(out))
        elif not self._transport.is_closing():  # asyncio's own transport fails here then, from Python 3.12 on,
            last = out.pop()  # and only looks whether too much is unsent when something is written by itself
            self._transport.writelines(out)
            self._transport.write(last)

    # ------------------------------------------------------------------ whether the peer reads

    def pause_writing(self) -> None:
        """Called by the event loop: the peer does not read."""
        self.congested = True
        self._relief = self._relief or self._loop.create_future()

    def resume_writing(self) -> None:
        """Called by the event loop: the peer reads again."""
        self.congested = False
        self._relieve()

    def _relieve(self) -> None:
        relief, self._relief = self._relief, None
        if relief is not None:
            relief.set_result(None)

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """End the connection after what is to be sent was sent."""
        self._flush()
        if self._transport is not None:
            self._transport.close()
            if self.encrypted:
                self._loop.call_later(_LINGER, self._end_encrypted)

    def _end_encrypted(self) -> None:
        """End without the answer to the end of TLS, which Java does not give, as soon as everything was sent."""
        if self.closed or self._transport is None:
            return
        if self.congested or self._transport.get_write_buffer_size():
            self._loop.call_later(_LINGER, self._end_encrypted)
        else:
            self.abort()

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self.closed = True
        self._relieve()
        self._out.clear()
