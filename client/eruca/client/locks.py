"""The locks of an ordered group: while a member holds a queue's lock at the broker, nobody else reads it in order.

Owns the requests 41 and 42, and when a lock counts as lost here: earlier than at the broker, so that two members never
both believe to hold one. Facts: RebalanceImpl.lock, lockAll and unlock, ProcessQueue.isLockExpired in 4.9.7.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable

from eruca.client.errors import BadAnswer, ClientError
from eruca.client.log import log
from eruca.client.session import Session
from eruca.protocol import api
from eruca.protocol.bodies import LockBatchAnswer, LockBatchRequest
from eruca.protocol.errors import ProtocolError
from eruca.protocol.queues import MessageQueue

LIFETIME = 30.0
"""Seconds after which a lock that was not renewed counts as lost here; at the broker it lives 60."""
RENEW_AFTER = 20.0
"""Seconds between two renewals."""
TIMEOUT = 1.0


class QueueLocks:
    """The locks of one member; ``clock`` gives seconds that never go back."""

    def __init__(self, session: Session, group: str, clock: Callable[[], float]) -> None:
        self._session = session
        self._group = group
        self._clock = clock
        self._until: dict[MessageQueue, float] = {}
        """Until when each lock counts; 0 for one that was lost and is wanted again."""

    def held(self, queue: MessageQueue) -> bool:
        """Whether the lock is held now. May be called by any thread."""
        return self._until.get(queue, 0.0) > self._clock()

    async def take(self, queue: MessageQueue) -> bool:
        """Lock a queue at its broker; False when another member has it or the broker cannot be asked."""
        return queue in await self._lock(queue.broker_name, [queue])

    async def renew(self) -> None:
        """Lock all queues again, one request to each broker; those that are not granted are lost."""
        by_broker: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in self._until:
            by_broker[queue.broker_name].append(queue)
        await asyncio.gather(*(self._lock(broker, queues) for broker, queues in by_broker.items()))

    async def _lock(self, broker: str, queues: list[MessageQueue]) -> set[MessageQueue]:
        asked = self._clock()  # the broker's time begins later, so the lock ends here first
        try:
            address = await self._session.master(broker, queues[0].topic)
            answer = await self._session.call(address, api.LOCK_BATCH_MQ, body=self._body(queues), timeout=TIMEOUT)
            granted = set(LockBatchAnswer.decode(answer.body).locked)
        except ProtocolError as error:
            log.warning("%s", BadAnswer(f"the answer of {broker} to a lock cannot be read: {error}"))
            return set()
        except ClientError as error:
            log.warning("the locks at %s cannot be taken or renewed now: %s", broker, error)
            return set()
        for queue in queues:
            if queue in granted:
                self._until[queue] = asked + LIFETIME
            elif queue in self._until:
                log.warning("the lock of %s was lost", queue)
                self._until[queue] = 0.0
        return granted

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        """Give locks back; returns when the brokers have confirmed, so that other members can take them at once."""
        by_broker: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            if self._until.pop(queue, None) is not None:
                by_broker[queue.broker_name].append(queue)
        await asyncio.gather(*(self._unlock(broker, queues) for broker, queues in by_broker.items()))

    async def _unlock(self, broker: str, queues: list[MessageQueue]) -> None:
        try:
            address = await self._session.master(broker)
            await self._session.call(address, api.UNLOCK_BATCH_MQ, body=self._body(queues), timeout=TIMEOUT)
        except ClientError as error:
            log.warning("%s could not be unlocked, others get them after 60 s: %s", queues, error)

    def _body(self, queues: list[MessageQueue]) -> bytes:
        return LockBatchRequest(client_id=self._session.client_id, consumer_group=self._group, mq_set=queues).encode()
