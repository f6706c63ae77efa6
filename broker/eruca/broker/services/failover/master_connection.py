"""One connection of a replica to the master of its group.

Owns the bytes: messages in, reports and answers to heartbeats out, and that it reads no further while there is no room
for what comes. Must not know what follows from what comes: it posts it. Invariants: messages are handed on in their
order; after ``leave`` none is, and no heartbeat is answered; the loss of a master that had welcomed this broker is
posted once, but for ``leave``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from eruca.broker.failover.in_sync import Report
from eruca.broker.failover.member import MasterLost
from eruca.broker.services.failover import messages
from eruca.broker.services.failover.messages import Kind, MessageReader
from eruca.broker.services.failover.ports import Frame, Posts, TableFrame
from eruca.protocol.errors import ProtocolError

SILENCE = 3.0
"""Seconds after which a master that says nothing is given up; it sends a heartbeat twice a second."""


class MasterConnection(asyncio.Protocol):
    """A connection that stands; ``ended`` is done when it has ended, with the reason.

    ``heard`` is called when something has come.
    """

    def __init__(self, driver: Posts, heard: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = loop.create_future()
        self.welcomed = False
        """Whether the master has welcomed this broker."""
        self._driver = driver
        self._heard = heard
        self._heard_at = loop.time()
        self._reader = MessageReader()
        self._transport: asyncio.Transport | None = None
        self._timer = loop.call_later(SILENCE, self._judge_silence)
        self._full: asyncio.Future[None] | None = None
        """Ends when there is room for what comes next."""
        self._handling = False
        """Whether messages are handed on: the newest report goes out afterwards."""
        self._report = b""
        self._left = False

    # ------------------------------------------------------------------ life

    @property
    def follows(self) -> bool:
        """Whether the master has welcomed this broker, and the connection stands."""
        return self.welcomed and not self._left

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It stands; the replica has to greet."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, fault: Exception | None) -> None:
        """It has ended."""
        self._transport = None
        self._timer.cancel()
        self._lost(str(fault or "closed by the master"))

    def leave(self) -> None:
        """Post nothing more, and close."""
        self._left = True
        self._close("left")

    def close(self) -> None:
        """End the connection, if it has not ended."""
        self._close("closed here")

    def _close(self, reason: str) -> None:
        self._lost(reason)
        if self._transport is not None:
            self._transport.abort()

    def _lost(self, reason: str) -> None:
        """Nothing comes any more."""
        self._timer.cancel()
        if not self.ended.done():
            self.ended.set_result(reason)
        if self.follows:
            self._left = True
            self._driver.post(MasterLost())
        self._left = True

    def _judge_silence(self) -> None:
        loop = asyncio.get_running_loop()
        rest = SILENCE if self._full is not None else self._heard_at + SILENCE - loop.time()
        if rest > 0:
            self._timer = loop.call_later(rest, self._judge_silence)
        else:
            self._close("it was silent")

    # ------------------------------------------------------------------ what goes out

    def send(self, data: bytes) -> None:
        """Send a message."""
        if self._transport is not None:
            self._transport.write(data)

    def tell(self, report: Report) -> None:
        """Report; of the reports about what came together only the newest."""
        said = messages.report(report.epoch, report.end, report.tables)
        if self._handling:
            self._report = said
        else:
            self.send(said)

    # ------------------------------------------------------------------ what comes

    def data_received(self, data: bytes) -> None:
        """Bytes of the master."""
        self._heard_at = asyncio.get_running_loop().time()
        self._reader.feed(data)
        if self._full is None:
            self._go_on()

    def _go_on(self) -> None:
        """Hand on the messages that are whole, as long as there is room."""
        self._handling = True
        try:
            while not self._left and self._full is None and (message := self._reader.next()) is not None:
                self._handle(*message)
        except ProtocolError as fault:
            self._close(str(fault))
        finally:
            self._handling = False
        said, self._report = self._report, b""
        if said and not self._left:
            self.send(said)

    def _handle(self, kind: Kind, body: bytes) -> None:
        if kind is not Kind.REFUSED:  # by one that is no master, or not this broker's
            self._heard()
        if kind is Kind.PART and self.welcomed:
            self._hand_on(messages.read_part(body))
        elif kind is Kind.BEAT and self.welcomed:
            epoch, confirmed, stamp = messages.read_beat(body)
            self.send(messages.heard(stamp))
            self._hand_on(Frame(epoch, None, 0, b"", confirmed))
        elif kind is Kind.TABLES and self.welcomed:
            self._hand_on(messages.read_tables(body))
        elif kind is Kind.WELCOME:
            self.welcomed = True
            self._driver.post(messages.read_welcome(body))
        elif kind is Kind.REFUSED:
            self._close(body.decode(errors="replace"))
        else:
            raise ProtocolError(f"a master does not send {kind.name}")

    def _hand_on(self, frame: Frame | TableFrame) -> None:
        full = self._driver.take(frame)
        if full is not None:
            self._full = full
            if self._transport is not None:
                self._transport.pause_reading()
            full.add_done_callback(self._has_room)

    def _has_room(self, _: asyncio.Future[None]) -> None:
        self._full = None
        self._heard_at = asyncio.get_running_loop().time()
        self._go_on()
        if self._full is None and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
