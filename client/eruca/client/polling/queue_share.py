"""A pull consumer's seat in its group: which queues of the topics that it registered are its share.

Owns the membership and telling the listeners. Reads nothing; no offset moves but by a reset of mqadmin, which is stored
as with every member. Facts: DefaultMQPullConsumer.registerMessageQueueListener, RebalancePullImpl in 4.9.7.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from eruca.client.assign import Strategy
from eruca.client.config import ClientSettings
from eruca.client.consuming.offset_store import OffsetStore
from eruca.client.consuming.process_queue import Limits, ProcessQueue
from eruca.client.consuming.rebalance import Reading, Rebalance
from eruca.client.message import ReceivedMessage
from eruca.client.network.session import Session
from eruca.client.polling.active_member import ActiveMember
from eruca.client.polling.assigned import MessageQueueListener, Telling
from eruca.client.polling.polled import PolledQueue
from eruca.protocol.bodies import SubscriptionData
from eruca.protocol.queues import MessageQueue
from eruca.protocol.subscription import ALL, build_subscription


class _Share:
    """One queue of this member, which nobody reads here."""

    last_pull = 0
    told = -1

    def __init__(self, queue: MessageQueue) -> None:
        self.run: ProcessQueue = PolledQueue(queue, 0, auto=False)

    def stop(self) -> None:
        """There is nothing to stop."""


class _Shares(Rebalance):
    """The queues that are this member's."""

    def __init__(
        self,
        session: Session,
        group: str,
        subscriptions: Mapping[str, SubscriptionData],
        reading: Reading,
        positions: OffsetStore,
        listeners: Mapping[str, MessageQueueListener],
    ) -> None:
        super().__init__(session, group, subscriptions, reading, positions, _nothing)
        self._telling = Telling(session, listeners)

    async def _take(self, queue: MessageQueue) -> bool:
        self._begin(queue, 0)
        return True

    def _begin(self, queue: MessageQueue, offset: int) -> None:
        if not self._stopped:
            self.readers[queue] = _Share(queue)

    async def _shared_out(self, topic: str, queues: Collection[MessageQueue]) -> None:
        mine = sorted(queue for queue in self.readers if queue.topic == topic)
        self._telling.tell(topic, sorted(queues), mine)


def _nothing(run: ProcessQueue, messages: list[ReceivedMessage]) -> None:
    """Nobody reads here."""


class QueueShare(ActiveMember):
    """The member that a pull consumer is once it has listeners, by topic; they may become more."""

    def __init__(
        self,
        group: str,
        strategy: Strategy,
        rebalance_interval: float,
        settings: ClientSettings,
        listeners: Mapping[str, MessageQueueListener],
        positions: OffsetStore,
        *,
        broadcast: bool,
    ) -> None:
        reading = Reading(
            start_from="last",
            strategy=strategy,
            limits=Limits(),
            pull_batch=1,
            broadcast=broadcast,
            store_start=False,
        )
        super().__init__(group, reading, rebalance_interval, settings)
        self._listeners = listeners
        self._positions = positions
        for topic in listeners:
            self.register(topic)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that it has now."""
        return sorted(self._ownership.readers) if self._ownership is not None else []

    def register(self, topic: str) -> None:
        """Take a share of a topic that has a listener."""
        if topic not in self.subscriptions:
            self.subscriptions[topic] = build_subscription(topic, ALL, version=0)
            self._announce_soon()

    async def start(self) -> None:
        """Join the group. Raises StateError and NameserverUnreachable."""
        session = self._join()
        self._ownership = _Shares(
            session, self.group, self.subscriptions, self._reading, self._positions, self._listeners
        )
        try:
            await session.add_consumer(self.group, self)
            await self._ownership.rebalance()
        except BaseException:
            await self._leave()
            raise
        await self._repeat(session)

    async def stop(self) -> None:
        """Leave the group."""
        self._ended = True
        self._end_tasks()
        await self._leave()
