"""PullConsumer: the caller chooses queue, offset and count of each pull, and keeps its own position.

Sends no heartbeats, so a group that only pulls is never seen online unless a listener for a share of the queues is
registered; no offset moves except by ``update_offset``. Any number of calls may be in flight at once; those to one
broker share a connection. Hooks see what a pull found before the caller does. Facts: DefaultMQPullConsumer in 4.9.7.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from functools import cached_property
from os import PathLike
from typing import Protocol

from eruca.client import callbacks, checks
from eruca.client.admin_calls import Client
from eruca.client.assign import Strategy, averagely
from eruca.client.bounds import bounded
from eruca.client.config import ClientSettings, check_group, check_suspend, check_text, check_topic
from eruca.client.consuming.member_options import MemberOptions
from eruca.client.consuming.membership import subscription_of
from eruca.client.consuming.offset_store import OffsetStore
from eruca.client.consuming.send_back import DEFAULT_MAX_RECONSUME_TIMES
from eruca.client.environment import known_options
from eruca.client.errors import StateError, UsageError, translate
from eruca.client.hooks import ConsumeHooks, Hook, Hooks, filter_messages
from eruca.client.lifecycle import not_running
from eruca.client.message import ReceivedMessage
from eruca.client.namespaces import as_asked
from eruca.client.network import brokers
from eruca.client.network.events import DisconnectedListener, ErrorListener, EventListeners, ReconnectedListener
from eruca.client.network.session import Session
from eruca.client.polling.queue_share import MessageQueueListener, QueueShare
from eruca.client.producing.producer import Producer
from eruca.client.trace import MessageTrace
from eruca.protocol import names
from eruca.protocol.bodies import SubscriptionData
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError
from eruca.protocol.headers import pull
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import Record, decode_records
from eruca.protocol.subscription import ALL, TAG, passes_tag
from eruca.remoting import Answer


class PullStatus(enum.Enum):
    """How a pull ended."""

    FOUND = 0
    """Messages were found."""
    NO_NEW_MESSAGE = 19
    """The queue ends here."""
    NO_MATCHED_MESSAGE = 20
    """The filter skipped messages; continue at ``next_offset``."""
    OFFSET_MOVED = 21
    """The offset is outside the queue; ``next_offset`` is the nearest one inside."""


_STATUS = {each.value: each for each in PullStatus}


class PullResult:
    """The result of one pull.

    ``next_offset`` is the offset of the next pull (not offset plus count: filters leave gaps), ``min_offset`` and
    ``max_offset`` bound the queue, ``broker_id`` is the one suggested for the next pull, and ``body`` holds the stored
    records, one after the other.
    """

    def __init__(self, answer: Answer[pull.PullReply], queue: MessageQueue, wanted: SubscriptionData) -> None:
        header = answer.header
        self.status = _STATUS[ResponseCode(answer.code)]
        self.queue = queue
        self.next_offset = header.next_begin_offset
        self.min_offset = header.min_offset
        self.max_offset = header.max_offset
        self.broker_id = header.suggest_which_broker_id
        self.body = answer.body
        self._wanted = wanted

    @cached_property
    def records(self) -> list[Record]:
        """The messages, without those whose tag merely has the hash of a wanted tag. Raises BadAnswer."""
        try:
            records = decode_records(self.body)
        except ProtocolError as error:
            raise translate(error) from error
        records = [as_asked(each, self.queue) for each in records]
        wanted = self._wanted
        return [each for each in records if passes_tag(wanted, each.tags)] if wanted.tags_set else records

    def __repr__(self) -> str:
        return f"<PullResult {self.status.name} of {self.queue}, next_offset={self.next_offset}>"


class Balanced(Protocol):
    """Something that has a share of queues."""

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that it has now."""


@known_options
class PullConsumer(Client):
    """Pulls messages, and reads and stores offsets.

    Use it with ``async with``, or call ``start`` and ``stop``. All methods raise ClientError.

    Args:
        group: the group of the pulls and of the offsets. Default: TOOLS_CONSUMER, which exists
            on every broker.
        nameserver: ``host:port`` addresses; default from the environment (see ClientSettings).
        broker_suspend_max_time: seconds for which ``pull_block_if_not_found`` lets the broker wait for a message.
        consumer_timeout_when_suspend: seconds until such a pull counts as failed; more than broker_suspend_max_time.
        max_reconsume_times: retries after which ``send_message_back`` makes a message a dead letter.
        hooks: see the messages that a pull found, and may remove some, before ``pull`` returns (see Hook).
            They count as consumed then, as with Java's synchronous pull.
        strategy: how the queues of registered topics are allocated in the group (see ``assign``).
        rebalance_interval: seconds between two lookups of the members of the group (brokers also notify at once).
        broadcast: this member gets all queues of a registered topic, and has its own offsets in a local file, as of
            PushConsumer.
        offset_folder: the folder of that file; default ``~/.rocketmq_offsets``.
        trace: True writes the trace of each message to RMQ_SYS_TRACE_TOPIC, a name to that topic.
        on_disconnected: as of PushConsumer.
        on_reconnected: as of PushConsumer.
        on_error: as of PushConsumer.
        settings: everything else that clients share.
    """

    def __init__(
        self,
        group: str = names.TOOLS_GROUP,
        *,
        nameserver: str | Sequence[str] | None = None,
        broker_suspend_max_time: float = 20.0,
        consumer_timeout_when_suspend: float = 30.0,
        max_reconsume_times: int = DEFAULT_MAX_RECONSUME_TIMES,
        hooks: Sequence[Hook] = (),
        trace: bool | str = False,
        strategy: Strategy = averagely,
        rebalance_interval: float = 20.0,
        broadcast: bool = False,
        offset_folder: str | PathLike[str] | None = None,
        on_disconnected: DisconnectedListener | None = None,
        on_reconnected: ReconnectedListener | None = None,
        on_error: ErrorListener | None = None,
        settings: ClientSettings | None = None,
    ) -> None:
        check_group(group, "consumer")
        check_suspend(broker_suspend_max_time, consumer_timeout_when_suspend)
        checks.check_least(0, max_reconsume_times=max_reconsume_times)
        self.group = group
        self.broadcast = broadcast
        self._member_options = MemberOptions(
            strategy=strategy,
            broadcast=broadcast,
            offset_folder=offset_folder,
            rebalance_interval=rebalance_interval,
            events=EventListeners(
                group=group, on_disconnected=on_disconnected, on_reconnected=on_reconnected, on_error=on_error
            ),
        )
        self._offset_store: OffsetStore | None = None
        self._suspend = broker_suspend_max_time
        self._suspend_timeout = consumer_timeout_when_suspend
        self._max_reconsume_times = max_reconsume_times
        self._settings = ClientSettings.choose(settings, nameserver)
        self._trace = MessageTrace(group, "CONSUME", trace, self._settings, Producer) if trace else None
        self._hooks = Hooks.given(hooks, self._trace)
        self._consumption: ConsumeHooks | None = None
        self._session: Session | None = None
        self._stopped = False
        self._listeners: dict[str, MessageQueueListener] = {}
        self.share: QueueShare | None = None
        """Its membership in the group, once a listener is registered."""
        self.shared_out_by: Balanced | None = None
        """What has the share of queues instead: the schedule service that this consumer belongs to."""

    def _needs(self) -> tuple[ClientSettings, Collection[str]]:
        return self._settings, self._listeners.keys()

    async def _join(self) -> None:
        """Join the session; nothing is sent yet unless listeners are registered."""
        if self._session is not None:
            raise StateError("The pull consumer is started already.")
        if self._stopped:
            raise StateError("The pull consumer was stopped. Make a new PullConsumer to start again.")
        session = self._session = Session.join(self._settings, listeners=self._member_options.events)
        try:
            self._offset_store = self._member_options.offset_store(session, self.group)
            self._apply_hooks(session)
            if self._trace is not None:
                await self._trace.start()
            if self._listeners:
                await self._take_share()
        except BaseException:
            await self.stop()
            raise

    @bounded
    async def register_message_queue_listener(
        self, topic: str, listener: MessageQueueListener, *, timeout: float | None = None
    ) -> None:
        """Take a share of a topic's queues; call ``listener(topic, queues, mine)`` whenever the share changes.

        The consumer becomes a member of its group, which shares queues out as groups of push consumers do; pulling is
        up to the caller. A plain function runs in a thread. May be called before and after start; a second listener of
        a topic replaces the first. Raises BadName and UsageError.
        """
        check_topic(topic)
        callbacks.check_callable(listener, "The listener", "topic", "queues", "mine")
        if self.group == names.TOOLS_GROUP:
            raise UsageError("Queues are allocated within a group: give the consumer a group of its own.")
        if self.shared_out_by is not None:
            raise UsageError(
                "This consumer belongs to the schedule service: call its register_pull_task_callback instead."
            )
        if self._session is not None:
            self._session.check_here()
        self._listeners[topic] = listener
        if self.share is not None:
            self.share.register(topic)
        elif self._session is not None:
            await self._take_share()

    async def _take_share(self) -> None:
        share = self.share = QueueShare(
            self.group, self._settings, self._member_options, self._listeners, self.offset_store
        )
        try:
            await share.start()
        except BaseException:
            self.share = None
            raise

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues of registered topics that this member has now (fetchMessageQueuesInBalance)."""
        share = self.shared_out_by or self.share
        return [] if share is None else share.queues

    def add_hook(self, hook: Hook) -> None:
        """Add a hook after those that exist; it sees what is pulled from now on. Raises UsageError."""
        if self._stopped:
            raise not_running("consumer", stopped=True)
        self._hooks = Hooks((*self._hooks.all, hook))
        if self._session is not None:
            self._apply_hooks(self._session)

    def _apply_hooks(self, session: Session) -> None:
        """Prepare the calls of the hooks."""
        if self._hooks.of_consumption:
            self._consumption = ConsumeHooks(
                self._hooks, self.group, session.client_id, orderly=False, broadcast=False, timeout=float("inf")
            )

    async def stop(self) -> None:
        """Leave the session once the file of a broadcasting consumer is written. Further calls have no effect."""
        if self._session is not None:
            self._session.check_here()
        session, self._session = self._session, None
        if session is not None:
            self._stopped = True
            share, self.share = self.share, None
            try:
                if share is not None:
                    await share.stop()
                if self._trace is not None:
                    await self._trace.stop()
            finally:
                if self._offset_store is not None:
                    await self._offset_store.close()
                await session.leave(self._member_options.events)

    @property
    def _seat(self) -> Session:
        if self._session is None:
            raise not_running("consumer", stopped=self._stopped)
        return self._session

    @property
    def offset_store(self) -> OffsetStore:
        """The store of the group's offsets. Raises StateError as ``session`` does."""
        session, store = self.session, self._offset_store
        assert store is not None, session
        return store

    @bounded
    async def query_offset(
        self, queue: MessageQueue, *, group: str | None = None, timeout: float | None = None
    ) -> int | None:
        """The offset of the group (by default this consumer's); None if it has none."""
        checks.check_queue(queue)
        check_text(group, "group")
        if group in (None, self.group):
            return await self.offset_store.load(queue)
        return await brokers.group_offset(self.session, group or self.group, queue)

    @bounded
    async def update_offset(
        self, queue: MessageQueue, offset: int, *, group: str | None = None, timeout: float | None = None
    ) -> None:
        """Store the offset of the group; returns when the broker has confirmed."""
        checks.check_queue(queue)
        check_text(group, "group")
        offset = checks.check_offset(offset)
        if group in (None, self.group):
            return await self.offset_store.save(queue, offset)
        await brokers.store_group_offset(self.session, group or self.group, queue, offset)

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        pull_batch_size: int = 32,
        *,
        expression: str = ALL,
        expression_type: str = TAG,
        suspend: float = 0.0,
        timeout: float = 10.0,
        broker_id: int = 0,
    ) -> PullResult:
        """Pull messages of a queue, beginning at an offset.

        Args:
            pull_batch_size: how many messages to ask for; brokers return fewer (Apache: 32 from memory, 8 from disk,
                and 256 KiB).
            expression: tags (``TagA || TagB``, ``*`` for all), or a condition if expression_type is SQL92.
            suspend: seconds for which the broker may hold the pull if there is no message; 0: none.
            timeout: seconds to wait for the answer, in addition to ``suspend``.
            broker_id: the replica to pull from, as the last result suggested.
        """
        checks.check_queue(queue)
        offset, pull_batch_size = (
            checks.check_offset(offset),
            checks.check_number("pull_batch_size", pull_batch_size, 1),
        )
        checks.check_seconds(0, suspend=suspend, timeout=timeout)
        checks.check_number("broker_id", broker_id, 0)
        subscription = subscription_of(queue.topic, expression, expression_type, 0)
        ask = brokers.pull_request(
            self.group,
            queue,
            offset,
            pull_batch_size,
            expression=expression,
            expression_type=expression_type,
            suspend=suspend,
        )
        answer = await brokers.pull_messages(self.session, queue, ask, broker_id=broker_id, timeout=timeout + suspend)
        result = PullResult(answer, queue, subscription)
        if self._hooks.filter_messages or self._consumption is not None:
            self._show(result)
        return result

    def _show(self, result: PullResult) -> None:
        """Pass the messages to the hooks, which may remove some."""
        if self._hooks.filter_messages and result.records:
            messages = self._received(result)
            left = filter_messages(self._hooks, self.group, result.queue, messages)
            result.records = [each.record for each in left]
        if self._consumption is not None and result.records:
            messages = self._received(result)
            self._consumption.end(self._consumption.begin(messages, in_listener=False), None, None, 0.0)

    def _received(self, result: PullResult) -> list[ReceivedMessage]:
        max_body = self.session.settings.max_body
        return [ReceivedMessage(each, result.queue, max_body) for each in result.records]

    @bounded
    async def pull_block_if_not_found(
        self,
        queue: MessageQueue,
        offset: int,
        pull_batch_size: int = 32,
        *,
        expression: str = ALL,
        expression_type: str = TAG,
        broker_id: int = 0,
        timeout: float | None = None,
    ) -> PullResult:
        """As ``pull``; if there is no message, wait for one for up to broker_suspend_max_time."""
        return await self.pull(
            queue,
            offset,
            pull_batch_size,
            expression=expression,
            expression_type=expression_type,
            suspend=self._suspend,
            timeout=self._suspend_timeout - self._suspend,
            broker_id=broker_id,
        )

    @bounded
    async def send_message_back(
        self, message: ReceivedMessage, delay_level: int = 0, *, group: str | None = None, timeout: float | None = None
    ) -> None:
        """Let the group's push consumers retry a message, after the delay of ``delay_level`` (0: one that grows).

        Returns when the broker of the message has confirmed.
        """
        expected = "a ReceivedMessage, such as ReceivedMessage(record, queue),"
        checks.check_kind("message", message, ReceivedMessage, expected)
        checks.check_number("delay_level", delay_level, -1)
        check_text(group, "group")
        await brokers.send_back(
            self.session,
            group or self.group,
            message.queue,
            message.record,
            delay_level=delay_level,
            max_reconsume_times=self._max_reconsume_times,
        )
