"""Which queues this member of a group owns, and from where it reads them.

Owns the runs: one at a time of each queue, begun when the queue is assigned, when the group is reset, or when the
broker says that the offset is outside the queue. Rebalance, reset and stop never overlap. Invariant: an offset is
stored only as the position of a run that is not dropped, or as the offset of a reset; so neither a listener that ends
late nor a rebalance can put a stale offset over a new one. Facts: RebalanceImpl and resetOffset in 4.9.7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from eruca.client.assign import Strategy, sort_clients
from eruca.client.consuming.consumer_stats import ConsumerStats
from eruca.client.consuming.listeners import clock
from eruca.client.consuming.offset_store import OffsetStore
from eruca.client.consuming.orderly import Orderly
from eruca.client.consuming.process_queue import Limits, ProcessQueue
from eruca.client.consuming.queue_puller import PullOptions, QueuePuller, Reads
from eruca.client.consuming.suspension import Gate
from eruca.client.errors import BrokerRefused, ClientError, TopicNotFound, UsageError
from eruca.client.log import log
from eruca.client.message import ReceivedMessage
from eruca.client.network import brokers
from eruca.client.network.session import Session
from eruca.protocol import names
from eruca.protocol.bodies import SubscriptionData
from eruca.protocol.queues import MessageQueue

HAND_OVER = 0.1
"""Seconds for which another member may store its last positions before its queues are taken: brokers tell all members
of a change at once, and a position that comes too late means messages twice."""
_CONFIRM_TIMES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How queues are read: ``start_from`` is first, last, end or a time in ms; the others as in PushConsumer.

    ``broadcast``: this member gets everything, whoever else is in the group. QueuePuller tells of ``sift``, ``kind``,
    ``gate`` and ``manner``; ``paces`` count by topic.
    """

    start_from: str | int
    strategy: Strategy
    limits: Limits
    pull_batch: int
    broadcast: bool = False
    store_start: bool = True
    """Whether to store where the group begins when it has no offset."""
    sift: Callable[[MessageQueue, list[ReceivedMessage]], list[ReceivedMessage]] | None = None
    kind: type[ReceivedMessage] = ReceivedMessage
    paces: ConsumerStats | None = None
    gate: Gate | None = None
    manner: PullOptions = field(default_factory=PullOptions)


class Rebalance:
    """The queues of one member.

    ``deliver`` gets the messages of each run; ``order`` says which queues may be read and let go where the order of
    messages counts.
    """

    def __init__(
        self,
        session: Session,
        group: str,
        subscriptions: Mapping[str, SubscriptionData],
        reading: Reading,
        positions: OffsetStore,
        deliver: Callable[[ProcessQueue, list[ReceivedMessage]], None],
        order: Orderly | None = None,
    ) -> None:
        self.readers: dict[MessageQueue, Reads] = {}
        self.members: list[str] = []
        """The client ids of the group, as of the last rebalance."""
        self.complete = False
        """Whether the last rebalance could do everything; if not, another one is wanted soon."""
        self._session = session
        self._group = group
        self._subscriptions = subscriptions
        self._reading = reading
        self._positions = positions
        self._deliver = deliver
        self._order = order
        self._turn = asyncio.Lock()
        self._stopped = False
        self._resets: dict[MessageQueue, int] = {}
        """Where to go on in queues whose old run has ended and whose new one has not begun."""
        self._leaving: set[MessageQueue] = set()
        """Queues that are being given up: their last position is on its way."""
        if order is not None:
            order.catch_up_by(self._catch_up)

    # ------------------------------------------------------------------ who owns what

    async def rebalance(self) -> None:
        """Give up and take queues as the group's members are now. Raises what the strategy raises."""
        self.complete, complete = False, True
        async with self._turn:
            if not self._stopped:  # what a listener had a part of was kept until now
                complete = await self._give_up(self._unsubscribed())
            for topic in tuple(self._subscriptions):
                if self._stopped:
                    break
                try:
                    complete &= await self._rebalance_topic(topic)
                except ClientError as error:
                    if isinstance(error, UsageError):  # of the strategy
                        raise
                    if not isinstance(error, TopicNotFound):
                        log.warning("the queues of %s cannot be shared out now: %s", topic, error)
                        complete = False
        self.complete = complete

    async def _rebalance_topic(self, topic: str) -> bool:
        session = self._session
        route = await session.directory.route(topic)
        owned = [queue for queue in self.readers if queue.topic == topic]
        try:
            clients = [session.client_id] if self._reading.broadcast else await session.members(self._group, topic)
        except BrokerRefused as error:
            log.warning("the members of %s are not known yet: %s", self._group, error)
            session.spawn(session.beat())  # perhaps the broker refused the last one
            return False
        self.members = clients
        change = plan_change(session.client_id, clients, route.to_read, owned, self._reading.strategy)
        self._stay(set(owned).difference(change.give_up))
        given_up = await self._give_up(change.give_up)
        if change.take and len(clients) > 1:
            await asyncio.sleep(HAND_OVER)
        taken = await asyncio.gather(*(self._take(queue) for queue in change.take))
        if change.give_up or change.take:
            self._share_room(topic)
            await self._shared_out(topic, route.to_read)
            log.info("%s of %s: gave up %s, took %s", self._group, topic, change.give_up, change.take)
        return given_up and all(taken) and session.client_id in clients

    async def _shared_out(self, topic: str, queues: Collection[MessageQueue]) -> None:
        """The queues of a topic are shared out in another way; all of them are given."""

    def _stay(self, queues: Iterable[MessageQueue]) -> None:
        if self._order is not None:
            for queue in queues:
                self._order.stay(queue)

    async def give_up_unsubscribed(self) -> None:
        """Give up the queues of topics that are subscribed no more."""
        async with self._turn:
            await self._give_up(self._unsubscribed())

    def _unsubscribed(self) -> list[MessageQueue]:
        return [queue for queue in self.readers if queue.topic not in self._subscriptions]

    def filter_anew(self) -> None:
        """Read each topic by the filter that it is subscribed with now; to be called before brokers are told of it.

        One that knows it may answer by it at any time, and nothing of that may be left out here.
        """
        for queue, reader in tuple(self.readers.items()):
            subscription = self._subscriptions.get(queue.topic)
            if subscription is not None and isinstance(reader, QueuePuller) and not reader.run.dropped:
                self._filter(reader, subscription)

    def _filter(self, reader: QueuePuller, subscription: SubscriptionData) -> None:
        """Go on with another filter."""
        reader.subscription = subscription

    def pull_anew(self) -> None:
        """Brokers know the filters of now: pulls that they hold by others wait no longer."""
        for reader in self.readers.values():
            if isinstance(reader, QueuePuller):
                reader.pull_anew()

    async def _give_up(self, queues: Iterable[MessageQueue], *, at_once: bool = False) -> bool:
        """End the runs, their positions stored, so that the next owner goes on from there.

        A queue whose order counts is kept while a listener has a part of it: then False, and with ``at_once`` its run
        ends, but not its lock.
        """
        queues = list(queues)
        free = set(queues)
        if self._order is not None:
            # A position is stored only under the lock: try to get back what was lost.
            await asyncio.gather(*(self._order.enter(queue) for queue in queues if not self._order.held(queue)))
            left = await asyncio.gather(*(self._order.leave(queue) for queue in queues))
            free = {queue for queue, idle in zip(queues, left, strict=True) if idle}
        await self._let_go_all([(queue, self._drop(queue)) for queue in queues if at_once or queue in free])
        if self._order is not None:
            await self._order.left(free)
        return len(free) == len(queues)

    async def _let_go_all(self, ended: Sequence[tuple[MessageQueue, int | None]]) -> None:
        self._leaving.update(queue for queue, _ in ended)
        await asyncio.gather(*(self._let_go(queue, position) for queue, position in ended))

    async def _let_go(self, queue: MessageQueue, position: int | None) -> None:
        """Store the last position; a reset that comes meanwhile goes over it, as the next owner may not see it."""
        last = self._resets.pop(queue) if queue in self._resets else position if self._may_store(queue) else None
        if last is not None:
            await self._store(queue, last)
        if queue in self._resets:
            await self._store(queue, self._resets.pop(queue))
        self._leaving.discard(queue)

    def _drop(self, queue: MessageQueue) -> int | None:
        """End the run of a queue, and let go of it; its last position."""
        position = self.readers[queue].run.to_store
        self._end_run(queue)
        del self.readers[queue]
        return position

    def _end_run(self, queue: MessageQueue) -> None:
        reader = self.readers[queue]
        reader.run.drop()
        reader.stop()

    async def _take(self, queue: MessageQueue) -> bool:
        if self._order is not None and not await self._order.enter(queue):
            log.info("%s is locked by another member, trying again soon", queue)
            return False
        try:
            stored = await self._positions.load(queue)
            if stored == 0 and self._reading.start_from == "end" and not await self._positions.has(queue):
                stored = None
            start = stored if stored is not None else await self._first_offset(queue)
        except ClientError as error:
            log.warning("%s cannot be read now: %s", queue, error)
            await self._unlock(queue)
            return False
        if self._stopped:
            await self._unlock(queue)
        else:
            self._begin(queue, start)
            if not stored and self._reading.store_start:
                # A broker says 0 for a young queue without an offset, too. Stored, the group can be reset from now on.
                await self._store(queue, start)
        return True

    async def _unlock(self, queue: MessageQueue) -> None:
        """Leave a queue to others that was locked and not begun."""
        if self._order is not None:
            await self._order.left([queue])

    async def _catch_up(self, queue: MessageQueue) -> bool:
        """After a lost lock: go on behind what another member may have consumed meanwhile. False: nobody can say."""
        try:
            stored = await self._positions.load(queue)
        except ClientError as error:
            log.warning("%s cannot be read now: %s", queue, error)
            return False
        reader = self.readers.get(queue)
        if reader is not None and stored is not None and stored > reader.run.position:
            self.reset({queue: stored})
        return True

    async def _first_offset(self, queue: MessageQueue) -> int:
        """Where a group begins that never stored an offset."""
        start = self._reading.start_from
        if start == "first" or (names.is_retry_topic(queue.topic) and start in ("last", "end")):
            return await brokers.min_offset(self._session, queue)
        if isinstance(start, int) and not names.is_retry_topic(queue.topic):
            return await brokers.offset_by_time(self._session, queue, start)
        return await brokers.max_offset(self._session, queue)

    def _begin(self, queue: MessageQueue, offset: int) -> None:
        run = ProcessQueue(queue, offset)
        run.consumed_at = clock()
        self.readers[queue] = QueuePuller(
            self._session,
            self._group,
            run,
            self._subscriptions[queue.topic],
            self._limits_of(queue.topic),
            self._reading.pull_batch,
            self._deliver,
            self._moved,
            commit=self._positions.with_pulls,
            may_read=None if self._order is None else self._order.may_read,
            sift=self._reading.sift,
            pace=None if self._reading.paces is None else self._reading.paces[queue.topic],
            kind=self._reading.kind,
            gate=self._reading.gate,
            manner=self._reading.manner,
        )

    def _limits_of(self, topic: str) -> Limits:
        """How much may wait of each queue of a topic, by how many this member has."""
        return self._reading.limits.of_one(sum(1 for queue in self.readers if queue.topic == topic))

    def _share_room(self, topic: str) -> None:
        """After a change of queues: let each have its part of what may wait of the topic."""
        limits = self._limits_of(topic)
        for queue, reader in self.readers.items():
            if queue.topic == topic and isinstance(reader, QueuePuller):
                reader.limits = limits

    # ------------------------------------------------------------------ going on from elsewhere

    def reset(self, table: Mapping[MessageQueue, int]) -> None:
        """Go on from these offsets in those queues that are owned: end their runs now, then begin others.

        From here on nothing that was consumed under the old runs moves an offset.
        """
        ended = {queue: self.readers[queue].run for queue in table if queue in self.readers}
        for queue, offset in table.items():
            if queue in self.readers:
                self._end_run(queue)
            if queue in self.readers or queue in self._leaving:
                self._resets[queue] = offset
        self._session.spawn(self._reset(table, ended))

    async def _reset(self, table: Mapping[MessageQueue, int], ended: Mapping[MessageQueue, ProcessQueue]) -> None:
        async with self._turn:
            if self._stopped:
                return
            wanted = self.readers.keys() - self._unsubscribed()
            targets = {
                queue: self._resets.get(queue, offset)
                for queue, offset in table.items()
                if queue in wanted and ended.get(queue) in (None, self.readers[queue].run)
            }  # a run that was given up and taken again meanwhile began behind the reset
            for queue in targets:
                self._end_run(queue)
            await asyncio.gather(*(self._store_surely(queue, offset) for queue, offset in targets.items()))
            for queue, offset in targets.items():
                if self._resets.get(queue, offset) == offset:
                    self._resets.pop(queue, None)
                    self._begin(queue, offset)

    async def _store_surely(self, queue: MessageQueue, offset: int) -> None:
        """Store an offset, and look whether it is there: one that was on its way before must not remain."""
        for _ in range(_CONFIRM_TIMES):
            if not await self._store(queue, offset):
                return
            try:
                if await self._positions.load(queue) == offset:
                    return
            except ClientError as error:
                log.warning("the reset of %s to %s could not be confirmed: %s", queue, offset, error)
                return

    def _moved(self, run: ProcessQueue, offset: int) -> None:
        """The broker says that the run is outside of its queue, or was moved there: begin another at ``offset``."""
        if not run.dropped:
            self.reset({run.queue: offset})

    # ------------------------------------------------------------------ positions

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """The position in each owned queue of a topic; not of those where nothing is to be stored yet."""
        positions = {
            queue: self._resets.get(queue, reader.run.to_store)
            for queue, reader in self.readers.items()
            if queue.topic == topic
        }
        return {queue: position for queue, position in positions.items() if position is not None}

    def _may_store(self, queue: MessageQueue) -> bool:
        """Whether the position is still this member's to say."""
        return self._order is None or self._order.held(queue)

    async def _store(self, queue: MessageQueue, offset: int) -> bool:
        try:
            await self._positions.save(queue, offset)
        except ClientError as error:
            log.warning("offset %s of %s could not be stored: %s", offset, queue, error)
            return False
        return True

    def store_positions(self, *, only_news: bool = False) -> None:
        """Store the positions, without waiting for brokers.

        With ``only_news`` those of queues that are consumed to the end of what was pulled, and only once.
        """
        for queue, reader in self.readers.items():
            position = reader.run.to_store
            if position is None or (only_news and (len(reader.run) or reader.told == position)):
                continue
            if self._may_store(queue) and not reader.run.dropped and self._positions.tell(queue, position):
                reader.told = position
        self._positions.flush()

    def stop_reading(self) -> None:
        """Pull no more, begin no more runs."""
        self._stopped = True
        for reader in self.readers.values():
            reader.stop()

    async def release(self) -> None:
        """Give up all queues; returns when the brokers have confirmed the positions."""
        async with self._turn:
            self._stopped = True
            await self._give_up(tuple(self.readers), at_once=True)
            if self._order is not None:
                await self._order.leave_rest()


class Change(NamedTuple):
    """What to do: both in the order of queues."""

    give_up: list[MessageQueue]
    take: list[MessageQueue]


def plan_change(
    client: str,
    clients: Sequence[str],
    queues: Collection[MessageQueue],
    owned: Collection[MessageQueue],
    strategy: Strategy,
) -> Change:
    """Compare what ``client`` owns of a topic with what it should own of its ``queues``; others are not its matter.

    Raises UsageError for a strategy that returns no queues at all, not even an empty list.
    """
    chosen: object = strategy(client, sorted(queues), sort_clients(clients)) if queues else []
    if not isinstance(chosen, Iterable):
        raise UsageError(f"The strategy returned {type(chosen).__name__}: a list of queues is expected.")
    wanted, have = set(chosen).intersection(queues), set(owned)
    return Change(sorted(have - wanted), sorted(wanted - have))
