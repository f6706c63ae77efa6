"""Assignment: the queues of a lite pull consumer, allocated in its group or assigned by the user, and their pullers.

Owns that a queue has one process queue at most, also if it is sought, assigned, paused or reset meanwhile. Invariant:
when ``assign`` or ``seek`` has returned, no message of the old process queue is polled. Facts: AssignedMessageQueue and
DefaultLitePullConsumerImpl.seek, assign, pause in 4.9.7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic

from eruca.client.consuming.consumer_stats import ConsumerStats
from eruca.client.consuming.member_options import MemberOptions
from eruca.client.consuming.process_queue import QueueLimits
from eruca.client.consuming.queue_puller import MessageFilter, PullOptions, QueuePuller
from eruca.client.consuming.rebalance import Rebalance
from eruca.client.network.session import Session
from eruca.client.polling.message_cache import MessageCache, PolledQueue
from eruca.client.polling.queue_share import QueueListeners
from eruca.protocol.bodies import SubscriptionData
from eruca.protocol.queues import MessageQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class PollOptions:
    """How the queues of a lite pull consumer are pulled ahead.

    Args:
        auto_commit: polling more commits what was polled before.
        pull: how pulls are made.
        limits: how much of one queue may wait to be polled.
        threshold: how much of all queues may wait, in pulls times pull.batch_size (pullThresholdForAll).
    """

    auto_commit: bool
    pull: PullOptions
    limits: QueueLimits
    threshold: int


class Assignment:
    """The queues of one lite pull consumer. ``listeners`` are called by topic when its queues are allocated."""

    def __init__(
        self,
        session: Session,
        group: str,
        subscriptions: Mapping[str, SubscriptionData],
        member: MemberOptions,
        options: PollOptions,
        cache: MessageCache,
        listeners: QueueListeners,
        message_filter: MessageFilter | None,
    ) -> None:
        self._session = session
        self._group = group
        self._subscriptions = subscriptions
        self._options = options
        self._cache = cache
        self._listeners = listeners
        self._message_filter = message_filter
        self._offset_store = member.offset_store(session, group)
        self._paused: set[MessageQueue] = set()
        self.stats = ConsumerStats(monotonic())
        """What was pulled."""
        self.rebalance: Rebalance[QueuePuller[PolledQueue]] = Rebalance(
            session, group, subscriptions, member, self._offset_store, open=self._open, notify=self._shared_out
        )

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """The queues of this consumer."""
        return self.rebalance.queues

    def process_queue(self, queue: MessageQueue) -> PolledQueue | None:
        """The process queue of a queue; None if it was dropped or the queue is not open yet."""
        puller = self.rebalance.readers.get(queue)
        return None if puller is None or puller.process_queue.dropped else puller.process_queue

    def _open(self, queue: MessageQueue, offset: int) -> QueuePuller[PolledQueue]:
        return QueuePuller(
            self._session,
            self._group,
            PolledQueue(queue, offset, auto_commit=self._options.auto_commit),
            self._subscriptions[queue.topic],
            self._options.limits,
            self._options.pull,
            deliver=self._cache.put,
            moved=self.rebalance.moved,
            may_pull=self._may_pull,
            filter_messages=self._message_filter,
            stats=self.stats[queue.topic],
        )

    def _may_pull(self, queue: MessageQueue) -> bool:
        if queue in self._paused:
            return False
        if not self._is_full():
            return True
        self._cache.sweep()
        return not self._is_full()

    def _is_full(self) -> bool:
        return len(self._cache) * self._options.pull.batch_size > self._options.threshold

    def _shared_out(self, topic: str, queues: Collection[MessageQueue]) -> None:
        self._paused.intersection_update(self.rebalance.readers)
        self._cache.sweep()
        self._listeners.call(topic, queues, self.rebalance.readers)

    async def close(self) -> None:
        """Let another broadcasting member have the file of the offsets."""
        await self._offset_store.close()

    # ------------------------------------------------------------------ what the user changes

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Have exactly these queues from now on."""
        self.rebalance.assign(queues)
        self._paused.intersection_update(self.queues)
        self._cache.sweep()

    async def seek(self, queue: MessageQueue, offset: int) -> bool:
        """Continue at this offset, whatever was pulled; False if the queue is no longer this consumer's."""
        rebalance = self.rebalance
        async with rebalance.turn:
            if queue not in self.queues or rebalance.stopped:
                return False
            before = self.process_queue(queue)
            puller = rebalance.seek(queue, offset)
            self._cache.sweep()
            if before is not None and not self._options.auto_commit:
                puller.process_queue.follow(before)  # what was committed stays committed
            return True

    def subscriptions_changed(self) -> None:
        """Pull again what waits, by the new filters: pulls that brokers hold carry the old ones."""
        for queue, puller in tuple(self.rebalance.readers.items()):
            old, new = puller.subscription, self._subscriptions.get(queue.topic)
            if new is None or puller.process_queue.dropped:
                continue
            if (old.sub_string, old.expression_type) != (new.sub_string, new.expression_type):
                position = puller.process_queue.position
                self._cache.replace(puller.process_queue, self.rebalance.reopen(queue, position).process_queue)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop pulling these queues."""
        self._paused.update(self.queues.intersection(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues again."""
        self._paused.difference_update(queues)

    async def commit(
        self, queues: Collection[MessageQueue], offsets: Mapping[MessageQueue, int], *, persist: bool
    ) -> None:
        """Commit what was polled of these queues, or of a queue everything before its offset.

        With ``persist`` returns when it is stored. Raises ClientError after all others are stored.
        """
        readers = self.rebalance.readers
        if not offsets.keys() <= readers.keys():  # assigned and not open yet
            async with self.rebalance.turn:
                await self._save({queue: at for queue, at in offsets.items() if queue not in readers})
        open_queues = {queue: self.process_queue(queue) for queue in queues}
        stored = {queue: each.commit(offsets.get(queue)) for queue, each in open_queues.items() if each is not None}
        if persist:
            await self._save(stored)

    async def _save(self, offsets: Mapping[MessageQueue, int]) -> None:
        saves = (self._offset_store.save(queue, offset) for queue, offset in offsets.items())
        for failed in await asyncio.gather(*saves, return_exceptions=True):
            if failed is not None:
                raise failed

    async def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of a queue; None if there is none. Raises ClientError."""
        process_queue = self.process_queue(queue)
        if process_queue is None or process_queue.to_store is None:
            return await self._offset_store.load(queue)
        return process_queue.to_store
