"""GroupMember: one member of a consumer group, as its session, the brokers and operators see it.

Owns the life of the member, from joining the group to leaving it, and the answers to what the session and the brokers
ask: heartbeats, 40, 220, 221, 307 and 309. How queues are read is up to the consumer that holds the member.
Facts: MQConsumerInner, DefaultMQPushConsumerImpl.consumerRunningInfo and consumeMessageDirectly in 4.9.7. There a reset
(220) does not reach members that pull; here it does.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from time import monotonic
from typing import Any, Generic

from eruca.client.bounds import unbounded
from eruca.client.checks import check_kind
from eruca.client.config import ClientSettings, StartFrom, check_start
from eruca.client.consuming.concurrent import Concurrent
from eruca.client.consuming.consume_request import ConsumeRequest
from eruca.client.consuming.consumer_stats import ConsumerStats
from eruca.client.consuming.member_options import MemberOptions
from eruca.client.consuming.orderly import Orderly
from eruca.client.consuming.process_queue import ProcessQueue
from eruca.client.consuming.rebalance import QueueReader, R, Rebalance
from eruca.client.errors import StateError, UsageError
from eruca.client.lifecycle import not_running
from eruca.client.message import ReceivedMessage
from eruca.client.network.session import Session
from eruca.client.outcomes import Decision
from eruca.protocol.bodies import (
    RESETS,
    ConsumeFromWhere,
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
    ProcessQueueInfo,
    SubscriptionData,
    encode_resets,
)
from eruca.protocol.codes import VERSION, ResponseCode, version_name
from eruca.protocol.errors import Refused
from eruca.protocol.names import is_retry_topic
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import Record
from eruca.protocol.subscription import SQL92, build_subscription, check_tags, is_tag_type
from eruca.remoting.clock import monotonic_ms, now_ms


class GroupMember(Generic[R]):
    """One member of a consumer group; ``ConsumerMember`` of its session.

    Args:
        consume_type: whether the consumer pushes to a listener or pulls actively.
        figures: properties of the consumer for 307, by the names of Java's class.
        stats: the statistics for 307.
    """

    def __init__(
        self,
        group: str,
        settings: ClientSettings,
        options: MemberOptions,
        consume_type: ConsumeType,
        *,
        figures: Callable[[], dict[str, str]] = dict,
        stats: ConsumerStats | None = None,
    ) -> None:
        self.group = group
        self.options = options
        self.subscriptions: dict[str, SubscriptionData] = {}
        """By topic; heartbeats carry them."""
        self.assigned_topics: frozenset[str] = frozenset()
        """The topics of queues that the user assigned; no heartbeat carries them."""
        self.session: Session | None = None
        """Set from joining until the member has left."""
        self.rebalance: Rebalance[R] | None = None
        self.processing: Concurrent | Orderly | None = None
        """What passes messages to a listener, if there is one."""
        self.reads_queues = True
        """Whether this consumer reads its queues, so that 307 reports them; else the user does."""
        self.started_at = 0
        """When the member joined, in ms since 1970."""
        self.stopping = False
        """The user stopped the consumer; it cannot be started again."""
        self.leaving: asyncio.Task[None] | None = None
        """The end of the membership, once begun. It completes even if nobody waits for it: a member that left only half
        would keep its queues from all others."""
        self._settings = settings
        self._consume_type = consume_type
        self._figures = figures
        self._stats = stats
        self._tasks: list[asyncio.Task[None]] = []

    # ------------------------------------------------------------------ joining and leaving

    @property
    def seat(self) -> Session:
        """The session in use, in whatever thread. Raises StateError before start and after stop."""
        if self.session is None:
            raise not_running("consumer", stopped=self.stopping)
        return self.session

    def check_here(self) -> None:
        """Raise StateError if the consumer was started in another event loop than the one that runs here."""
        if self.session is not None:
            self.session.check_here()

    def check_open(self) -> None:
        """The same, and for a consumer that was stopped."""
        self.check_not_over()
        self.check_here()

    def check_not_over(self) -> None:
        """Raise StateError if the consumer was stopped: it starts no more. Thread-safe."""
        if self.stopping and self.session is None:
            raise not_running("consumer", stopped=True)

    def check_startable(self, client: str) -> None:
        """Raise StateError if the consumer, an instance of the class ``client``, was started before."""
        if self.session is not None or self.stopping:
            kind = "PushConsumer" if self._consume_type is ConsumeType.CONSUME_PASSIVELY else "PullConsumer"
            raise StateError(
                f"The {kind} service state not OK, maybe started once. Make a new {client} to start again."
            )

    @property
    def needs(self) -> tuple[ClientSettings, frozenset[str]]:
        """The settings, and the topics that users named."""
        return self._settings, frozenset(topic for topic in self.topics() if not is_retry_topic(topic))

    def join(self, client: str) -> Session:
        """Join the session as the member of the group. Raises StateError."""
        self.check_startable(client)
        self.session, self.leaving = Session.join(self._settings, self.group, self, self.options.events), None
        self.started_at = now_ms()
        return self.session

    async def run(self, session: Session, *works: Coroutine[Any, Any, None]) -> None:
        """Run ``works`` until the member leaves; leaves the group if the consumer was stopped during its start."""
        if self.stopping:
            for work in works:
                work.close()
            await session.remove_consumer(self.group)
        else:
            self._tasks = [session.spawn(work) for work in works]

    def stop_reading(self) -> None:
        """Stop the works and all readers."""
        for task in self._tasks:
            task.cancel()
        if self.rebalance is not None:
            self.rebalance.stop_reading()

    def leave(
        self,
        *,
        first: Callable[[], Awaitable[None]] | None = None,
        last: Callable[[], Awaitable[None]] | None = None,
    ) -> asyncio.Task[None]:
        """Begin to leave, unless that began: store offsets, give up the queues, leave group and session.

        ``first`` runs before the queues are given up, ``last`` before the session is left.
        """
        if self.leaving is None:
            work = self._leave(first, last)
            self.leaving = asyncio.get_running_loop().create_task(work, context=unbounded())
        return self.leaving

    async def _leave(
        self, first: Callable[[], Awaitable[None]] | None, last: Callable[[], Awaitable[None]] | None
    ) -> None:
        session = self.session
        assert session is not None
        if self.rebalance is not None:
            self.rebalance.stop_reading()
        if first is not None:
            await first()
        if self.rebalance is not None:
            await self.rebalance.release()
        for task in self._tasks:
            task.cancel()
        await session.remove_consumer(self.group)
        if last is not None:
            await last()
        self.session = self.rebalance = None
        await session.leave(self.options.events)

    @property
    def details(self) -> str:
        """Topics and state, for the ``repr`` of the consumer."""
        topics = sorted(topic for topic in self.topics() if not is_retry_topic(topic))
        count = sum(not is_retry_topic(queue.topic) for queue in self.queues)
        state = f"running with {count} queue{'' if count == 1 else 's'}"
        if self.session is None or self.stopping:
            state = "not started" if not self.stopping else "stopped" if self.session is None else "stopping"
        return f": {', '.join(topics) or 'nothing subscribed'}; {state}"

    # ------------------------------------------------------------------ subscriptions

    def announce(self, then: Callable[[], None] | None = None) -> None:
        """Send changed subscriptions to the brokers, in the background, and rebalance; ``then`` runs in between."""
        if self.session is not None and self.rebalance is not None:
            self.session.spawn(self._announce(self.session, self.rebalance, then))

    async def _announce(self, session: Session, rebalance: Rebalance[R], then: Callable[[], None] | None) -> None:
        await session.add_consumer(self.group, self)
        if then is not None:
            then()
        await rebalance.give_up_unsubscribed()
        rebalance.wake()

    # ------------------------------------------------------------------ what the session asks

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has now."""
        return sorted(self.rebalance.readers) if self.rebalance is not None else []

    def describe(self) -> ConsumerData:
        """The member in heartbeats."""
        return ConsumerData(
            consume_from_where=consume_from_where(self.options.start_from),
            consume_type=self._consume_type,
            group_name=self.group,
            message_model=MessageModel.BROADCASTING if self.options.broadcast else MessageModel.CLUSTERING,
            subscription_data_set=list(self.subscriptions.values()),
        )

    def topics(self) -> set[str]:
        """The topics whose routes the member needs."""
        return {*self.subscriptions, *self.assigned_topics}

    def routes_changed(self, topic: str) -> None:
        """The route of a topic changed."""
        if self.rebalance is not None:
            self.rebalance.wake(topic)

    def members_changed(self) -> None:
        """Another member joined or left (40)."""
        if self.rebalance is not None:
            self.rebalance.wake()

    def reset(self, topic: str, table: Mapping[MessageQueue, int]) -> None:
        """Continue at these offsets (220)."""
        if self.rebalance is not None:
            self.rebalance.reset({queue: offset for queue, offset in table.items() if queue.topic == topic})

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """The offset to store of each owned queue of a topic (221)."""
        return self.rebalance.positions(topic) if self.rebalance is not None else {}

    async def running_info(self, with_stacks: bool) -> ConsumerRunningInfo:
        """The state of the member (307); ``with_stacks`` adds the stacks of all threads."""
        readers = self.rebalance.readers if self.rebalance is not None and self.reads_queues else {}
        settings = self._settings if self.session is None else self.session.settings
        held = self.processing.held if isinstance(self.processing, Orderly) else None
        now = monotonic()
        return ConsumerRunningInfo(
            jstack=_stacks() if with_stacks else None,
            mq_table={queue: _queue_info(reader, held) for queue, reader in readers.items()},
            properties={
                **self._figures(),
                "PROP_NAMESERVER_ADDR": ";".join(settings.nameserver_list()),
                "PROP_CONSUME_TYPE": self._consume_type.value,
                "PROP_CLIENT_VERSION": version_name(VERSION),
                "PROP_CONSUMER_START_TIMESTAMP": str(self.started_at),
                RESETS: encode_resets(self.rebalance.resets_done if self.rebalance is not None else {}),
                "consumerGroup": self.group,
            },
            status_table={topic: self._stats[topic].status(now) for topic in self.subscriptions}
            if self._stats is not None
            else {},
            subscription_set=list(self.subscriptions.values()),
        )

    async def consume_directly(self, record: Record, broker: str) -> ConsumeMessageDirectlyResult:
        """Pass one message to the listener, outside all queues (309). Raises Refused without a listener, as Java."""
        if self.processing is None:
            remark = f"The Consumer Group <{self.group}> not exist in this consumer"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        queue = MessageQueue(record.topic, broker, record.queue_id)
        process_queue = ProcessQueue(queue, record.queue_offset)
        message = ReceivedMessage(record, queue, self._settings.max_body)
        request = self.processing.direct_request(process_queue, message)
        began = monotonic_ms()
        await self.processing.runner.consume(request)
        return direct_result(request, monotonic_ms() - began)


def subscription_of(topic: str, expression: str, expression_type: str, version: int) -> SubscriptionData:
    """A subscription; ``version`` is its time in ms, 0 for one that only a single pull has.

    Raises UsageError for an expression that is not of its type: a broker that gets it in a pull returns everything.
    """
    check_kind("expression", expression, str | None, 'a text such as "TagA || TagB"')
    check_kind("expression_type", expression_type, str | None, '"TAG" or "SQL92"')
    try:
        if is_tag_type(expression_type):
            check_tags(expression)
        elif expression_type != SQL92:
            raise UsageError(f'expression_type={expression_type!r}: "TAG" or "SQL92" is expected.')
        elif expression:
            from eruca.protocol.sql92 import compile_whole  # most subscriptions have none

            compile_whole(expression)
        return build_subscription(topic, expression, version=version, expression_type=expression_type)
    except ValueError as error:
        raise UsageError(str(error)) from None


def next_version(known: SubscriptionData | None) -> int:
    """The version of a topic's next subscription: the time in ms, and more than that of the ``known`` one.

    Brokers ignore a subscription whose version is not higher, so one of the same ms, or after the clock was set back.
    """
    return max(now_ms(), 0 if known is None else known.sub_version + 1)


def consume_from_where(start_from: StartFrom) -> ConsumeFromWhere:
    """RocketMQ's name of a ``start_from``."""
    start = check_start(start_from)
    if start == "first":
        return ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    if start in ("last", "end"):
        return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP


def _queue_info(reader: QueueReader, held: Callable[[MessageQueue], bool] | None) -> ProcessQueueInfo:
    process_queue = reader.process_queue
    position, to_store = process_queue.position, process_queue.to_store
    locked = held is not None and held(process_queue.queue)
    waits = len(process_queue) > 0
    consumed_at = process_queue.consumed_at
    return ProcessQueueInfo(
        cached_msg_count=len(process_queue),
        cached_msg_min_offset=position if waits else 0,
        cached_msg_max_offset=position + process_queue.span if waits else 0,
        cached_msg_size_in_mib=process_queue.size >> 20,
        commit_offset=position if to_store is None else to_store,
        droped=process_queue.dropped,
        last_pull_timestamp=reader.last_pull,
        last_consume_timestamp=now_ms() - int((monotonic() - consumed_at) * 1000) if consumed_at else 0,
        locked=locked,
        last_lock_timestamp=now_ms() if locked else 0,
    )


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(number, number)}\n{''.join(traceback.format_stack(frame))}"
        for number, frame in sys._current_frames().items()
    )


def direct_result(request: ConsumeRequest, spent: int) -> ConsumeMessageDirectlyResult:
    """The result of a message that was passed to the listener directly; ``spent`` in ms."""
    result = ConsumeResult.CR_SUCCESS
    if request.error is not None:
        result = ConsumeResult.CR_THROW_EXCEPTION
    elif isinstance(request.outcome, Decision):
        result = ConsumeResult.CR_COMMIT if request.outcome is Decision.COMMIT else ConsumeResult.CR_ROLLBACK
    elif request.outcome is not None:
        result = ConsumeResult.CR_LATER
    return ConsumeMessageDirectlyResult(
        consume_result=result,
        remark=None if request.error is None else f"{type(request.error).__name__}: {request.error}",
        spent_time_mills=spent,
    )
