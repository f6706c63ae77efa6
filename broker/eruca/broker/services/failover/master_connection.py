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

from eruca.broker.failover.events import MasterLost
from eruca.broker.failover.in_sync import Report
from eruca.broker.services.failover import messages
from eruca.broker.services.failover.messages import PART, Kind, MessageReader
from eruca.broker.services.failover.ports import Frame, Posts, TableFrame
from eruca.protocol.errors import ProtocolError

SILENCE = 3.0
"""Seconds after which a master that says nothing is given up; it sends a heartbeat twice a second."""


class MasterConnection(asyncio.Protocol):
    """A connection that stands; ``ended`` is done when it has ended, with the reason. ``monotonic`` gives ms."""

    def __init__(self, driver: Posts, monotonic: Callable[[], int]) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = loop.create_future()
        self.welcomed = False
        """Whether the master has welcomed this broker."""
        self.copied = False
        """Whether it has sent something of its log or tables since, or a heartbeat."""
        self.heard_at: int | None = None
        """When the last message of a master was read; None if none was."""
        self._came_at = monotonic()
        """When bytes came last, or there was room for them again."""
        self._driver = driver
        self._monotonic = monotonic
        self._reader = MessageReader()
        self._transport: asyncio.Transport | None = None
        self._timer = loop.call_later(SILENCE, self._judge_silence)
        self._full: asyncio.Future[None] | None = None
        """Ends when there is room for what comes next."""
        self._came: list[tuple[Kind, bytes]] = []
        """Messages that wait for that."""
        self._handling = False
        """Whether a message is handed on that is not the last one: the newest report goes out after that."""
        self._report: Report | None = None
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
        passed = (self._monotonic() - self._came_at) / 1000 if self._full is None else 0.0
        if passed < SILENCE:
            self._timer = asyncio.get_running_loop().call_later(SILENCE - passed, self._judge_silence)
        else:
            self._close("it was silent")

    # ------------------------------------------------------------------ what goes out

    def send(self, data: bytes) -> None:
        """Send a message, unless the connection has ended: ``ended`` says so, and uvloop raises here."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.write(data)

    def tell(self, report: Report) -> None:
        """Report to a master that has welcomed this broker; of the reports about what came together only the newest."""
        transport = self._transport
        if self._handling:
            self._report = report
        elif self.welcomed and not self._left and transport is not None and not transport.is_closing():
            self._report = None
            transport.write(messages.report(report.epoch, report.end, report.tables))

    # ------------------------------------------------------------------ what comes

    def data_received(self, data: bytes) -> None:
        """Bytes of the master."""
        self._came_at = self._monotonic()
        try:
            came = self._reader.feed(data)
        except ProtocolError as fault:
            self._close(str(fault))
            return
        if self._full is None:
            self._go_on(came)
        else:
            self._came += came

    def _go_on(self, came: list[tuple[Kind, bytes]]) -> None:
        """Hand on messages as long as there is room; parts of the log that follow one another go on as one."""
        at, count = 0, len(came)
        try:
            while at < count and not self._left:
                if self._full is not None:
                    self._came = came[at:]
                    break
                kind, body = came[at]
                if kind is PART and self.welcomed:
                    part, at = messages.read_parts(came, at)
                    self._handling = at < count
                    self._hand_on(part)
                else:
                    at += 1
                    self._handling = at < count
                    self._handle(kind, body)
        except ProtocolError as fault:
            self._close(str(fault))
        finally:
            self._handling = False
        if self._report is not None:
            self.tell(self._report)

    def _handle(self, kind: Kind, body: bytes) -> None:
        if kind is Kind.BEAT and self.welcomed:
            epoch, confirmed, stamp = messages.read_beat(body)
            self.send(messages.heard(stamp))
            self._hand_on(Frame(epoch, None, 0, b"", confirmed))
        elif kind is Kind.TABLES and self.welcomed:
            self._hand_on(messages.read_tables(body))
        elif kind is Kind.WELCOME:
            self.welcomed = True
            self.heard_at = self._came_at
            self._driver.post(messages.read_welcome(body))
        elif kind is Kind.REFUSED:
            self._close(body.decode(errors="replace"))
        else:
            raise ProtocolError(f"a master does not send {kind.name}")

    def _hand_on(self, frame: Frame | TableFrame) -> None:
        self.copied = True
        self.heard_at = self._came_at
        full = self._driver.take(frame)
        if full is not None:
            self._full = full
            if self._transport is not None:
                self._transport.pause_reading()
            full.add_done_callback(self._has_room)

    def _has_room(self, _: asyncio.Future[None]) -> None:
        self._full = None
        self._came_at = self._monotonic()
        came, self._came = self._came, []
        self._go_on(came)
        if self._full is None and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
