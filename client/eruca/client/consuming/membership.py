"""What every member of a group answers its session (``ConsumerMember``): from its subscriptions and the queues it owns.

Owns no state. How the queues are read, and by whom, is the matter of the members: those that push and those that are
asked for messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from eruca.client.admin_calls import AdminCalls
from eruca.client.consuming import report
from eruca.client.consuming.rebalance import Reading, Rebalance
from eruca.client.network.session import Session
from eruca.protocol.bodies import ConsumerData, ConsumeType, MessageModel, SubscriptionData
from eruca.protocol.queues import MessageQueue


class GroupMember(AdminCalls):
    """A member of a group as its session sees it."""

    group: str
    broadcast: bool
    subscriptions: dict[str, SubscriptionData]
    _consume_type: ConsumeType
    _reading: Reading
    _session: Session | None
    _ownership: Rebalance | None
    _changed: asyncio.Event

    def _check_here(self) -> None:
        """Raise StateError where a started consumer is changed elsewhere than in its event loop."""
        if self._session is not None:
            self._session.check_here()

    def describe(self) -> ConsumerData:
        """What the heartbeat says of this consumer."""
        return ConsumerData(
            consume_from_where=report.consume_from_where(self._reading.start_from),
            consume_type=self._consume_type,
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
        """The offset to store of each queue of a topic that this member owns (221)."""
        return self._ownership.positions(topic) if self._ownership is not None else {}
