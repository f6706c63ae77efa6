"""Which queues a lite pull consumer has: shared out in its group, or named by the user.

Owns that a queue has at most one run also when it is sought, named anew, paused or reset meanwhile; the last offsets
are those of ``Rebalance``. Invariant: when ``assign`` or ``seek`` has returned, no message of the old run is polled.
Facts: AssignedMessageQueue and DefaultLitePullConsumerImpl.seek, assign, pause in 4.9.7.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

from eruca.client import callbacks
from eruca.client.consuming.offset_store import OffsetStore
from eruca.client.consuming.process_queue import ProcessQueue
from eruca.client.consuming.queue_puller import PullOptions, QueuePuller
from eruca.client.consuming.rebalance import Reading, Rebalance
from eruca.client.log import log
from eruca.client.message import ReceivedMessage
from eruca.client.network.session import Session
from eruca.client.polling.polled import Cache, PolledQueue
from eruca.protocol.bodies import SubscriptionData
from eruca.protocol.queues import MessageQueue

MessageQueueListener = Callable[[str, list[MessageQueue], list[MessageQueue]], Awaitable[None] | None]
"""Told of a topic, all its queues, and those that this member has now."""


class Assigned(Rebalance):
    """The queues of one lite pull consumer.

    ``threshold`` bounds what waits to be polled: batches times pull_batch. ``listeners`` are told by topic when its
    queues are shared out anew.
    """

    def __init__(
        self,
        session: Session,
        group: str,
        subscriptions: Mapping[str, SubscriptionData],
        reading: Reading,
        positions: OffsetStore,
        cache: Cache,
        *,
        auto: bool,
        threshold: int,
        manner: PullOptions,
        listeners: Mapping[str, MessageQueueListener],
    ) -> None:
        super().__init__(session, group, subscriptions, reading, positions, self._keep)
        self.named: frozenset[MessageQueue] | None = None
        """The queues that the user named; None when they are shared out in the group."""
        self._cache = cache
        self._auto = auto
        self._threshold = threshold
        self._manner = manner
        self._telling = Telling(session, listeners)
        self._paused: set[MessageQueue] = set()

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """The queues that this consumer has."""
        return frozenset(self.readers) if self.named is None else self.named

    def runs(self) -> dict[MessageQueue, PolledQueue]:
        """The runs that go on."""
        return {
            queue: reader.run
            for queue, reader in self.readers.items()
            if isinstance(reader.run, PolledQueue) and not reader.run.dropped
        }

    def _keep(self, run: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        assert isinstance(run, PolledQueue)
        self._cache.put(run, messages)

    # ------------------------------------------------------------------ queues that the user names

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Have these queues and no others, from now on."""
        self.named = frozenset(queues)
        self._paused &= self.named
        ended = [(queue, self._drop(queue)) for queue in tuple(self.readers) if queue not in self.named]
        self._cache.sweep()
        self._session.spawn(self._change(ended))

    async def _change(self, ended: list[tuple[MessageQueue, int | None]]) -> None:
        await self._let_go_all(ended)
        await self.rebalance()

    async def rebalance(self) -> None:
        """Take and give up queues; of named ones those that could not be taken yet."""
        if self.named is None:
            return await super().rebalance()
        self.complete = False
        async with self._turn:
            missing = [queue for queue in sorted(self.named) if queue not in self.readers]
            self.complete = self._stopped or all(await asyncio.gather(*(self._take(queue) for queue in missing)))

    async def _shared_out(self, topic: str, queues: Collection[MessageQueue]) -> None:
        mine = sorted(queue for queue in self.readers if queue.topic == topic)
        self._paused &= self.readers.keys()
        self._cache.sweep()
        self._telling.tell(topic, sorted(queues), mine)

    # ------------------------------------------------------------------ going on from elsewhere

    async def seek(self, queue: MessageQueue, offset: int) -> bool:
        """Go on from this offset, whatever was pulled; False when the queue is not this consumer's any more."""
        async with self._turn:
            if queue not in self.queues or self._stopped:
                return False
            run = self.runs().get(queue)
            if queue in self.readers:
                self._end_run(queue)
                self._cache.sweep()
            self._resets.pop(queue, None)
            self._begin(queue, offset)
            if run is not None and not self._auto:
                self.runs()[queue].follow(run)  # what was committed stays so
            return True

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these no more for now."""
        self._paused.update(self.queues.intersection(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these again."""
        self._paused.difference_update(queues)

    async def commit(
        self, queues: Collection[MessageQueue], offsets: Mapping[MessageQueue, int], *, persist: bool
    ) -> None:
        """All that was handed out of these queues is consumed, or of a queue all before its offset.

        With ``persist`` returns when it is stored. Raises ClientError, all others being stored.
        """
        if not offsets.keys() <= self.readers.keys():  # named, and not taken yet
            async with self._turn:
                await self._save({queue: at for queue, at in offsets.items() if queue not in self.readers})
        runs = self.runs()
        stored = {queue: runs[queue].commit(offsets.get(queue)) for queue in queues if queue in runs}
        if persist:
            await self._save(stored)

    async def _save(self, offsets: Mapping[MessageQueue, int]) -> None:
        results = await asyncio.gather(
            *(self._positions.save(queue, offset) for queue, offset in offsets.items()), return_exceptions=True
        )
        for failed in results:
            if failed is not None:
                raise failed

    async def stored(self, queue: MessageQueue) -> int | None:
        """The offset that is stored of a queue. Raises ClientError."""
        return await self._positions.load(queue)

    # ------------------------------------------------------------------ reading

    def _filter(self, reader: QueuePuller, subscription: SubscriptionData) -> None:
        """Pull what waits again by the new filter: a pull that a broker holds carries the old one."""
        old, run = reader.subscription, reader.run
        if (old.sub_string, old.expression_type) == (subscription.sub_string, subscription.expression_type):
            return
        assert isinstance(run, PolledQueue)
        position = run.position
        self._end_run(run.queue)
        self._begin(run.queue, position)
        self._cache.replace(run, self.runs()[run.queue])

    def _begin(self, queue: MessageQueue, offset: int) -> None:
        if self.named is not None and queue not in self.named:
            return
        self.readers[queue] = QueuePuller(
            self._session,
            self._group,
            PolledQueue(queue, offset, auto=self._auto),
            self._subscriptions[queue.topic],
            self._reading.limits,
            self._reading.pull_batch,
            self._deliver,
            self._moved,
            commit=False,
            may_read=self._may_read,
            manner=self._manner,
            sift=self._reading.sift,
        )

    def _may_read(self, queue: MessageQueue) -> bool:
        if queue in self._paused:
            return False
        if not self._is_full():
            return True
        self._cache.sweep()
        return not self._is_full()

    def _is_full(self) -> bool:
        return len(self._cache) * self._reading.pull_batch > self._threshold


class Telling:
    """Calls the listeners of one consumer, that of a topic once at a time: what it is told last is what holds."""

    def __init__(self, session: Session, listeners: Mapping[str, MessageQueueListener]) -> None:
        self._session = session
        self._listeners = listeners
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def tell(self, topic: str, queues: list[MessageQueue], mine: list[MessageQueue]) -> None:
        """Call the listener of a topic, if there is one, in the background; what it raises goes to the log."""
        self._session.spawn(self._call(topic, queues, mine))

    async def _call(self, topic: str, queues: list[MessageQueue], mine: list[MessageQueue]) -> None:
        async with self._turns[topic]:
            if topic in self._listeners:
                try:
                    await callbacks.call(self._listeners[topic], topic, queues, mine)
                except Exception:
                    log.exception("the listener for the queues of %s failed", topic)
