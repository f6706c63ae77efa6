"""What the session and brokers ask of a consumer while it runs, and what operators are told of it.

Owns no state: it answers from the subscriptions, the queues that are owned, and the listeners at work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from eruca.client.config import ClientSettings
from eruca.client.consuming import report
from eruca.client.consuming.concurrent import Concurrent
from eruca.client.consuming.inflight import InFlight
from eruca.client.consuming.orderly import Orderly
from eruca.client.consuming.ownership import Ownership, Reading
from eruca.client.consuming.pace import Paces
from eruca.client.consuming.suspension import Suspendable
from eruca.protocol.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import Record


class PushMember(Suspendable):
    """A member of a group as its session sees it (``ConsumerMember``)."""

    group: str
    orderly: bool
    broadcast: bool
    concurrency: int
    subscriptions: dict[str, SubscriptionData]
    started_at: int
    paces: Paces
    _reading: Reading
    _settings: ClientSettings
    _ownership: Ownership | None
    _processing: Concurrent | Orderly | None
    _changed: asyncio.Event

    def describe(self) -> ConsumerData:
        """What the heartbeat says of this consumer."""
        return ConsumerData(
            consume_from_where=report.consume_from_where(self._reading.start_from),
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            group_name=self.group,
            message_model=MessageModel.BROADCASTING if self.broadcast else MessageModel.CLUSTERING,
            subscription_data_set=list(self.subscriptions.values()),
        )

    def topics(self) -> set[str]:
        """The topics whose routes it needs."""
        return set(self.subscriptions)

    def routes_changed(self, topic: str) -> None:
        """A route is another one now."""
        self._changed.set()

    def members_changed(self) -> None:
        """Another member joined or left (40)."""
        self._changed.set()

    def reset(self, topic: str, table: Mapping[MessageQueue, int]) -> None:
        """Go on from these offsets (220)."""
        if self._ownership is not None:
            self._ownership.reset({queue: offset for queue, offset in table.items() if queue.topic == topic})

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """The position in each queue of a topic that this member owns (221)."""
        return self._ownership.positions(topic) if self._ownership is not None else {}

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member owns now."""
        return sorted(self._ownership.readers) if self._ownership is not None else []

    @property
    def under_way(self) -> dict[MessageQueue, InFlight]:
        """What was pulled of each queue and is not consumed yet. May be asked for by any thread."""
        readers = dict(self._ownership.readers) if self._ownership is not None else {}
        return {queue: reader.run for queue, reader in readers.items()}

    async def running_info(self, with_stacks: bool) -> ConsumerRunningInfo:
        """What this consumer is doing (307)."""
        readers = self._ownership.readers if self._ownership is not None else {}
        held = self._processing.held if isinstance(self._processing, Orderly) else None
        return report.running_info(self, readers.values(), self._settings.nameserver_list(), with_stacks, held)

    async def consume_directly(self, record: Record, broker: str) -> ConsumeMessageDirectlyResult:
        """Let the listener have one message, outside all queues (309)."""
        assert self._processing is not None
        return await report.consume_directly(self._processing, record, broker)
