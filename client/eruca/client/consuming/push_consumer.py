"""PushConsumer: a member of a consumer group whose messages go to a listener, or to ``async for``.

Owns the options of the consumer, and its start and stop. ``membership`` answers brokers, ``rebalance`` has the queues,
``queue_puller`` pulls, and ``concurrent`` and ``orderly`` pass messages to the listener. Facts: DefaultMQPushConsumer
in 4.9.7.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Sequence
from concurrent.futures import Executor
from datetime import datetime
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Literal, Self, Unpack, overload

from eruca.client import callbacks
from eruca.client.admin_calls import Client
from eruca.client.assign import Strategy, averagely
from eruca.client.checks import check_least, check_seconds
from eruca.client.config import ClientSettings, check_group, check_positive, check_topic
from eruca.client.consuming.arguments import (
    BatchListener,
    ConcurrentKeywords,
    EitherKeywords,
    KeyedBatchListener,
    KeyedKeywords,
    KeyedMessageListener,
    MessageListener,
    OrderlyBatchListener,
    OrderlyKeywords,
    OrderlyMessageListener,
    PlainListener,
)
from eruca.client.consuming.concurrent import Concurrent, ConsumeOptions, RunnerFactory
from eruca.client.consuming.consistency import Comparison
from eruca.client.consuming.consumer_stats import ConsumerStats
from eruca.client.consuming.executors import ListenerInExecutor
from eruca.client.consuming.listener_options import ListenerOptions
from eruca.client.consuming.locks import QueueLocks
from eruca.client.consuming.membership import GroupMember, next_version, subscription_of
from eruca.client.consuming.message_stream import Delivery, Messages, MessageStream, runner_factory
from eruca.client.consuming.ordered_queue import KeyOf
from eruca.client.consuming.orderly import Orderly
from eruca.client.consuming.process_queue import ProcessQueue, PullThresholds, QueueLimits
from eruca.client.consuming.queue_puller import PULL_BATCH_SIZE, Gate, MessageFilter, PullOptions, QueuePuller
from eruca.client.consuming.rebalance import MemberOptions, Rebalance
from eruca.client.consuming.runners import called_by
from eruca.client.consuming.send_back import SendBack
from eruca.client.errors import StateError, TopicNotFound, UsageError
from eruca.client.hooks import ConsumeHooks, Hook, Hooks, filter_messages
from eruca.client.log import log
from eruca.client.message import ReceivedMessage
from eruca.client.middleware import Middleware, check_middleware
from eruca.client.network import brokers
from eruca.client.network.session import Session
from eruca.client.outcomes import Listener
from eruca.client.producing.producer import Producer
from eruca.client.trace import MessageTrace
from eruca.protocol import names
from eruca.protocol.bodies import ConsumeType
from eruca.protocol.queues import MessageQueue
from eruca.protocol.subscription import ALL, TAG, build_subscription
from eruca.remoting.clock import now_ms

STORE_IDLE_INTERVAL = 0.2
"""Seconds after which the offset of a queue is stored whose pulled messages are all consumed."""
EXPIRY_CHECK_INTERVAL = 60.0
"""Seconds between two checks for calls that exceed ``consume_timeout``, at most; more often for a short timeout."""


class PushConsumer(Client):
    """A member of a consumer group: each message goes to one member.

    With a ``listener`` its messages go there; without one they are taken by ``async for message in consumer``. Use it
    with ``async with``, or call ``start`` and ``stop``.

    Args:
        group: the consumer group.
        listener: takes a ReceivedMessage. A coroutine function runs in the event loop, another function in threads.
            Returning None consumes the message; raising or returning ``Later()`` lets it be retried.
        nameserver: ``host:port`` addresses; default from the environment (see ClientSettings).
        start_from: where a group without stored offsets begins: "first", "last", "end", or a time (datetime, or ms
            since 1970). For "last" a broker begins at the first message of a queue as long as that is in memory; "end"
            skips all messages that exist.
        strategy: how queues are allocated; all members must use the same (see ``assign``).
        concurrency: calls of the listener at once.
        consume_message_batch_max_size: None passes one message to the listener; a number N passes a list of up to N.
        pull_batch_size: messages to ask for in one pull, fewer if the thresholds leave less room. The cost of a pull is
            shared by its messages; a broker with RocketMQ's defaults returns 32 at most.
        pull_threshold_for_queue: messages of one queue that may wait in memory.
        pull_threshold_size_for_queue: MiB of one queue that may wait in memory.
        consume_max_span: offsets from the first to the last waiting message of one queue.
        pull_threshold_for_topic: messages of all queues of a topic that may wait, shared evenly by the queues of this
            consumer, in place of pull_threshold_for_queue. None: no such limit.
        pull_threshold_size_for_topic: the same in MiB, in place of pull_threshold_size_for_queue.
        pull_interval: seconds between a pull that returned messages and the next one.
        pull_time_delay_when_exception: until the next pull after a failed one.
        max_reconsume_times: retries after which a message goes to the dead letters; default 16, unlimited with
            ``orderly`` and ``ordered_by``.
        orderly: the messages of a queue are consumed in order, one call at a time by one member. Raising or returning
            ``Suspend()`` retries a message before all others of its queue.
        ordered_by: a plain function that returns the key of a message, such as ``lambda message: message.keys[0]``. The
            messages of one key in a queue are consumed in order, one call at a time, those of different keys at once;
            a message that fails holds up its key only. Keys are compared by ``==``; messages for which the function
            fails share one. Send each key to one queue. With lists, a list has messages of one key.
        suspend_time: seconds until that retry, from 0.01 to 30.
        auto_commit: False lets an orderly listener decide when its messages count as consumed, by ``Decision``.
        broadcast: every member gets all messages. Its offsets are stored in a local file, as RocketMQ's clients do;
            messages that the listener fails to consume are logged and not retried.
        offset_folder: the folder of that file; default ``~/.rocketmq_offsets``.
        offset_interval: seconds between two stores of all offsets.
        rebalance_interval: seconds between two lookups of the members of the group (brokers also notify at once).
        stop_timeout: seconds for which ``stop`` waits for running calls.
        consume_timeout: seconds after which the messages of a running call are sent back, to be retried (not if
            orderly).
        executor: runs a listener that is a plain function, such as a ProcessPoolExecutor for heavy computation; or a
            function that makes one, which is shut down at the stop, and replaced when a process of it died.
        hooks: see what is consumed (see Hook).
        middleware: coroutine functions ``async def middleware(message, call_next)`` around the listener, the first
            outermost; each returns the outcome, mostly that of ``await call_next(message)``, and may change it.
        trace: True writes the trace of each message to RMQ_SYS_TRACE_TOPIC, a name to that topic (enableMsgTrace).
        settings: what all clients share.

    Raises BadName, BadConfig, UsageError and NoNameserver.
    """

    # The consumer is an object here, so that the blocking consumer has the same overloads.
    @overload
    def __init__(
        self: object,
        group: str,
        listener: MessageListener | None = None,
        *,
        consume_message_batch_max_size: None = None,
        **options: Unpack[ConcurrentKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: object,
        group: str,
        listener: BatchListener,
        *,
        consume_message_batch_max_size: int,
        **options: Unpack[ConcurrentKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: object,
        group: str,
        listener: OrderlyMessageListener | None = None,
        *,
        consume_message_batch_max_size: None = None,
        **options: Unpack[OrderlyKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: object,
        group: str,
        listener: OrderlyBatchListener,
        *,
        consume_message_batch_max_size: int,
        **options: Unpack[OrderlyKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: object,
        group: str,
        listener: KeyedMessageListener | None = None,
        *,
        consume_message_batch_max_size: None = None,
        **options: Unpack[KeyedKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: object,
        group: str,
        listener: KeyedBatchListener,
        *,
        consume_message_batch_max_size: int,
        **options: Unpack[KeyedKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: object, group: str, listener: PlainListener | None = None, **options: Unpack[EitherKeywords]
    ) -> None: ...
    def __init__(
        self,
        group: str,
        listener: Listener | None = None,
        *,
        nameserver: str | Sequence[str] | None = None,
        start_from: Literal["first", "last", "end"] | int | datetime = "last",
        strategy: Strategy = averagely,
        concurrency: int = 20,
        consume_message_batch_max_size: int | None = None,
        pull_batch_size: int = PULL_BATCH_SIZE,
        pull_threshold_for_queue: int = 1000,
        pull_threshold_size_for_queue: int = 100,
        consume_max_span: int = 2000,
        pull_threshold_for_topic: int | None = None,
        pull_threshold_size_for_topic: int | None = None,
        pull_interval: float = 0.0,
        pull_time_delay_when_exception: float = 1.0,
        max_reconsume_times: int | None = None,
        orderly: bool = False,
        ordered_by: KeyOf | None = None,
        suspend_time: float = 1.0,
        auto_commit: bool = True,
        broadcast: bool = False,
        offset_folder: str | Path | None = None,
        offset_interval: float = 5.0,
        rebalance_interval: float = 20.0,
        stop_timeout: float = 30.0,
        consume_timeout: float = 900.0,
        executor: Executor | Callable[[], Executor] | None = None,
        hooks: Sequence[Hook] = (),
        middleware: Sequence[Middleware] = (),
        trace: bool | str = False,
        settings: ClientSettings | None = None,
    ) -> None:
        check_group(group, "consumer")
        check_positive(offset_interval=offset_interval, pull_time_delay_when_exception=pull_time_delay_when_exception)
        check_seconds(0, pull_interval=pull_interval)
        check_least(1, pull_batch_size=pull_batch_size)
        self._options = ListenerOptions(
            concurrency=concurrency,
            consume_message_batch_max_size=consume_message_batch_max_size,
            max_reconsume_times=max_reconsume_times,
            orderly=orderly,
            ordered_by=ordered_by,
            suspend_time=suspend_time,
            auto_commit=auto_commit,
            stop_timeout=stop_timeout,
            consume_timeout=consume_timeout,
        )
        self.group = group
        self.orderly = orderly
        self.broadcast = broadcast
        self.concurrency = concurrency
        self.stats = ConsumerStats(monotonic())
        options = MemberOptions(
            start_from=start_from,
            strategy=strategy,
            broadcast=broadcast,
            offset_folder=offset_folder,
            rebalance_interval=rebalance_interval,
            store_start=True,
        )
        settings = ClientSettings.choose(settings, nameserver)
        self.membership: GroupMember[QueuePuller[ProcessQueue]] = GroupMember(
            group, settings, options, ConsumeType.CONSUME_PASSIVELY, figures=self._figures, stats=self.stats
        )
        """Its membership in the group, which answers the brokers."""
        self.subscriptions = self.membership.subscriptions
        self._executor, self._listener = _in_executor(listener, executor)
        self._thresholds = PullThresholds(
            pull_threshold_for_queue=pull_threshold_for_queue,
            pull_threshold_size_for_queue=pull_threshold_size_for_queue,
            consume_max_span=consume_max_span,
            pull_threshold_for_topic=pull_threshold_for_topic,
            pull_threshold_size_for_topic=pull_threshold_size_for_topic,
        )
        self.pull_options = PullOptions(
            batch_size=pull_batch_size,
            interval=pull_interval,
            after_error=pull_time_delay_when_exception,
            commit=not broadcast,
        )
        """How it pulls."""
        self._offset_interval = offset_interval
        self._trace = MessageTrace(group, "CONSUME", trace, settings, Producer) if trace else None
        self._hooks = Hooks.given(hooks, self._trace)
        self._middleware = check_middleware(middleware)
        if self._middleware and listener is None:
            raise UsageError("middleware= stands around a listener: a consumer for `async for` has none.")
        self._gate = Gate()

    # ------------------------------------------------------------------ subscribing

    def subscribe(self, topic: str, expression: str = ALL, *, expression_type: str = TAG) -> Self:
        """Subscribe a topic: messages with one of the tags of ``TagA || TagB``, or all with ``*``.

        With ``expression_type="SQL92"`` the expression is a condition on properties. All members of a group must
        subscribe alike. May be called before and after start; returns the consumer. Raises BadName and UsageError.
        """
        check_topic(topic)
        self.membership.check_here()
        version = next_version(self.subscriptions.get(topic))
        self.subscriptions[topic] = subscription_of(topic, expression, expression_type, version)
        self._subscriptions_changed()
        return self

    def unsubscribe(self, topic: str) -> None:
        """End the subscription of a topic; calls that run are finished."""
        self.membership.check_here()
        if self.subscriptions.pop(topic, None) is not None:
            self._subscriptions_changed()

    def _subscriptions_changed(self) -> None:
        # Change the filters first: a broker that knows a new one may answer by it at any time, and nothing of that may
        # be left out here. When brokers know them, replace pulls that they hold by the old ones.
        for puller in self._pullers():
            subscription = self.subscriptions.get(puller.process_queue.queue.topic)
            if subscription is not None and not puller.process_queue.dropped:
                puller.subscription = subscription
        self.membership.announce(self._pull_again)

    def _pull_again(self) -> None:
        for puller in self._pullers():
            puller.pull_again()

    def _pullers(self) -> Collection[QueuePuller[ProcessQueue]]:
        rebalance = self.membership.rebalance
        return () if rebalance is None else rebalance.readers.values()

    def add_hook(self, hook: Hook) -> None:
        """Add a hook after those that exist; before start. Raises StateError."""
        if self.membership.session is not None:
            raise StateError("A consumer takes hooks only before start().")
        self._hooks = Hooks((*self._hooks.all, hook))

    # ------------------------------------------------------------------ starting and stopping

    @property
    def session(self) -> Session:
        """The session in use. Raises StateError before start, after stop, and in another event loop."""
        return self.membership.running_session

    async def start(self) -> None:
        """Join the group and begin to pull.

        Topics that do not exist yet are waited for. Raises StateError when started twice, UsageError for a condition
        that a broker refuses, and NameserverUnreachable; after the last two it may be started again.
        """
        member = self.membership
        member.check_startable("PushConsumer")
        if not self.subscriptions:
            raise UsageError("The consumer subscribes nothing: call subscribe(topic) before start().")
        if not self.broadcast:
            retry = names.retry_topic(self.group)
            self.subscriptions[retry] = build_subscription(retry, ALL, version=now_ms())
        session = member.join("PushConsumer")
        processing = member.processing = self._make_processing(session)
        rebalance = member.rebalance = self._make_rebalance(session, processing)
        try:
            if self._trace is not None:
                await self._trace.start()
            for subscription in tuple(self.subscriptions.values()):
                with contextlib.suppress(TopicNotFound):
                    await brokers.check_subscription(session, self.group, subscription)
            await session.add_consumer(self.group, member)
            await rebalance.rebalance()
        except BaseException:
            if not member.stopping:
                await self._leave()
            raise
        await member.run(session, *self._works(session, rebalance, processing))

    def _make_processing(self, session: Session) -> Concurrent | Orderly:
        """What passes messages to the listener."""
        send_back = None if self.broadcast else SendBack(session, self.group, self._options.retries)
        options = ConsumeOptions(
            group=self.group,
            batch_max_size=self._options.consume_message_batch_max_size,
            limits=self._thresholds.of_queue(0),
            stats=self.stats,
            send_back=send_back,
            timeout=self._options.consume_timeout,
        )
        make_runner: RunnerFactory = runner_factory(
            self._listener,
            concurrency=self.concurrency,
            hooks=self._consume_hooks(session),
            middleware=self._middleware,
            orderly=self.orderly,
        )
        if not self._options.in_order:
            return Concurrent(options, make_runner)
        return Orderly(
            session,
            options,
            make_runner,
            locks=None if self.broadcast else QueueLocks(session, self.group),
            suspend_time=self._options.suspend_time,
            max_reconsume_times=self._options.retries,
            auto_commit=self._options.auto_commit,
            ordered_by=self._options.ordered_by,
        )

    def _consume_hooks(self, session: Session) -> ConsumeHooks | None:
        if not self._hooks.of_consumption:
            return None
        return ConsumeHooks(
            self._hooks,
            self.group,
            session.client_id,
            orderly=self._options.in_order,
            broadcast=self.broadcast,
            timeout=self._options.consume_timeout,
        )

    def _make_rebalance(
        self, session: Session, processing: Concurrent | Orderly
    ) -> Rebalance[QueuePuller[ProcessQueue]]:
        options, order = self.membership.options, processing if isinstance(processing, Orderly) else None
        message_filter: MessageFilter | None = None
        if self._hooks.filter_messages:
            message_filter = partial(filter_messages, self._hooks, self.group)
        kind = Delivery if self._listener is None else ReceivedMessage

        def open_queue(queue: MessageQueue, offset: int) -> QueuePuller[ProcessQueue]:
            process_queue = ProcessQueue(queue, offset)
            process_queue.consumed_at = monotonic()
            return QueuePuller(
                session,
                self.group,
                process_queue,
                self.subscriptions[queue.topic],
                self._limits_of(queue.topic),
                self.pull_options,
                deliver=processing.deliver,
                moved=rebalance.moved,
                may_pull=None if order is None else order.may_pull,
                gate=self._gate,
                filter_messages=message_filter,
                stats=self.stats[queue.topic],
                kind=kind,
            )

        rebalance: Rebalance[QueuePuller[ProcessQueue]] = Rebalance(
            session,
            self.group,
            self.subscriptions,
            options,
            options.offset_store(session, self.group),
            open=open_queue,
            notify=self._share_thresholds,
            order=order,
        )
        return rebalance

    def _limits_of(self, topic: str) -> QueueLimits:
        """How much of each queue of a topic may wait, by how many of them this member has."""
        return self._thresholds.of_queue(sum(queue.topic == topic for queue in self.membership.queues))

    def _share_thresholds(self, topic: str, queues: Collection[MessageQueue]) -> None:
        """Divide the thresholds of a topic again after a change of its queues."""
        limits = self._limits_of(topic)
        for puller in self._pullers():
            if puller.process_queue.queue.topic == topic:
                puller.limits = limits

    def _works(
        self,
        session: Session,
        rebalance: Rebalance[QueuePuller[ProcessQueue]],
        processing: Concurrent | Orderly,
    ) -> list[Coroutine[Any, Any, None]]:
        """What runs while the consumer runs (the scheduled tasks of MQClientInstance)."""
        compare = None
        if not self.broadcast:
            compare = Comparison(session, self.group, self.subscriptions, lambda: rebalance.members).look
        return [
            rebalance.run(self.membership.options.rebalance_interval, compare),
            rebalance.find_topics(self.membership.topics),
            self._store_offsets(session, rebalance),
            _renew_locks(session, processing) if isinstance(processing, Orderly) else self._expire(processing),
        ]

    async def _store_offsets(self, session: Session, rebalance: Rebalance[QueuePuller[ProcessQueue]]) -> None:
        """Store all offsets every ``offset_interval``, and those of idle queues soon."""
        due = monotonic() + self._offset_interval
        while True:
            asleep, wait = monotonic(), min(STORE_IDLE_INTERVAL, self._offset_interval)
            await asyncio.sleep(wait)
            late = monotonic() - asleep - wait
            if late > session.settings.waits.standstill:
                log.warning(
                    "the event loop stood still for %.1f s, and with it pulls, heartbeats and listeners: a coroutine "
                    "must not block or compute for long; a listener that is a plain function runs in threads",
                    late,
                )
            everything = monotonic() >= due
            if everything:
                due = monotonic() + self._offset_interval
            rebalance.store_positions(only_idle=not everything)
            self.stats.sample(monotonic())

    async def _expire(self, processing: Concurrent) -> None:
        """Send back the messages of calls that take too long."""
        while True:
            await asyncio.sleep(min(EXPIRY_CHECK_INTERVAL, self._options.consume_timeout / 10))
            processing.expire()

    async def stop(self) -> None:
        """Stop pulling, wait for running calls, store the offsets, leave the group.

        Returns when the brokers have confirmed; called in a listener it returns at once, as that call is waited for. A
        cancellation ends the wait for running calls only. Further calls wait for the same end.
        """
        if self.membership.session is not None:
            self.membership.stopping = True
        if self.membership.stopping:
            await self._leave()

    async def _leave(self) -> None:
        leaving, processing = self.membership.leave(first=self._shut_down, last=self._close), self.membership.processing
        assert processing is not None
        if called_by(processing.runner):
            return
        try:
            await asyncio.shield(leaving)
        except asyncio.CancelledError:
            processing.runner.stop_waiting()
            await asyncio.shield(leaving)
            raise

    async def _shut_down(self) -> None:
        processing = self.membership.processing
        if processing is not None and not await processing.shutdown(self._options.stop_timeout):
            log.warning("calls of the listener of %s still run; their messages are retried elsewhere", self.group)

    async def _close(self) -> None:
        if self._executor is not None:
            self._executor.close()
        if self._trace is not None:
            await self._trace.stop()

    # ------------------------------------------------------------------ while it runs

    def suspend(self) -> None:
        """Stop pulling until ``resume``. Thread-safe; allowed before start.

        Messages that were pulled are consumed, as are those of pulls in flight, one for each queue.
        """
        self._gate.close()

    def resume(self) -> None:
        """Pull again after ``suspend``. Thread-safe."""
        self._gate.open()

    @property
    def suspended(self) -> bool:
        """Whether it is suspended."""
        return self._gate.closed

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has now."""
        return self.membership.queues

    @property
    def under_way(self) -> dict[MessageQueue, ProcessQueue]:
        """The messages of each queue that were pulled and are not consumed yet. Thread-safe."""
        rebalance = self.membership.rebalance
        readers = dict(rebalance.readers) if rebalance is not None else {}
        return {queue: puller.process_queue for queue, puller in readers.items()}

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """The offset to store of each queue of a topic that this member has."""
        return self.membership.positions(topic)

    def messages(self, *, auto_ack: bool = True) -> Messages:
        """The messages for ``async for``, of a consumer without a listener.

        A message counts as consumed when the next one is taken; with ``auto_ack=False`` only by its ``ack()``. A loop
        that ends by ``break`` or an error leaves its last message unsettled: it is retried, unless ``ack()`` was
        called. Several tasks may iterate at once, each over its own ``messages()``.
        """
        processing = self.membership.processing
        stream = processing.runner if processing is not None else None
        if not isinstance(stream, MessageStream):
            raise StateError("Messages can be iterated only after start, and of a consumer made without a listener.")
        return Messages(stream, auto_ack)

    def __aiter__(self) -> Messages:
        return self.messages()

    def _figures(self) -> dict[str, str]:
        return {
            "PROP_CONSUMEORDERLY": str(self._options.in_order).lower(),
            "PROP_THREADPOOL_CORE_SIZE": str(self.concurrency),
            "messagesConsumed": str(self.stats.consumed),
            "messagesFailed": str(self.stats.failed),
        }


async def _renew_locks(session: Session, processing: Orderly) -> None:
    """Renew the locks of an orderly member in time."""
    while True:
        await asyncio.sleep(session.settings.lock_interval)
        await processing.renew_locks()


def _in_executor(
    listener: Listener | None, executor: Executor | Callable[[], Executor] | None
) -> tuple[ListenerInExecutor | None, Listener | None]:
    """The executor of a listener, if one was given, and the listener that runs in it. Raises UsageError."""
    if listener is None:
        return None, None
    callbacks.check_callable(listener, "The listener")
    if executor is None:
        return None, listener
    in_executor = ListenerInExecutor(executor, listener)
    return in_executor, in_executor.run
