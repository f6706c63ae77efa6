"""QueueShare: the membership of a pull consumer with registered listeners, and its share of the queues.

Owns the membership and the calls of the listeners. It reads nothing, and no offset moves but by a reset of mqadmin,
which is stored as for every member. Facts: MessageQueueListener, DefaultMQPullConsumer.registerMessageQueueListener and
RebalancePullImpl in 4.9.7.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

from eruca.client import callbacks
from eruca.client.config import ClientSettings
from eruca.client.consuming.member_options import MemberOptions
from eruca.client.consuming.membership import GroupMember, consume_from_where
from eruca.client.consuming.offset_store import OffsetStore
from eruca.client.consuming.process_queue import ProcessQueue
from eruca.client.consuming.rebalance import Rebalance
from eruca.client.log import log
from eruca.client.network.session import Session
from eruca.client.polling.message_cache import PolledQueue
from eruca.protocol.bodies import ConsumeType
from eruca.protocol.queues import MessageQueue
from eruca.protocol.subscription import ALL, build_subscription

MessageQueueListener = Callable[[str, list[MessageQueue], list[MessageQueue]], Awaitable[None] | None]
"""Called with a topic, all its queues, and those that this member has now."""


class QueueListeners:
    """Calls listeners by topic, one call per topic at a time, so that the last call is about the current queues."""

    def __init__(self, session: Session, listeners: Mapping[str, MessageQueueListener]) -> None:
        self._session = session
        self._listeners = listeners
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def call(self, topic: str, queues: Iterable[MessageQueue], owned: Iterable[MessageQueue]) -> None:
        """Call the listener of a topic, if there is one, in the background; errors go to the log."""
        mine = sorted(queue for queue in owned if queue.topic == topic)
        self._session.spawn(self._call(topic, sorted(queues), mine))

    async def _call(self, topic: str, queues: list[MessageQueue], mine: list[MessageQueue]) -> None:
        async with self._turns[topic]:
            if topic in self._listeners:
                try:
                    await callbacks.call(self._listeners[topic], topic, queues, mine)
                except Exception:
                    log.exception("the listener for the queues of %s failed", topic)


class UnreadQueue:
    """A queue of this member that the user reads."""

    last_pull = 0
    reported = -1

    def __init__(self, queue: MessageQueue) -> None:
        self.process_queue: ProcessQueue = PolledQueue(queue, 0, auto_commit=False)

    def stop(self) -> None:
        """Nothing to stop."""


def pull_figures(group: str, options: MemberOptions) -> dict[str, str]:
    """The properties of consumers that pull actively, for 307."""
    return {
        "consumerGroup": group,
        "messageModel": "BROADCASTING" if options.broadcast else "CLUSTERING",
        "consumeFromWhere": consume_from_where(options.start_from).value,
    }


class QueueShare:
    """The member that a pull consumer becomes with its first listener. ``listeners`` by topic; more may be added."""

    def __init__(
        self,
        group: str,
        settings: ClientSettings,
        options: MemberOptions,
        listeners: Mapping[str, MessageQueueListener],
        store: OffsetStore,
    ) -> None:
        self.membership: GroupMember[UnreadQueue] = GroupMember(
            group,
            settings,
            options,
            ConsumeType.CONSUME_ACTIVELY,
            figures=lambda: pull_figures(group, options),
        )
        self.membership.reads_queues = False
        self._listeners = listeners
        self._offset_store = store
        for topic in listeners:
            self.register(topic)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has now."""
        return self.membership.queues

    def register(self, topic: str) -> None:
        """Take a share of a topic that has a listener."""
        if topic not in self.membership.subscriptions:
            self.membership.subscriptions[topic] = build_subscription(topic, ALL, version=0)
            self.membership.announce()

    async def start(self) -> None:
        """Join the group. Raises StateError and NameserverUnreachable."""
        member = self.membership
        session = member.join("PullConsumer")
        listeners = QueueListeners(session, self._listeners)

        def notify(topic: str, queues: Collection[MessageQueue]) -> None:
            listeners.call(topic, queues, rebalance.readers)

        rebalance: Rebalance[UnreadQueue] = Rebalance(
            session,
            member.group,
            member.subscriptions,
            member.options,
            self._offset_store,
            open=lambda queue, offset: UnreadQueue(queue),
            notify=notify,
            locate=False,
        )
        member.rebalance = rebalance
        try:
            await session.add_consumer(member.group, member)
            await rebalance.rebalance()
        except BaseException:
            await asyncio.shield(member.leave())
            raise
        interval = member.options.rebalance_interval
        await member.run(session, rebalance.run(interval), rebalance.find_topics(member.topics))

    async def stop(self) -> None:
        """Leave the group."""
        self.membership.stopping = True
        self.membership.stop_reading()
        await asyncio.shield(self.membership.leave())
