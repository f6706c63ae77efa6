"""One connection of a replica to this master: what it says, and the log and the tables that are sent to it.

Owns the bytes of the connection, and what was sent over it. Must not know who is let in, nor what a report means: its
owner does. Invariants: bytes go out in order and without a gap, under SYNC_FLUSH only those that are on the disk here;
no message spans two epochs; changes of tables go out before the log that was written after them.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from eruca.broker.failover import epochs as lists
from eruca.broker.failover.epochs import Epoch, Epochs
from eruca.broker.failover.member import MASTER
from eruca.broker.services.failover import messages
from eruca.broker.services.failover.messages import MAGIC, REPORT, Hello, Kind, MessageReader
from eruca.broker.services.failover.ports import Posts
from eruca.broker.services.failover.tables import Pending, Tables
from eruca.broker.services.failover.tails import Log
from eruca.broker.services.replication.pump import UNSENT, Pump
from eruca.protocol.errors import ProtocolError
from eruca.remoting.addresses import peer_of

GREETING = 3.0
"""Seconds that a peer has to say who it is."""


class Owner(Protocol):
    """Who decides about the replicas of a master."""

    def greeted(self, replica: Replica, said: Hello) -> None:
        """It has said who it is."""

    def came(self, replica: Replica, kind: Kind, body: bytes) -> None:
        """It has sent a message that is no report, after it was let in. Raises ProtocolError."""

    def reported(self, replica: Replica, body: bytes) -> None:
        """It has reported; of the reports that came together this is the newest. Raises ProtocolError."""

    def ended(self, replica: Replica, reason: str) -> None:
        """Its connection has ended."""


class _Stretch:
    """A part of the log that belongs to one epoch."""

    def __init__(self, epochs: Epochs, part: Epoch, end: int | None) -> None:
        self.epochs = epochs
        self.master_epoch = epochs[-1].epoch
        self.part = part
        self.end = end
        """None of the newest epoch."""


class Replica(asyncio.Protocol):
    """One connection; ``batch`` is how many bytes of the log one message has at most."""

    def __init__(self, owner: Owner, driver: Posts, log: Log, tables: Tables, batch: int) -> None:
        loop = asyncio.get_running_loop()
        self.remote = ""
        self.gone: asyncio.Future[None] = loop.create_future()
        """Done when the connection has ended."""
        self.said: Hello | None = None
        """Who it is; None before it was let in."""
        self.pending = Pending()
        """What it has to get of the tables, from when it was let in."""
        self.refused = False
        """Whether it was sent the reason why it gets nothing."""
        self.same = 0
        """Up to where its log, which has no epochs, is this one."""
        self.has_tables = 0
        """The number of the tables that it has reported."""
        self.acknowledged = 0
        self.progressed_at = 0.0
        """When it had all, or reported more, in seconds of the loop's clock."""
        self._time = loop.time
        self.heard_at = loop.time()
        self.lost = False
        """Whether it counts as lost for want of progress."""
        self._owner = owner
        self._log = log
        self._tables = tables
        self._driver = driver
        self._batch = batch
        self._reader = MessageReader()
        self._magic: bytes | None = b""
        """What came of the magic; None when that has come."""
        self._has_greeted = False
        self._fault = ""
        self._pump = Pump(log, self)
        self._stretch: _Stretch | None = None
        """Where what is sent next lies."""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------ life

    @property
    def is_closing(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._transport is None or self._transport.is_closing()

    @property
    def begun(self) -> bool:
        """Whether it has reported after its welcome, so that log and tables are sent."""
        return self._pump.next >= 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the replica, which greets first."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=UNSENT)
        peer = transport.get_extra_info("peername")
        self.remote = "{}:{}".format(*peer_of(peer)) if peer else ""
        self._timer = asyncio.get_running_loop().call_later(GREETING, self._give_up, "it said nothing")

    def connection_lost(self, fault: Exception | None) -> None:
        """Release the connection."""
        self._transport = None
        self._expect_no_greeting()
        self.gone.set_result(None)
        self._owner.ended(self, self._fault or str(fault or "it closed the connection"))

    def abort(self) -> None:
        """End the connection: nothing more is taken from it."""
        if self._transport is not None:
            self._transport.abort()

    def refuse(self, reason: str) -> None:
        """Tell it why it gets nothing, and end the connection."""
        self._fault, self.refused = reason, True
        self.send_message(messages.refused(reason))
        if self._transport is not None:
            self._transport.close()

    def _expect_no_greeting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self, reason: str) -> None:
        self._fault = reason
        self.abort()

    # ------------------------------------------------------------------ what comes

    def data_received(self, data: bytes) -> None:
        """Messages of the replica."""
        self.heard_at = self._time()
        try:
            if self._magic is not None:
                data = self._behind_magic(self._magic + data)
            newest: bytes | None = None
            for kind, body in self._reader.feed(data):
                if kind is REPORT and self.said is not None:
                    newest = body
                elif self.is_closing:
                    break
                elif self.said is None:
                    self._greeted(kind, body)
                else:
                    self._owner.came(self, kind, body)
            if newest is not None and not self.is_closing:
                self._owner.reported(self, newest)
        except ProtocolError as fault:
            self._give_up(str(fault))

    def _behind_magic(self, data: bytes) -> bytes:
        if not data.startswith(MAGIC[: len(data)]):
            raise ProtocolError(
                "it speaks as a slave without enableControllerMode: set that on every broker of the name"
            )
        self._magic = data if len(data) < len(MAGIC) else None
        return data[len(MAGIC) :]

    def _greeted(self, kind: Kind, body: bytes) -> None:
        if kind is not Kind.HELLO:
            raise ProtocolError(f"its first message is {kind.name}")
        if self._has_greeted:
            raise ProtocolError("it goes on before it was welcomed")
        self._has_greeted = True
        self._expect_no_greeting()
        self._owner.greeted(self, messages.read_hello(body))

    # ------------------------------------------------------------------ what goes out

    def send_message(self, data: bytes) -> None:
        """Send a message, unless the connection has ended: uvloop raises then."""
        if not self.is_closing:
            assert self._transport is not None
            self._transport.write(data)

    def begin(self, at: int) -> None:
        """Send tables and log from now on, the log from this offset."""
        self._pump.next = at
        self.go_on()

    def go_on(self) -> None:
        """Send what is new."""
        if self._pump.next >= 0:
            if self.pending.number < self._tables.number:
                self._send_tables()
            self._pump.go_on()

    def pause_writing(self) -> None:
        """Called by the event loop: the replica does not read."""
        self._pump.paused = True

    def resume_writing(self) -> None:
        """Called by the event loop: the replica reads again."""
        self._pump.resume()

    def _send_tables(self) -> None:
        """Send what has changed in the tables."""
        body = self._tables.message(self.pending)
        self.send_message(messages.tables(self._driver.member.epoch, self.pending.number, body))

    def room(self, at: int) -> int:
        """How many bytes may be one message: all of one epoch, and none if this broker leads no more."""
        member = self._driver.member
        stretch = self._stretch
        if stretch is None or stretch.epochs is not member.epochs or at == stretch.end:
            part = lists.at(member.epochs, at)
            if part is None:
                self.abort()
                return 0
            end = min((entry.start for entry in member.epochs if entry.start > at), default=None)
            self._stretch = stretch = _Stretch(member.epochs, part, end)
        if member.state is not MASTER:
            self.abort()
            return 0
        return self._batch if stretch.end is None else min(self._batch, stretch.end - at)

    def lacks(self, at: int) -> None:
        """There is nothing to send: end the connection if that was deleted."""
        if at < self._log.safe_offset:
            self._give_up("its log was deleted here")

    def waits_for_disk(self) -> None:
        """What it gets next has to come from the disk; how long that takes is judged by what it reports."""

    def unreadable(self, fault: str) -> None:
        """The log cannot be read."""
        self._give_up(f"the log cannot be read: {fault}")

    def send(self, at: int, data: memoryview | bytes) -> None:
        """Send a part of the log, which lies in the stretch that ``room`` has found."""
        stretch, transport = self._stretch, self._transport
        assert stretch is not None and transport is not None
        if self.pending.number < self._tables.number:
            self._send_tables()
        confirmed = self._driver.member.confirmed
        head = messages.part_head(stretch.master_epoch, stretch.part, at, len(data), confirmed)
        transport.write(b"".join((head, data)))
