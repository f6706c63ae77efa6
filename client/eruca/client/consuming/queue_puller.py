"""QueuePuller: pulls the messages of one process queue and delivers them.

Owns the wait between two pulls, the size of each pull, and the meaning of each answer. One pull is in flight at a time;
the broker may hold it while there is nothing to return, and it carries the offset to store. Facts: PullMessageService
and DefaultMQPushConsumerImpl.pullMessage, suspend and resume in 4.9.7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

import msgspec

from eruca.client.bounds import unbounded
from eruca.client.consuming.consumer_stats import TopicStats
from eruca.client.consuming.process_queue import ProcessQueue, QueueLimits
from eruca.client.errors import BrokerRefused, BrokerUnreachable, CallTimeout, ClientError
from eruca.client.log import log
from eruca.client.message import ReceivedMessage, received, sizes
from eruca.client.network import brokers
from eruca.client.network.routes import MASTER
from eruca.client.network.session import Session
from eruca.protocol.bodies import SubscriptionData
from eruca.protocol.codes import ResponseCode
from eruca.protocol.headers import pull
from eruca.protocol.queues import MessageQueue
from eruca.protocol.subscription import is_tag_type
from eruca.remoting import Answer
from eruca.remoting.clock import now_ms

HOLD = 15.0
"""Seconds for which a broker may hold a pull (brokerSuspendMaxTimeMillis)."""
PULL_TIMEOUT = 30.0
AFTER_ERROR = 1.0
UNTIL_LOCKED = 0.1
"""Seconds between two checks whether a lost lock was obtained again."""
AFTER_FLOW_CONTROL = 0.02
PULL_BATCH_SIZE = 256
"""Default ``pull_batch_size`` of a PushConsumer: messages of 1 KiB fill the 256 KiB that a broker returns at once.
Java's clients ask for 32, at a much higher cost per message."""
PULL_AT_LEAST = 32
"""Messages that a pull asks for even if there is room for fewer: pulls of one message would cost too much. The count
limit of a queue is exceeded by no more than this, as with Java's clients, whose pulls ask for 32."""
_UNKNOWN_HERE = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    }
)

Q = TypeVar("Q", bound=ProcessQueue)
MessageFilter = Callable[[MessageQueue, list[ReceivedMessage]], list[ReceivedMessage]]
"""Returns the messages that are to be delivered."""


class PullOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How pulls are made; times in seconds.

    Args:
        batch_size: messages to ask for in one pull (pullBatchSize).
        hold: how long a broker may hold a pull (brokerSuspendMaxTimeMillis).
        timeout: until a pull counts as failed.
        after_error: pause after a failed pull (pullTimeDelayMillsWhenException).
        lite: send lite pulls, which carry their own filter; the filter need not be in a heartbeat.
        interval: pause after a pull that returned messages (pullInterval).
        commit: let pulls carry the offset to store.
    """

    batch_size: int = PULL_BATCH_SIZE
    hold: float = HOLD
    timeout: float = PULL_TIMEOUT
    after_error: float = AFTER_ERROR
    lite: bool = False
    interval: float = 0.0
    commit: bool = True


class Gate:
    """Open at first; whoever waits while it is closed continues as soon as it opens. Thread-safe but for ``wait``."""

    def __init__(self) -> None:
        self.closed = False
        self._opened = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def close(self) -> None:
        """Let nobody through."""
        self.closed = True

    def open(self) -> None:
        """Let everybody through."""
        self.closed = False
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._opened.set)

    async def wait(self) -> None:
        """Return when the gate is open."""
        self._loop = asyncio.get_running_loop()
        while self.closed:
            self._opened.clear()
            await self._opened.wait()


class QueuePuller(Generic[Q]):
    """Pulls for ``process_queue`` until it is dropped.

    Args:
        deliver: gets the messages, of class ``kind``, as soon as the next pull was sent.
        moved: gets the offset to continue from when the broker reports that the pull offset is outside the queue.
        may_pull: whether the queue may be pulled now.
        gate: nothing is pulled while it is closed.
        filter_messages: may remove messages before they are delivered.
        stats: counts pulls.
    """

    def __init__(
        self,
        session: Session,
        group: str,
        process_queue: Q,
        subscription: SubscriptionData,
        limits: QueueLimits,
        options: PullOptions,
        *,
        deliver: Callable[[Q, list[ReceivedMessage]], None],
        moved: Callable[[ProcessQueue, int], None],
        may_pull: Callable[[MessageQueue], bool] | None = None,
        gate: Gate | None = None,
        filter_messages: MessageFilter | None = None,
        stats: TopicStats | None = None,
        kind: type[ReceivedMessage] = ReceivedMessage,
    ) -> None:
        self.process_queue = process_queue
        self.subscription = subscription
        self.limits = limits
        self.last_pull = 0
        """When the last pull was sent, in ms since 1970."""
        self.reported = -1
        """The offset that the broker was last given to store."""
        self._pulled_at = 0.0
        self._session = session
        self._options = options
        self._deliver = deliver
        self._moved = moved
        self._may_pull = may_pull
        self._gate = gate
        self._filter_messages = filter_messages
        self._stats = stats
        self._kind = kind
        self._flags = pull.SUSPEND | (pull.SUBSCRIPTION | pull.LITE_PULL if options.lite else 0)
        self._broker_id = MASTER
        self._ask = pull.PullMessage(
            consumer_group=group,
            topic=process_queue.queue.topic,
            queue_id=process_queue.queue.queue_id,
            queue_offset=process_queue.next_offset,
            max_msg_nums=options.batch_size,
            sys_flag=self._flags,
            commit_offset=0,
            suspend_timeout_millis=int(options.hold * 1000),
            subscription=subscription.sub_string if options.lite else None,
            sub_version=0 if options.lite and is_tag_type(subscription.expression_type) else subscription.sub_version,
            expression_type=subscription.expression_type,
        )
        self._stopped = False
        self._troubled = False
        self._task = asyncio.get_running_loop().create_task(self._run(), context=unbounded())

    def stop(self) -> None:
        """Stop pulling and delivering; delivered messages are not affected."""
        self._stopped = True
        self._task.cancel()

    def pull_again(self) -> None:
        """Replace a pull that the broker holds with an outdated filter."""
        if not (self._stopped or self._options.lite) and self._ask.sub_version != self.subscription.sub_version:
            self._task.cancel()
            self._task = asyncio.get_running_loop().create_task(self._run(), context=unbounded())

    async def _run(self) -> None:
        process_queue = self.process_queue
        while not process_queue.dropped:
            if not process_queue.has_room(self.limits):
                await self._wait_for_room()
                continue
            if self._gate is not None and self._gate.closed:
                await self._gate.wait()
                continue
            if self._may_pull is not None and not self._may_pull(process_queue.queue):
                await asyncio.sleep(UNTIL_LOCKED)
                continue
            try:
                answer = await self._pull()
                if self._troubled:
                    self._troubled = False
                    queue = process_queue.queue
                    self._session.forget_warning((self._ask.consumer_group, queue.topic, queue.broker_name))
                if not process_queue.dropped:
                    await self._process(answer)
            except ClientError as error:
                await asyncio.sleep(self._pause_after(error))
            except Exception:
                pause = self._options.after_error
                log.exception("pulling %s failed, retrying in %s s", process_queue.queue, pause)
                await asyncio.sleep(pause)

    async def _wait_for_room(self) -> None:
        room = asyncio.get_running_loop().create_future()
        self.process_queue.made_room = lambda: None if room.done() else room.set_result(None)
        try:
            await room
        finally:
            self.process_queue.made_room = None

    async def _pull(self) -> Answer[pull.PullReply]:
        process_queue, ask, options = self.process_queue, self._ask, self._options
        position = process_queue.position
        ask.queue_offset = process_queue.next_offset
        ask.max_msg_nums = min(options.batch_size, max(process_queue.room(self.limits), PULL_AT_LEAST))
        ask.commit_offset = position if options.commit else 0
        if not options.lite:
            ask.sub_version = self.subscription.sub_version
        ask.sys_flag = self._flags
        if options.commit and position > 0 and self._broker_id == MASTER:
            ask.sys_flag |= pull.COMMIT_OFFSET
            self.reported = position
        self.last_pull, self._pulled_at = now_ms(), monotonic()
        return await brokers.pull_messages(
            self._session, process_queue.queue, ask, broker_id=self._broker_id, timeout=options.timeout
        )

    async def _process(self, answer: Answer[pull.PullReply]) -> None:
        process_queue, header = self.process_queue, answer.header
        same_broker = header.suggest_which_broker_id == self._broker_id
        self._broker_id = header.suggest_which_broker_id
        if answer.code == ResponseCode.SUCCESS:
            messages = received(
                answer.body,
                process_queue.queue,
                kind=self._kind,
                tags=self._wanted_tags(),
                max_body=self._session.settings.max_body,
            )
            if self._filter_messages is not None:
                messages = self._filter_messages(process_queue.queue, messages)
            if self._stats is not None:
                self._stats.pulls += 1
                self._stats.pulled += len(messages)
                self._stats.pull_seconds += monotonic() - self._pulled_at
            process_queue.put(sizes(messages), header.next_begin_offset)
            self._session.loop.call_soon(self._hand_over, messages)  # the next pull leaves before a listener begins
            if self._options.interval:
                await asyncio.sleep(self._options.interval)
        elif answer.code == ResponseCode.PULL_OFFSET_MOVED:
            log.warning(
                "offset %s is outside of %s, continuing at %s",
                process_queue.next_offset,
                process_queue.queue,
                header.next_begin_offset,
            )
            if process_queue.next_offset < header.min_offset <= header.next_begin_offset:
                # The messages that follow were deleted; those that were pulled are still valid.
                process_queue.next_offset = header.next_begin_offset
                return
            if header.next_begin_offset == process_queue.next_offset:
                # The broker contradicts itself: do not ask it in a tight loop.
                await asyncio.sleep(self._options.after_error)
            self._moved(process_queue, header.next_begin_offset)
        else:
            if header.next_begin_offset == self._ask.queue_offset and same_broker:
                await asyncio.sleep(AFTER_FLOW_CONTROL)
            process_queue.next_offset = header.next_begin_offset

    def _hand_over(self, messages: list[ReceivedMessage]) -> None:
        if not self._stopped and not self.process_queue.dropped:
            self._deliver(self.process_queue, messages)

    def _wanted_tags(self) -> set[bytes] | None:
        """The tags to compare with, as brokers compare hashes only; None if all messages are wanted."""
        wanted = self.subscription.tags_set
        return {tag.encode() for tag in wanted} if wanted else None

    def _pause_after(self, error: ClientError) -> float:
        topic = self.process_queue.queue.topic
        if isinstance(error, BrokerUnreachable | CallTimeout):
            self._broker_id = MASTER  # a slave that is away suggests nothing else
        if isinstance(error, BrokerRefused):
            if error.code == ResponseCode.FLOW_CONTROL:
                return AFTER_FLOW_CONTROL
            if error.code in _UNKNOWN_HERE:
                self._session.spawn(self._session.beat())
            elif error.code == ResponseCode.NO_PERMISSION:
                self._session.directory.look_again(topic)  # perhaps nobody may read the queue any more
        elif isinstance(error, BrokerUnreachable):
            self._session.directory.look_again(topic)
        pause = self._options.after_error
        queue, group = self.process_queue.queue, self._ask.consumer_group
        if isinstance(error, BrokerUnreachable):  # the session reports it
            log.debug("pulling %s failed, retrying every %s s: %s", queue, pause, error)
        else:
            self._troubled = True
            self._session.warn(
                (group, topic, queue.broker_name),
                f"pulling {topic} at {queue.broker_name} failed for {group}, retrying every {pause} s: {error}",
                error,
                group=group,
                topic=topic,
                broker=queue.broker_name,
            )
        return pause
