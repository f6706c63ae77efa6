"""The queues of a lite pull consumer as its user chooses them: topics subscribed, or queues assigned, never both.

Owns the mode, the filters, and whom to tell of changed queues. Facts: DefaultLitePullConsumerImpl.subscribe, assign,
setSubExpressionForAssign and registerTopicMessageQueueChangeListener in 4.9.7.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, Self

from eruca.client import callbacks
from eruca.client.bounds import bounded
from eruca.client.checks import check_kind, check_queue, check_queues
from eruca.client.config import ClientSettings, check_text, check_topic
from eruca.client.consuming.expressions import subscription_of
from eruca.client.consuming.queue_puller import Reads
from eruca.client.consuming.rebalance import Reading
from eruca.client.errors import StateError, UsageError
from eruca.client.polling.active_member import ActiveMember
from eruca.client.polling.assigned import Assigned, MessageQueueListener
from eruca.client.polling.topic_watch import TopicMessageQueueChangeListener, TopicWatch
from eruca.protocol.bodies import SubscriptionData
from eruca.protocol.queues import MessageQueue
from eruca.protocol.subscription import ALL, TAG
from eruca.remoting.clock import now_ms


class LiteQueues(ActiveMember):
    """Which queues are wanted; the class that polls them is ``LitePullConsumer``."""

    _ownership: Assigned | None

    def __init__(
        self, group: str, reading: Reading, rebalance_interval: float, check_interval: float, settings: ClientSettings
    ) -> None:
        super().__init__(group, reading, rebalance_interval, settings)
        self._mode: Literal["subscribe", "assign"] | None = None
        self._assignment: frozenset[MessageQueue] = frozenset()
        self._filters: dict[str, SubscriptionData] = {}
        """Of the topics whose queues are assigned; no heartbeat tells of them."""
        self._listeners: dict[str, MessageQueueListener] = {}
        self._watch = TopicWatch(check_interval)

    def _set_mode(self, mode: Literal["subscribe", "assign"]) -> None:
        if self._mode not in (None, mode):
            raise StateError("Subscribe and assign are mutually exclusive.")
        self._mode = mode

    def subscribe(
        self,
        topic: str,
        expression: str = ALL,
        *,
        expression_type: str = TAG,
        listener: MessageQueueListener | None = None,
    ) -> Self:
        """Take a share of a topic's messages: those with one of the tags of ``TagA || TagB``, or all with ``*``.

        With ``expression_type="SQL92"`` the expression is a condition on properties. ``listener(topic, queues, mine)``
        is called when the queues are shared out anew. May be called before and after start; returns the consumer.
        Raises BadName, UsageError, and StateError after ``assign``.
        """
        self._check_here()
        if not topic:
            raise UsageError("Topic can not be null or empty.")
        check_topic(topic)
        if listener is not None:
            callbacks.check_callable(listener, "The listener")
        subscription = subscription_of(topic, expression, expression_type, now_ms())
        self._set_mode("subscribe")
        self.subscriptions[topic] = subscription
        self._listeners.pop(topic, None)
        if listener is not None:
            self._listeners[topic] = listener
        self._announce_soon()
        return self

    def unsubscribe(self, topic: str) -> None:
        """Take no more messages of a topic; those that were handed out can no longer be committed."""
        self._check_here()
        check_text(topic, "topic")
        self._listeners.pop(topic, None)
        if self.subscriptions.pop(topic, None) is not None:
            self._announce_soon()

    def assign(self, queues: Collection[MessageQueue]) -> None:
        """Read these queues and no others, whoever else is in the group. May be called before and after start.

        Each goes on from the group's stored offset, unless ``seek`` says otherwise; one that was assigned before just
        goes on. Raises UsageError, and StateError after ``subscribe``.
        """
        self._check_here()
        chosen = frozenset(check_queues(queues)) if queues is not None else None
        if not chosen:
            raise UsageError("Message queues can not be null or empty.")
        self._set_mode("assign")
        self._assignment = chosen
        for topic in {queue.topic for queue in self._assignment} - self._filters.keys():
            self._filters[topic] = subscription_of(topic, ALL, TAG, 0)
        if self._ownership is not None:
            self._ownership.assign(self._assignment)

    def set_sub_expression_for_assign(self, topic: str, expression: str) -> None:
        """Of the assigned queues of a topic take only messages with these tags; before start.

        Raises UsageError and StateError.
        """
        check_topic(topic)
        check_kind("expression", expression, str | None, "a text")
        if not expression or expression.isspace():
            raise UsageError("subExpression can not be null or empty.")
        if self._session is not None or self._ended:
            raise StateError("setAssignTag only can be called before start.")
        subscription = subscription_of(topic, expression, TAG, 0)
        self._set_mode("assign")
        self._filters[topic] = subscription

    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that this consumer has now."""
        return self._assignment if self._ownership is None else self._ownership.queues

    def topics(self) -> set[str]:
        """The topics whose routes it needs."""
        return {*self.subscriptions, *(queue.topic for queue in self._assignment)}

    @bounded
    async def register_topic_message_queue_change_listener(
        self, topic: str, listener: TopicMessageQueueChangeListener, *, timeout: float | None = None
    ) -> None:
        """Call ``listener(topic, queues)`` whenever a topic has other queues than before.

        May be called before and after start; a second listener of a topic takes the place of the first. Raises
        UsageError.
        """
        self._check_here()
        check_topic(topic)
        await self._watch.add(None if self._session is None else self._session.directory, topic, listener)

    def _read(self) -> Collection[Reads]:
        """All its queues, as 5.3.3 tells them; 4.9.7 leaves them out."""
        return () if self._ownership is None else self._ownership.readers.values()

    def _check_mine(self, *queues: MessageQueue) -> None:
        for queue in queues:
            check_queue(queue)
            if queue not in self.assignment():
                rebalancing = "may be rebalancing, " if self._mode == "subscribe" else ""
                raise StateError(f"The message queue is not in assigned list, {rebalancing}message queue: {queue}")
