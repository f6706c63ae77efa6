"""The replicas of a master that was elected: lets them in, and reads what they report.

Owns who is let in, heartbeats, and when a replica counts as lost: its connection ended, or it made no progress for
haMaxTimeSlaveNotCatchup. ``replica`` is one connection. Must not know who is in the set. Invariants: a replica has one
connection, and reports of a former one are not posted after it has shaken hands again; of two brokers with one brokerId
the first one stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import structlog
from msgspec.structs import replace

from eruca.broker.failover.events import Asked, ReplicaLost, Reported, Welcomed
from eruca.broker.failover.in_sync import Report
from eruca.broker.failover.member import State
from eruca.broker.services.failover import messages
from eruca.broker.services.failover.messages import Beat, Hello, Kind
from eruca.broker.services.failover.ports import Posts
from eruca.broker.services.failover.replica import Replica
from eruca.broker.services.failover.tables import Tables
from eruca.broker.services.failover.tails import Log, Tail, has
from eruca.protocol.errors import ProtocolError
from eruca.remoting.log_repeats import Repeats
from eruca.remoting.tasks import Tasks, end

BEAT_EVERY = 0.5
"""Seconds between two heartbeats."""

log = structlog.get_logger("eruca.broker.failover")


class Pace(NamedTuple):
    """What settings say."""

    batch: int = 32 << 10
    """Bytes of a message, at most (haTransferBatchSize)."""
    catch_up: float = 3.0
    """Seconds without progress after which a replica counts as lost (haMaxTimeSlaveNotCatchup)."""


class Replicas:
    """All replicas of this broker while it is the master."""

    driver: Posts
    """Whom to tell."""

    def __init__(
        self,
        group: str,
        log: Log,
        tables: Tables,
        tasks: Tasks,
        monotonic: Callable[[], int],
        pace: Pace | None = None,
    ) -> None:
        self.answered: dict[int, int] = {}
        """When the last heartbeat that each replica answered was sent, by ``monotonic`` (ms)."""
        self._group = group
        self._log = log
        self._tables = tables
        self._tasks = tasks
        self._monotonic = monotonic
        self._pace = pace or Pace()
        self._replicas: dict[int, Replica] = {}
        self._connections: set[Replica] = set()
        """Those that were not let in, too."""
        self._comparing: set[asyncio.Task[None]] = set()
        self._refusals = Repeats()
        self._beats: asyncio.Task[None] | None = None
        self._awake = False
        """Whether the next iteration of the loop sends."""

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Send heartbeats from now on."""
        self._beats = self._tasks.start("failover's heartbeats", self._beat())

    async def stop(self) -> None:
        """End all connections."""
        self.dismiss()
        for connection in self._connections:
            connection.abort()
        beats = [self._beats] if self._beats is not None else []
        await end([*beats, *self._comparing])
        await asyncio.gather(*(connection.gone for connection in self._connections))

    def protocol(self, address: str) -> asyncio.Protocol:
        """What serves a connection that was accepted."""
        connection = Replica(self, self.driver, self._log, self._tables, self._pace.batch)
        self._connections.add(connection)
        return connection

    def dismiss(self) -> None:
        """As in the port."""
        for replica in tuple(self._replicas.values()):
            self._let_go(replica)
        self.answered.clear()

    def written(self) -> None:
        """The log is longer."""
        for replica in tuple(self._replicas.values()):
            replica.go_on()

    def changed(self) -> None:
        """Tables have changed, or are about to: what has changed goes out after this iteration of the loop."""
        if not self._awake:
            self._awake = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._awake = False
        self.written()

    # ------------------------------------------------------------------ who is let in

    def greeted(self, replica: Replica, said: Hello) -> None:
        """Let a replica in, or tell it why not."""
        if (reason := self._why_not(said)) is not None:
            self._refuse(replica, said, reason)
        elif said.tail is None:
            self._let_in(replica, said)
        else:
            task = asyncio.get_running_loop().create_task(self._compare(replica, said, said.tail))
            self._comparing.add(task)
            task.add_done_callback(self._comparing.discard)

    async def _compare(self, replica: Replica, said: Hello, tail: Tail) -> None:
        """Let a replica in whose log has no epochs."""
        try:
            same = await asyncio.to_thread(has, self._log, tail)
        except Exception as fault:  # whatever it is: a replica that was not compared must not wait for ever
            self._refuse(replica, said, f"the log of this broker cannot be read: {fault!r}")
            return
        if (reason := self._why_not(said)) is not None:
            self._refuse(replica, said, reason)
        elif not replica.is_closing:
            replica.same = tail.end if same else 0
            self._let_in(replica, said)

    def _why_not(self, said: Hello) -> str | None:
        member = self.driver.member
        if said.group != self._group:
            return f"this broker is of the group {self._group}"
        if said.broker_id == member.broker_id:
            return f"it has the brokerId of the master, {said.broker_id}: give each broker of the name its own"
        former = self._replicas.get(said.broker_id)
        if former is not None and former.said is not None and former.said.store != said.store:
            return (
                f"another broker with brokerId {said.broker_id} is connected, {former.remote}: give each broker of the "
                "name its own"
            )
        epoch = member.known.group.master_epoch if member.known is not None else 0
        if member.state is not State.MASTER or epoch != said.epoch:
            return f"this broker is no master of epoch {said.epoch}: it is {member.state.value} in epoch {epoch}"
        return None

    def _refuse(self, replica: Replica, said: Hello, reason: str) -> None:
        again = self._refusals.failed((said.broker_id, reason))
        if again is not None:
            log.warning("replica_refused", remote=replica.remote, broker_id=said.broker_id, reason=reason, **again)
        replica.refuse(reason)

    def _let_in(self, replica: Replica, said: Hello) -> None:
        former = self._replicas.get(said.broker_id)
        if former is not None:
            self._let_go(former)
        self.answered.pop(said.broker_id, None)
        self._refusals.forget()
        replica.said = said
        replica.pending = self._tables.replica()
        self._replicas[said.broker_id] = replica
        log.info("replica_connected", remote=replica.remote, broker_id=said.broker_id)
        self.driver.post(Asked(said.broker_id))

    def _let_go(self, replica: Replica) -> None:
        """End the connection of a replica."""
        assert replica.said is not None
        replica.abort()
        self._tables.forget(replica.pending)
        del self._replicas[replica.said.broker_id]

    def ended(self, replica: Replica, reason: str) -> None:
        """The connection of a replica has ended, or of one that was not let in."""
        self._connections.discard(replica)
        said = replica.said
        if said is None:
            if replica.remote and not replica.refused:  # a TLS handshake that failed has its own line
                log.warning("replica_refused", remote=replica.remote, reason=reason)
        elif self._replicas.get(said.broker_id) is replica:
            self._let_go(replica)
            self.answered.pop(said.broker_id, None)
            log.info(
                "replica_lost",
                remote=replica.remote,
                broker_id=said.broker_id,
                acknowledged=replica.acknowledged,
                reason=reason,
            )
            self.driver.post(ReplicaLost(said.broker_id))

    def welcome(self, broker_id: int, answer: Welcomed) -> None:
        """As in the port."""
        replica = self._replicas.get(broker_id)
        if replica is not None:
            replica.send_message(messages.welcome(replace(answer, same=replica.same)))

    # ------------------------------------------------------------------ what they say

    def came(self, replica: Replica, kind: Kind, body: bytes) -> None:
        """A message of a replica that was let in, and no report. Raises ProtocolError."""
        assert replica.said is not None
        if kind is not Kind.HEARD:
            raise ProtocolError(f"a replica does not send {kind.name}")
        self.answered[replica.said.broker_id] = messages.read_heard(body)

    def reported(self, replica: Replica, body: bytes) -> None:
        """A report. Raises ProtocolError."""
        epoch, reached, number = messages.read_report(body)
        said, end, sent = replica.said, self._log.safe_offset, replica.pending.number
        assert said is not None
        if reached > end or number > sent:
            raise ProtocolError(
                f"it reports {reached} with tables {number}, and the log ends at {end}, with tables {sent}"
            )
        if not replica.begun:
            start = self._first(replica, reached)
            if start is None:
                return
            replica.progressed_at = replica.heard_at
            replica.begin(start)
        elif reached > replica.acknowledged or number > replica.has_tables or (reached >= end and number >= sent):
            replica.progressed_at = replica.heard_at
            replica.lost = False
        replica.acknowledged, replica.has_tables = reached, number
        if number and not replica.lost:
            self.driver.post(Reported(Report(said.broker_id, said.store, epoch, reached, number), end))

    def _first(self, replica: Replica, reached: int) -> int | None:
        """Where its copy goes on; an empty log begins at the oldest byte. None if that was deleted."""
        begin = self._log.begin_offset
        if reached and reached < begin:
            replica.refuse(
                f"its log ends at {reached}, and what follows was deleted here (up to {begin}): empty its store"
            )
            return None
        return max(reached, begin)

    async def _beat(self) -> None:
        """Heartbeats, offsets that were committed meanwhile, and a look at who makes no progress."""
        while True:
            await asyncio.sleep(BEAT_EVERY)
            self._tables.gather()
            member, now = self.driver.member, asyncio.get_running_loop().time()
            for broker_id, replica in tuple(self._replicas.items()):
                if now - replica.heard_at > self._pace.catch_up:
                    replica.abort()  # its end is posted when it has ended
                    continue
                if not replica.begun:
                    continue
                replica.send_message(messages.beat(Beat(member.epoch, member.confirmed, self._monotonic())))
                if replica.acknowledged >= self._log.safe_offset and replica.has_tables >= replica.pending.number:
                    replica.progressed_at = now
                elif now - replica.progressed_at > self._pace.catch_up and not replica.lost:
                    replica.lost = True
                    log.warning("replica_stuck", broker_id=broker_id, acknowledged=replica.acknowledged)
                    self.driver.post(ReplicaLost(broker_id))
