"""Queue locks of an orderly group: a member pulls a queue only while it holds the queue's lock at the broker.

Owns requests 41 and 42, and when a lock counts as lost: earlier here than at the broker, so that two members never both
believe to hold it, and together with the connection that obtained it, since a restarted broker knows no locks.
Invariants: a lost lock counts again only after ``catch_up``, as another member may have consumed the queue meanwhile; a
released lock is not obtained again by an answer that was in flight. Facts: RebalanceImpl.lock, lockAll and unlock,
ProcessQueue.isLockExpired in 4.9.7.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping

from eruca.client.errors import BadAnswer, ClientError
from eruca.client.log import Warnings, log
from eruca.client.network.session import Session
from eruca.protocol import api
from eruca.protocol.bodies import LockBatchAnswer, LockBatchRequest
from eruca.protocol.errors import ProtocolError
from eruca.protocol.queues import MessageQueue
from eruca.remoting import Connection

TIMEOUT = 1.0


def seconds() -> float:
    """A monotonic clock that, where the system has one, continues while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Lock:
    """The lock of one queue: until when it counts, and the connection that obtained it."""

    __slots__ = ("connection", "until")

    def __init__(self) -> None:
        self.until = 0.0
        self.connection: Connection | None = None

    def counts(self, now: float) -> bool:
        """Whether it is held."""
        return self.until > now and self.connection is not None and not self.connection.closed


class QueueLocks:
    """The locks of one member; ``clock`` returns seconds. Their lifetime is a setting of the session.

    ``catch_up`` runs before a lost lock counts again; it returns whether the offset to continue from is known.
    """

    def __init__(self, session: Session, group: str, clock: Callable[[], float] = seconds) -> None:
        self.catch_up: Callable[[MessageQueue], Awaitable[bool]] | None = None
        self._session = session
        self._group = group
        self._clock = clock
        self._locks: dict[MessageQueue, Lock] = {}
        self._warnings = Warnings()

    def held(self, queue: MessageQueue) -> bool:
        """Whether the lock is held now. Thread-safe."""
        lock = self._locks.get(queue)
        return lock is not None and lock.counts(self._clock())

    def wanted(self, queue: MessageQueue) -> bool:
        """Whether the lock was obtained and not released, even if it was lost."""
        return queue in self._locks

    @property
    def all(self) -> list[MessageQueue]:
        """The queues whose locks were obtained and not released."""
        return list(self._locks)

    async def take(self, queue: MessageQueue) -> bool:
        """Lock a queue at its broker; False if another member holds the lock or the broker is unreachable."""
        known = queue in self._locks
        lock = self._locks.setdefault(queue, Lock())
        await self._lock(queue.broker_name, {queue: lock})
        if self._locks.get(queue) is not lock:
            return False
        if not known and not lock.counts(self._clock()):
            del self._locks[queue]
        return lock.counts(self._clock())

    async def renew(self) -> None:
        """Renew all locks with one request per broker; a lock that the broker refuses is lost."""
        by_broker: dict[str, dict[MessageQueue, Lock]] = defaultdict(dict)
        for queue, lock in self._locks.items():
            by_broker[queue.broker_name][queue] = lock
        await asyncio.gather(*(self._lock(broker, locks) for broker, locks in by_broker.items()))

    async def _lock(self, broker: str, locks: Mapping[MessageQueue, Lock]) -> None:
        asked = self._clock()  # the lifetime starts later at the broker, so the lock ends here first
        queues = list(locks)
        try:
            address = await self._session.master(broker, queues[0].topic)
            connection = await self._session.connection(address)
            answer = await self._session.call(address, api.LOCK_BATCH_MQ, body=self._body(queues), timeout=TIMEOUT)
            granted = set(self._session.names.queues_from_broker(LockBatchAnswer.decode(answer.body).locked))
        except ProtocolError as error:
            log.warning("%s", BadAnswer(f"the answer of {broker} to a lock cannot be read: {error}"))
        except ClientError as error:
            self._warnings.warn(broker, f"the locks at {broker} cannot be taken or renewed now: {error}")
        else:
            self._warnings.forget(broker)
            until = asked + self._session.settings.lock_lifetime
            await asyncio.gather(
                *(
                    self._granted(queue, lock, until, connection) if queue in granted else self._refused(queue, lock)
                    for queue, lock in locks.items()
                )
            )

    async def _granted(self, queue: MessageQueue, lock: Lock, until: float, connection: Connection) -> None:
        lost = lock.until and not lock.counts(self._clock())
        if lost and self._locks.get(queue) is lock and self.catch_up is not None and not await self.catch_up(queue):
            return
        lock.until, lock.connection = until, connection

    async def _refused(self, queue: MessageQueue, lock: Lock) -> None:
        if lock.counts(self._clock()):
            log.warning("the lock of %s was lost", queue)
        lock.connection = None

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        """Release locks; returns when the brokers have confirmed, so that other members can lock at once."""
        by_broker: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            if self._locks.pop(queue, None) is not None:
                by_broker[queue.broker_name].append(queue)
        await asyncio.gather(*(self._unlock(broker, queues) for broker, queues in by_broker.items()))

    async def _unlock(self, broker: str, queues: list[MessageQueue]) -> None:
        try:
            address = await self._session.master(broker)
            await self._session.call(address, api.UNLOCK_BATCH_MQ, body=self._body(queues), timeout=TIMEOUT)
        except ClientError as error:
            log.warning("%s could not be unlocked, others get them when the locks expire: %s", queues, error)

    def _body(self, queues: list[MessageQueue]) -> bytes:
        known = self._session.names
        return LockBatchRequest(
            client_id=self._session.client_id,
            consumer_group=known.to_broker(self._group),
            mq_set=known.queues_to_broker(queues),
        ).encode()
