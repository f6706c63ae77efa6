"""Rebalance: which queues a member of a group has, and from which offsets it consumes them.

Owns the process queues: one at a time for each queue, opened when the queue is assigned, when the group is reset, or
when the broker reports that an offset is outside the queue. The consumer hands over how a queue is opened (``open``,
which returns the reader, whose ``stop`` ends it) and what happens after a change (``notify``). Rebalance, reset and
stop never overlap. Invariant: an offset is stored only as the position of a process queue that is not dropped, or as
the offset of a reset; so neither a listener that ends late nor a rebalance can overwrite a new offset with a stale one.
Facts: RebalanceImpl, RebalanceService and resetOffset in 4.9.7.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from time import monotonic
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from eruca.client.assign import Strategy, sort_clients
from eruca.client.config import check_start
from eruca.client.consuming.member_options import MemberOptions
from eruca.client.consuming.offset_store import OffsetStore, initial_offset
from eruca.client.consuming.orderly import Orderly
from eruca.client.consuming.process_queue import ProcessQueue
from eruca.client.consuming.rebalance_listener import RebalanceListener
from eruca.client.errors import BrokerRefused, BrokerUnreachable, ClientError, TopicNotFound, UsageError
from eruca.client.log import by_topic, log, ranges
from eruca.client.network.session import Session
from eruca.protocol import names
from eruca.protocol.bodies import Resets, SubscriptionData
from eruca.protocol.queues import MessageQueue

HAND_OVER = 0.1
"""Seconds for which other members may store their last offsets before this member takes their queues: brokers notify
all members of a change at once, and an offset that is stored too late means duplicates."""
NO_OFFSET: Final = -1
"""Passed to ``open`` where no offset was looked up."""
CONFIRM_ATTEMPTS = 3


class QueueReader(Protocol):
    """What reads one queue: a puller, or a task that calls the user."""

    @property
    def process_queue(self) -> ProcessQueue:
        """What was read and is not consumed."""

    last_pull: int
    """When the last pull was sent, in ms since 1970."""
    reported: int
    """The offset that the broker was last given to store."""

    def stop(self) -> None:
        """Stop reading; what was read is not affected."""


R = TypeVar("R", bound=QueueReader)


class Rebalance(Generic[R]):
    """The queues of one member.

    Args:
        subscriptions: of the member, by topic; may change.
        open: begins to read a queue at an offset (NO_OFFSET unless ``locate``).
        notify: called with a topic and all its queues after this member's share of them changed.
        locate: look up the offset at which a queue is opened.
        order: locks queues, and decides which may be released.
    """

    def __init__(
        self,
        session: Session,
        group: str,
        subscriptions: Mapping[str, SubscriptionData],
        options: MemberOptions,
        store: OffsetStore,
        *,
        open: Callable[[MessageQueue, int], R],
        notify: Callable[[str, Collection[MessageQueue]], None] | None = None,
        locate: bool = True,
        order: Orderly | None = None,
    ) -> None:
        self.readers: dict[MessageQueue, R] = {}
        self.members: list[str] = []
        """The client ids of the group, as of the last rebalance."""
        self.assigned: frozenset[MessageQueue] | None = None
        """The queues that the user assigned; None if queues are allocated in the group."""
        self.complete = False
        """Whether the last rebalance could complete; if not, it is retried soon."""
        self.stopped = False
        self.turn = asyncio.Lock()
        """Held while queues change hands."""
        self._session = session
        self._waits = session.settings.waits
        self._group = group
        self._subscriptions = subscriptions
        self._allocation = options.allocation
        self._broadcast = options.broadcast
        self._start_from = check_start(options.start_from)
        self._store_start = options.store_start
        self._offset_store = store
        self._open = open
        self._notify = notify
        self._locate = locate
        self._order = order
        self._listener = RebalanceListener(
            group, options.on_assigned, options.on_revoked, session.settings.waits.rebalance_listener
        )
        self._wanted = asyncio.Event()
        self._changed: set[str] = set()
        """Topics with other routes than at the last rebalance."""
        self._whole = False
        """Whether the next rebalance is of all topics."""
        self._resets: dict[MessageQueue, int] = {}
        self._resets_done: Resets = {}
        """Offsets at which queues continue whose old process queue was dropped and whose new one is not open."""
        self._releasing: set[MessageQueue] = set()
        """Queues that are being given up: their last offset is being stored."""
        if order is not None:
            order.catch_up_by(self._catch_up)

    # ------------------------------------------------------------------ when to rebalance

    def wake(self, topic: str | None = None) -> None:
        """Let ``run`` rebalance now (rebalanceImmediately): this topic, or all."""
        if topic is None:
            self._whole = True
        else:
            self._changed.add(topic)
        self._wanted.set()

    async def run(self, interval: float, then: Callable[[float], Awaitable[None]] | None = None) -> None:
        """Rebalance every ``interval`` seconds and after ``wake``; then call ``then`` with the monotonic time."""
        while True:
            try:
                async with asyncio.timeout(interval if self.complete else self._waits.rebalance):
                    await self._wanted.wait()
            except TimeoutError:
                self._whole = True
            topics = None if self._whole or not self.complete else self._changed
            self._wanted.clear()
            self._changed, self._whole = set(), False
            try:
                await self.rebalance(topics)
                if then is not None:
                    await then(monotonic())
            except Exception:  # such as one of the user's strategy
                log.exception("the rebalance of %s failed", self._group)

    async def find_topics(self, topics: Callable[[], Collection[str]]) -> None:
        """Look up topics that do not exist yet, periodically; a route that is found wakes the rebalance."""
        directory, logged = self._session.directory, set[str]()
        while True:
            for topic in sorted(set(topics()) - directory.routes.keys() - logged):
                if not names.is_retry_topic(topic):
                    log.warning("no broker has the topic %s yet: %s waits for it", topic, self._group)
                logged.add(topic)
            await asyncio.sleep(self._waits.topic)
            await directory.find(sorted(set(topics()) - directory.routes.keys()))

    # ------------------------------------------------------------------ who owns what

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """The queues of this member."""
        return frozenset(self.readers) if self.assigned is None else self.assigned

    async def rebalance(self, topics: Collection[str] | None = None) -> None:
        """Give up and take queues of these topics, or of all, as the group requires now.

        Raises what the strategy raises.
        """
        self.complete, complete = False, True
        if self.assigned is not None:
            async with self.turn:
                missing = [queue for queue in sorted(self.assigned) if queue not in self.readers]
                self.complete = self.stopped or await self._take(missing)
            return
        async with self.turn:
            if not self.stopped:  # queues for which a call ran were kept until now
                complete = await self._give_up(self._unsubscribed())
            for topic in tuple(self._subscriptions):
                if topics is not None and topic not in topics:
                    continue
                if self.stopped:
                    break
                try:
                    complete &= await self._rebalance_topic(topic)
                except ClientError as error:
                    if isinstance(error, UsageError):  # of the strategy
                        raise
                    if not isinstance(error, TopicNotFound):
                        self._session.warn(
                            (self._group, topic, "allocate"),
                            f"the queues of {topic} cannot be allocated now: {error}",
                            error,
                            group=self._group,
                            topic=topic,
                        )
                        complete = False
        self.complete = complete

    async def _rebalance_topic(self, topic: str) -> bool:
        session = self._session
        route = await session.directory.route(topic)
        owned = [queue for queue in self.readers if queue.topic == topic]
        try:
            clients = [session.client_id] if self._broadcast else await session.members(self._group, topic)
        except BrokerRefused as error:
            session.warn(
                (self._group, "members"), f"the members of {self._group} are not known yet: {error}", group=self._group
            )
            session.spawn(session.beat())  # perhaps the broker refused the last heartbeat
            return False
        self.members = clients
        change = plan_change(session.client_id, clients, route.to_read, owned, self._allocation)
        self._keep(set(owned).difference(change.give_up))
        given_up = await self._give_up(change.give_up)
        if change.take and len(clients) > 1:
            await asyncio.sleep(HAND_OVER)
        taken = await self._take(change.take, by_allocation=True)
        if change.give_up or change.take:
            if self._notify is not None:
                self._notify(topic, route.to_read)
            log.info(
                "%s of %s: gave up %s; took %s",
                self._group,
                topic,
                ranges(change.give_up),
                ranges(change.take),
                extra={"group": self._group, "topic": topic},
            )
        return given_up and taken and session.client_id in clients

    def _keep(self, queues: Iterable[MessageQueue]) -> None:
        if self._order is not None:
            for queue in queues:
                self._order.stay(queue)

    async def give_up_unsubscribed(self) -> None:
        """Give up the queues of topics that are no longer subscribed."""
        async with self.turn:
            await self._give_up(self._unsubscribed())

    def _unsubscribed(self) -> list[MessageQueue]:
        return [queue for queue in self.readers if queue.topic not in self._subscriptions]

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Have exactly these queues from now on, whoever else is in the group."""
        self.assigned = frozenset(queues)
        ended = [(queue, self._drop(queue)) for queue in tuple(self.readers) if queue not in self.assigned]
        self._session.spawn(self._assign(ended))

    async def _assign(self, ended: list[tuple[MessageQueue, int | None]]) -> None:
        await self._release_all(ended)
        await self.rebalance()

    async def _give_up(self, queues: Sequence[MessageQueue], *, at_once: bool = False) -> bool:
        """Close queues and store their positions, so that the next owner continues there.

        Each is read no further, and then ``on_revoked`` is called. An ordered queue is kept while a call runs for it:
        returns False then; with ``at_once`` the queue is closed and only its lock is kept.
        """
        free = set(queues)
        if self._order is not None:
            # A position is stored only under the lock: try to regain lost locks.
            await asyncio.gather(*(self._order.enter(queue) for queue in queues if not self._order.held(queue)))
            left = await asyncio.gather(*(self._order.leave(queue) for queue in queues))
            free = {queue for queue, idle in zip(queues, left, strict=True) if idle}
        going = [queue for queue in queues if at_once or queue in free]
        for queue in going:
            self.readers[queue].stop()
        await self._listener.revoked(going)
        await self._release_all([(queue, self._drop(queue)) for queue in going])
        if self._order is not None:
            await self._order.left(free)
        return len(free) == len(queues)

    async def _release_all(self, ended: Sequence[tuple[MessageQueue, int | None]]) -> None:
        self._releasing.update(queue for queue, _ in ended)
        failures = await asyncio.gather(*(self._release(queue, position) for queue, position in ended))
        lost: defaultdict[str, list[Unsaved]] = defaultdict(list)
        for failed in failures:
            for unsaved in failed:
                lost[str(unsaved.error)].append(unsaved)
        for unsaved_of_one in lost.values():  # one disk or broker that fails is one warning
            self._warn_unsaved(unsaved_of_one)

    def _warn_unsaved(self, lost: Sequence[Unsaved]) -> None:
        error, queues = lost[0].error, [unsaved.queue for unsaved in lost]
        brokers = {queue.broker_name for queue in queues}
        self._session.warn(
            (self._group, *sorted(brokers), "offsets"),
            f"the offsets of {self._group} could not be stored, of {by_topic(queues)}: {error}",
            error,
            group=self._group,
            broker=brokers.pop() if len(brokers) == 1 else None,
        )

    async def _release(self, queue: MessageQueue, position: int | None) -> list[Unsaved]:
        """Store the last offset; a reset that arrives meanwhile overwrites it, as the next owner may not get it."""
        failures = []
        last = self._resets.pop(queue) if queue in self._resets else position if self._may_store(queue) else None
        if last is not None:
            failures.append(await self._save(queue, last))
        if queue in self._resets:
            failures.append(await self._save(queue, self._resets.pop(queue)))
        self._releasing.discard(queue)
        return [failed for failed in failures if failed is not None]

    def _drop(self, queue: MessageQueue) -> int | None:
        """Close a queue and forget its reader; its last position."""
        position = self.readers[queue].process_queue.to_store
        self._close(queue)
        del self.readers[queue]
        return position

    def _close(self, queue: MessageQueue) -> None:
        reader = self.readers[queue]
        reader.process_queue.drop()
        reader.stop()

    async def _take(self, queues: Sequence[MessageQueue], *, by_allocation: bool = False) -> bool:
        """Open queues that are this member's now; False if that is impossible for some at the moment.

        ``on_assigned`` is called before queues that the group allocated are read: all wait for the last then.
        """
        if by_allocation and self._listener.on_assigned is not None:
            found = dict(zip(queues, await asyncio.gather(*(self._start_of(queue) for queue in queues)), strict=True))
            starts = {queue: start for queue, start in found.items() if start is not None}
            await self._listener.assigned(list(starts))
            await asyncio.gather(*(self._open_at(queue, start) for queue, start in starts.items()))
            return len(starts) == len(queues)
        return all(await asyncio.gather(*(self._take_alone(queue) for queue in queues)))

    async def _take_alone(self, queue: MessageQueue) -> bool:
        start = await self._start_of(queue)
        if start is None:
            return False
        await self._open_at(queue, start)
        return True

    async def _open_at(self, queue: MessageQueue, start: Start) -> None:
        if self.stopped:
            await self._unlock(queue)
            return
        self._begin(queue, start.offset)
        if not start.stored and self._store_start:
            # Brokers also return 0 for a young queue without an offset. Once stored, the group can be reset.
            await self.store(queue, start.offset)

    async def _start_of(self, queue: MessageQueue) -> Start | None:
        """Lock a queue; where it is opened, if that is known now."""
        if self._order is not None and not await self._order.enter(queue):
            log.info("%s is locked by another member, retrying soon", queue)
            return None
        if not self._locate:
            return Start(NO_OFFSET, NO_OFFSET)
        try:
            stored = await self._offset_store.load(queue)
            if stored == 0 and self._start_from not in ("first", "last") and not await self._offset_store.has(queue):
                stored = None  # the broker's answer about a young queue
            if stored is not None:
                return Start(stored, stored)
            return Start(await initial_offset(self._session, self._group, queue, self._start_from), None)
        except ClientError as error:
            if not isinstance(error, BrokerUnreachable):  # the session reports it
                self._session.warn(
                    (self._group, queue.broker_name, "read"),
                    f"queues of {self._group} at {queue.broker_name} cannot be read now: {error}",
                    error,
                    group=self._group,
                    broker=queue.broker_name,
                )
            await self._unlock(queue)
            return None

    async def _unlock(self, queue: MessageQueue) -> None:
        """Release the lock of a queue that was not opened."""
        if self._order is not None:
            await self._order.left([queue])

    async def _catch_up(self, queue: MessageQueue) -> bool:
        """After a lost lock: continue behind what another member may have consumed. False if that is unknown."""
        try:
            stored = await self._offset_store.load(queue)
        except ClientError as error:
            log.warning("%s cannot be read now: %s", queue, error)
            return False
        reader = self.readers.get(queue)
        if reader is not None and stored is not None and stored > reader.process_queue.position:
            self.reset({queue: stored})
        return True

    def _begin(self, queue: MessageQueue, offset: int) -> None:
        if self.assigned is None or queue in self.assigned:
            self.readers[queue] = self._open(queue, offset)

    # ------------------------------------------------------------------ continuing from another offset

    def reopen(self, queue: MessageQueue, offset: int) -> R:
        """Continue a queue of this member at this offset, without storing it; what was read is dropped."""
        if queue in self.readers:
            self._close(queue)
        reader = self.readers[queue] = self._open(queue, offset)
        return reader

    def seek(self, queue: MessageQueue, offset: int) -> R:
        """As ``reopen``; overrides a reset in progress. The caller holds ``turn``."""
        self._resets.pop(queue, None)
        return self.reopen(queue, offset)

    def reset(self, table: Mapping[MessageQueue, int]) -> None:
        """Continue at these offsets in those queues that are owned: drop their process queues now, then open others.

        From here on nothing that was consumed of the old process queues moves an offset.
        """
        ended = {queue: self.readers[queue].process_queue for queue in table if queue in self.readers}
        for queue, offset in table.items():
            if queue in self.readers:
                self._close(queue)
            if queue in self.readers or queue in self._releasing:
                self._resets[queue] = offset
        self._session.spawn(self._reset(table, ended))

    async def _reset(self, table: Mapping[MessageQueue, int], ended: Mapping[MessageQueue, ProcessQueue]) -> None:
        async with self.turn:
            if self.stopped:
                return
            wanted = self.readers.keys() - self._unsubscribed()
            targets = {
                queue: self._resets.get(queue, offset)
                for queue, offset in table.items()
                if queue in wanted and ended.get(queue) in (None, self.readers[queue].process_queue)
            }  # a queue that was given up and taken again meanwhile was opened behind the reset
            for queue in targets:
                self._close(queue)
            stored = await asyncio.gather(*(self._store_surely(queue, offset) for queue, offset in targets.items()))
            for (queue, offset), sure in zip(targets.items(), stored, strict=True):
                if self._resets.get(queue, offset) == offset:
                    self._resets.pop(queue, None)
                    self._begin(queue, offset)
                    if sure:
                        count, _ = self._resets_done.get(queue, (0, 0))
                        self._resets_done[queue] = count + 1, offset

    @property
    def resets_done(self) -> Resets:
        """The resets of the queues that this member has, as far as the broker has stored their offsets."""
        return {queue: done for queue, done in self._resets_done.items() if queue in self.readers}

    async def _store_surely(self, queue: MessageQueue, offset: int) -> bool:
        """Store an offset and check it: an offset that was in flight before must not remain. False if it may."""
        for _ in range(CONFIRM_ATTEMPTS):
            if not await self.store(queue, offset):
                return False
            try:
                if await self._offset_store.load(queue) == offset:
                    return True
            except ClientError as error:
                log.warning("the reset of %s to %s could not be confirmed: %s", queue, offset, error)
                return False
        return False

    def moved(self, process_queue: ProcessQueue, offset: int) -> None:
        """The broker reports that the pull offset is outside the queue: continue at ``offset``."""
        if not process_queue.dropped:
            self.reset({process_queue.queue: offset})

    # ------------------------------------------------------------------ offsets

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """The offset to store of each owned queue of a topic; without queues for which nothing is to be stored yet."""
        positions = {
            queue: self._resets.get(queue, reader.process_queue.to_store)
            for queue, reader in self.readers.items()
            if queue.topic == topic
        }
        return {queue: position for queue, position in positions.items() if position is not None}

    def _may_store(self, queue: MessageQueue) -> bool:
        """Whether this member may still store the offset of a queue."""
        return self._order is None or self._order.held(queue)

    async def store(self, queue: MessageQueue, offset: int) -> bool:
        """Store an offset; False, with a warning in the log, if that failed."""
        failed = await self._save(queue, offset)
        if failed is not None:
            self._warn_unsaved([failed])
        return failed is None

    async def _save(self, queue: MessageQueue, offset: int) -> Unsaved | None:
        try:
            await self._offset_store.save(queue, offset)
        except ClientError as error:
            return Unsaved(queue, offset, error)
        return None

    def store_positions(self, *, only_idle: bool = False) -> None:
        """Store the positions without waiting for brokers.

        With ``only_idle`` only those of queues whose pulled messages are all consumed, and each position once.
        """
        for queue, reader in self.readers.items():
            process_queue = reader.process_queue
            position = process_queue.to_store
            if position is None or (only_idle and (len(process_queue) or reader.reported == position)):
                continue
            if self._may_store(queue) and not process_queue.dropped and self._offset_store.report(queue, position):
                reader.reported = position
        self._offset_store.flush()

    def stop_reading(self) -> None:
        """Stop all readers, and open no more queues."""
        self.stopped = True
        for reader in self.readers.values():
            reader.stop()

    async def release(self) -> None:
        """Give up all queues; returns when their offsets are stored, or a warning says which could not be."""
        async with self.turn:
            self.stopped = True
            await self._give_up(tuple(self.readers), at_once=True)
            if self._order is not None:
                await self._order.leave_rest()
            await self._offset_store.settle()


class Start(NamedTuple):
    """The offset at which a queue is opened, and the one that is stored."""

    offset: int
    stored: int | None


class Unsaved(NamedTuple):
    """An offset that could not be stored."""

    queue: MessageQueue
    offset: int
    error: ClientError


class Change(NamedTuple):
    """What a rebalance of one topic does; queues in their order."""

    give_up: list[MessageQueue]
    take: list[MessageQueue]


def plan_change(
    client: str,
    clients: Sequence[str],
    queues: Collection[MessageQueue],
    owned: Collection[MessageQueue],
    strategy: Strategy,
) -> Change:
    """Compare what ``client`` owns of a topic with its share of ``queues`` (rebalanceByTopic). Pure.

    Raises UsageError for a strategy that does not return queues, not even an empty list.
    """
    chosen: object = strategy(client, sorted(queues), sort_clients(clients)) if queues else []
    if not isinstance(chosen, Iterable):
        raise UsageError(f"The strategy returned {type(chosen).__name__}: a list of queues is expected.")
    wanted, have = set(chosen).intersection(queues), set(owned)
    return Change(sorted(have - wanted), sorted(wanted - have))
