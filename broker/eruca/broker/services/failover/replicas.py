"""The replicas of a master that was elected: welcomes them, sends log and tables, and reads what they report.

Owns the connections, what was sent over each, heartbeats, and when a replica counts as lost: its connection ended, or
it made no progress for haMaxTimeSlaveNotCatchup. Must not know who is in the set. Invariants: bytes go out in order
and without a gap, under SYNC_FLUSH only those that are on the disk here; no message spans two epochs; changes of
tables go out before the log that was written after them; a replica has one connection, and reports of a former one are
not posted after it has shaken hands again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import structlog

from eruca.broker.failover import epochs as lists
from eruca.broker.failover.in_sync import Report
from eruca.broker.failover.member import Asked, Event, Member, ReplicaLost, Reported, State, Welcomed
from eruca.broker.services.failover import messages
from eruca.broker.services.failover.messages import MAGIC, Beat, Hello, Kind
from eruca.broker.services.failover.tables import Pending, Tables
from eruca.broker.services.failover.tails import Log, has
from eruca.broker.store import NotInMemory
from eruca.protocol.errors import ProtocolError
from eruca.remoting.addresses import peer_of
from eruca.remoting.tasks import Tasks, end

BEAT_EVERY = 0.5
"""Seconds between two heartbeats."""
GREETING = 3.0
"""Seconds that a peer has to say who it is."""
COLD_READ = 1 << 20
"""Bytes of one read from the disk."""

log = structlog.get_logger("eruca.broker.failover")


class Pace(NamedTuple):
    """What settings say."""

    batch: int = 32 << 10
    """Bytes of a message, at most (haTransferBatchSize)."""
    catch_up: float = 3.0
    """Seconds without progress after which a replica counts as lost (haMaxTimeSlaveNotCatchup)."""


class _Replica:
    """One connection of a replica that was let in."""

    def __init__(self, said: Hello, writer: asyncio.StreamWriter, tables: Pending) -> None:
        self.said = said
        self.writer = writer
        self.tables = tables
        self.same = 0
        """Up to where its log, which has no epochs, is this one."""
        self.has_tables = 0
        """The number of the tables that it has reported."""
        self.next: int | None = None
        """The offset to send next; None until it has reported after its welcome."""
        self.more = asyncio.Event()
        self.acknowledged = 0
        self.progressed_at = 0.0
        """When it had all, or reported more, in seconds of the loop's clock."""
        self.heard_at = asyncio.get_running_loop().time()
        self.lost = False
        """Whether it counts as lost for want of progress."""


class Replicas:
    """All replicas of this broker while it is the master; ``member`` is the driver's, ``post`` goes to it."""

    def __init__(
        self,
        group: str,
        log: Log,
        tables: Tables,
        member: Callable[[], Member],
        post: Callable[[Event], None],
        tasks: Tasks,
        monotonic: Callable[[], int],
        pace: Pace | None = None,
    ) -> None:
        self.answered: dict[int, int] = {}
        """When the last heartbeat that each replica answered was sent, by ``monotonic`` (ms)."""
        self._group = group
        self._log = log
        self._tables = tables
        self._member = member
        self._post = post
        self._tasks = tasks
        self._monotonic = monotonic
        self._pace = pace or Pace()
        self._replicas: dict[int, _Replica] = {}
        self._served: set[asyncio.Task[None]] = set()
        self._beats: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Send heartbeats from now on."""
        self._beats = self._tasks.start("failover's heartbeats", self._beat())

    async def stop(self) -> None:
        """End all connections."""
        self.dismiss()
        beats = [self._beats] if self._beats is not None else []
        await end([*beats, *self._served])

    def protocol(self, address: str) -> asyncio.Protocol:
        """What serves a connection that was accepted."""
        reader = asyncio.StreamReader()
        return asyncio.StreamReaderProtocol(reader, self._connected)

    def dismiss(self) -> None:
        """As in the port."""
        for replica in tuple(self._replicas.values()):
            self._let_go(replica)
        self.answered.clear()

    def written(self) -> None:
        """The log is longer, or tables have changed."""
        for replica in self._replicas.values():
            replica.more.set()

    # ------------------------------------------------------------------ one connection

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._served.add(task)
        task.add_done_callback(self._served.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        remote = "{}:{}".format(*peer_of(peer)) if peer else ""
        replica: _Replica | None = None
        sending: asyncio.Task[None] | None = None
        try:
            said = await self._greeting(reader)
            reason = self._why_not(said)
            if reason is not None:
                log.warning("replica_refused", remote=remote, broker_id=said.broker_id, reason=reason)
                writer.write(messages.refused(reason))
                await writer.drain()
                return
            same = said.tail is not None and await asyncio.to_thread(has, self._log, said.tail)
            if (reason := self._why_not(said)) is not None:
                raise ProtocolError(reason)
            replica = self._let_in(said, writer)
            replica.same = said.tail.end if said.tail is not None and same else 0
            log.info("replica_connected", remote=remote, broker_id=said.broker_id)
            sending = asyncio.get_running_loop().create_task(self._send(replica))
            sending.add_done_callback(lambda _: writer.transport.abort())
            while True:
                self._take(replica, *await messages.read(reader.readexactly))
        except (OSError, EOFError, ProtocolError, TimeoutError) as fault:
            if replica is None:
                log.warning("replica_refused", remote=remote, broker_id=-1, reason=str(fault) or "it said nothing")
        finally:
            writer.transport.abort()
            if sending is not None:
                await end([sending])
            if replica is not None and self._replicas.get(replica.said.broker_id) is replica:
                self._forget(replica, remote)

    async def _greeting(self, reader: asyncio.StreamReader) -> Hello:
        async with asyncio.timeout(GREETING):
            if await reader.readexactly(len(MAGIC)) != MAGIC:
                raise ProtocolError(
                    "it speaks as a slave without enableControllerMode: set that on every broker of the name"
                )
            kind, body = await messages.read(reader.readexactly)
        if kind is not Kind.HELLO:
            raise ProtocolError(f"its first message is {kind.name}")
        return messages.read_hello(body)

    def _why_not(self, said: Hello) -> str | None:
        member = self._member()
        if said.group != self._group:
            return f"this broker is of the group {self._group}"
        if said.broker_id == member.broker_id:
            return f"it has the brokerId of the master, {said.broker_id}: give each broker of the name its own"
        epoch = member.known.group.master_epoch if member.known is not None else 0
        if member.state is not State.MASTER or epoch != said.epoch:
            return f"this broker is no master of epoch {said.epoch}: it is {member.state.value} in epoch {epoch}"
        return None

    def _let_in(self, said: Hello, writer: asyncio.StreamWriter) -> _Replica:
        former = self._replicas.get(said.broker_id)
        if former is not None:
            self._let_go(former)
        self.answered.pop(said.broker_id, None)
        replica = self._replicas[said.broker_id] = _Replica(said, writer, self._tables.replica())
        self._post(Asked(said.broker_id))
        return replica

    def _let_go(self, replica: _Replica) -> None:
        """End the connection of a replica."""
        replica.writer.transport.abort()
        self._tables.forget(replica.tables)
        del self._replicas[replica.said.broker_id]

    def _forget(self, replica: _Replica, remote: str) -> None:
        broker_id = replica.said.broker_id
        self._let_go(replica)
        self.answered.pop(broker_id, None)
        log.info("replica_lost", remote=remote, broker_id=broker_id, acknowledged=replica.acknowledged)
        self._post(ReplicaLost(broker_id))

    def welcome(self, broker_id: int, answer: Welcomed) -> None:
        """As in the port."""
        replica = self._replicas.get(broker_id)
        if replica is not None:
            replica.writer.write(messages.welcome(answer._replace(same=replica.same)))

    def _take(self, replica: _Replica, kind: Kind, body: bytes) -> None:
        """A message of a replica."""
        said, now = replica.said, asyncio.get_running_loop().time()
        replica.heard_at = now
        if kind is Kind.HEARD:
            self.answered[said.broker_id] = messages.read_heard(body)
            return
        if kind is not Kind.REPORT:
            raise ProtocolError(f"a replica does not send {kind.name}")
        report = Report(said.broker_id, said.store, *messages.read_report(body))
        reached = report.end
        if reached > self._log.safe_offset or report.tables > replica.tables.number:
            raise ProtocolError(
                f"it reports {reached} with tables {report.tables}, and the log ends at {self._log.safe_offset}, with "
                f"tables {replica.tables.number}"
            )
        if replica.next is None:
            replica.next = self._first(replica, reached)
            replica.progressed_at = now
            replica.more.set()
        elif reached > replica.acknowledged or report.tables > replica.has_tables or self._has_all(replica, report):
            replica.progressed_at = now
            replica.lost = False
        replica.acknowledged, replica.has_tables = reached, report.tables
        if report.tables and not replica.lost:
            self._post(Reported(report))

    def _has_all(self, replica: _Replica, report: Report) -> bool:
        return report.end >= self._log.safe_offset and report.tables >= replica.tables.number

    def _first(self, replica: _Replica, reached: int) -> int:
        """Where its copy goes on; an empty log begins at the oldest byte."""
        begin = self._log.begin_offset
        if reached and reached < begin:
            reason = f"its log ends at {reached}, and what follows was deleted here (up to {begin}): empty its store"
            replica.writer.write(messages.refused(reason))
            raise ProtocolError(reason)
        return max(reached, begin)

    # ------------------------------------------------------------------ sending

    async def _send(self, replica: _Replica) -> None:
        while True:
            await replica.more.wait()
            replica.more.clear()
            if replica.next is None:
                continue
            self._send_tables(replica)
            while replica.next < self._log.safe_offset:
                if not await self._send_part(replica, replica.next):
                    return
            await replica.writer.drain()

    def _send_tables(self, replica: _Replica) -> None:
        """Send what has changed in the tables."""
        if replica.tables.number < self._tables.number:
            body = self._tables.message(replica.tables)
            replica.writer.write(messages.tables(self._member().epoch, replica.tables.number, body))

    async def _send_part(self, replica: _Replica, at: int) -> bool:
        """Send what follows, all of one epoch; False if that cannot be."""
        member = self._member()
        part = lists.at(member.epochs, at)
        if part is None or member.state is not State.MASTER:
            return False
        later = [entry.start - at for entry in member.epochs if entry.start > at]
        data = await self._bytes(at, min([self._pace.batch, *later]))
        if not data:
            log.warning(
                "replica_refused", remote="", broker_id=replica.said.broker_id, reason="its log was deleted here"
            )
            replica.writer.transport.abort()
            return False
        self._send_tables(replica)
        head = messages.part_head(member.epoch, part, at, len(data), member.confirmed)
        replica.writer.write(b"".join((head, data)))
        replica.next = at + len(data)
        await replica.writer.drain()
        return True

    async def _bytes(self, at: int, most: int) -> memoryview | bytes | None:
        try:
            return self._log.take(at, most)
        except NotInMemory:
            work = partial(self._log.take, at, most, wait=True)
            return await asyncio.get_running_loop().run_in_executor(None, work)

    async def _beat(self) -> None:
        """Heartbeats, offsets that were committed meanwhile, and a look at who makes no progress."""
        while True:
            await asyncio.sleep(BEAT_EVERY)
            self._tables.gather()
            member, now = self._member(), asyncio.get_running_loop().time()
            for broker_id, replica in tuple(self._replicas.items()):
                if replica.next is None:
                    continue
                if now - replica.heard_at > self._pace.catch_up:
                    replica.writer.transport.abort()  # its end is posted by its task
                    continue
                replica.writer.write(messages.beat(Beat(member.epoch, member.confirmed, self._monotonic())))
                if replica.acknowledged >= self._log.safe_offset and replica.has_tables >= replica.tables.number:
                    replica.progressed_at = now
                elif now - replica.progressed_at > self._pace.catch_up and not replica.lost:
                    replica.lost = True
                    log.warning("replica_stuck", broker_id=broker_id, acknowledged=replica.acknowledged)
                    self._post(ReplicaLost(broker_id))
