"""PushEngine: what runs behind a push consumer: its membership, its pulls, and the calls of its listener.

Owns the order of start and stop. ``membership`` answers brokers, ``rebalance`` has the queues, ``queue_puller`` pulls,
and ``concurrent`` and ``orderly`` pass messages to the listener. What users see of it is ``PushConsumer``. Facts:
DefaultMQPushConsumerImpl in 4.9.7.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Sequence
from concurrent.futures import Executor
from functools import partial
from time import monotonic
from typing import Any

from eruca.client import callbacks
from eruca.client.checks import check_wait
from eruca.client.config import ClientSettings, check_topic
from eruca.client.consuming.concurrent import Concurrent, ConsumeOptions, RunnerFactory
from eruca.client.consuming.consistency import Comparison
from eruca.client.consuming.consumer_stats import ConsumerStats
from eruca.client.consuming.executors import ListenerInExecutor
from eruca.client.consuming.listener_options import ListenerOptions
from eruca.client.consuming.locks import QueueLocks
from eruca.client.consuming.member_options import MemberOptions
from eruca.client.consuming.membership import GroupMember, next_version, subscription_of
from eruca.client.consuming.message_stream import Delivery, MessageStream, runner_factory
from eruca.client.consuming.offset_store import OffsetStore
from eruca.client.consuming.orderly import Orderly
from eruca.client.consuming.process_queue import ProcessQueue, PullThresholds, QueueLimits
from eruca.client.consuming.queue_puller import Gate, MessageFilter, PullOptions, QueuePuller
from eruca.client.consuming.rebalance import Rebalance
from eruca.client.consuming.runners import called_by
from eruca.client.consuming.send_back import SendBack
from eruca.client.errors import StateError, TopicNotFound, UsageError
from eruca.client.hooks import ConsumeHooks, Hook, Hooks, filter_messages
from eruca.client.lifecycle import TO_START, not_running
from eruca.client.log import log
from eruca.client.message import ReceivedMessage
from eruca.client.middleware import Middleware, check_middleware, check_works
from eruca.client.network import brokers
from eruca.client.network.session import Session
from eruca.client.outcomes import Listener
from eruca.client.producing.producer import Producer
from eruca.client.signals import ended_by_signal
from eruca.client.trace import MessageTrace
from eruca.protocol import names
from eruca.protocol.bodies import ConsumeType
from eruca.protocol.queues import MessageQueue
from eruca.protocol.subscription import ALL, build_subscription
from eruca.remoting.clock import now_ms

STORE_IDLE_INTERVAL = 0.2
"""Seconds after which the offset of a queue is stored whose pulled messages are all consumed."""
EXPIRY_CHECK_INTERVAL = 60.0
"""Seconds between two checks for calls that exceed ``consume_timeout``, at most; more often for a short timeout."""


class PushEngine:
    """The running part of one push consumer.

    Args:
        listener: None for a consumer whose messages are taken by ``async for``.
        calls, member, thresholds, pull: the options by their subjects.
        offset_interval: seconds between two stores of all offsets.
    """

    def __init__(
        self,
        group: str,
        listener: Listener | None,
        *,
        calls: ListenerOptions,
        member: MemberOptions,
        thresholds: PullThresholds,
        pull: PullOptions,
        offset_interval: float,
        executor: Executor | Callable[[], Executor] | None,
        hooks: Sequence[Hook],
        middleware: Sequence[Middleware],
        trace: bool | str,
        settings: ClientSettings,
    ) -> None:
        self.group = group
        self.broadcast = member.broadcast
        self.stats = ConsumerStats(monotonic())
        self.pull_options = pull
        self.gate = Gate()
        """Closed while the consumer is suspended."""
        self.membership: GroupMember[QueuePuller[ProcessQueue]] = GroupMember(
            group, settings, member, ConsumeType.CONSUME_PASSIVELY, figures=self._figures, stats=self.stats
        )
        """Its membership in the group, which answers the brokers."""
        self.subscriptions = self.membership.subscriptions
        self._options = calls
        if listener is not None:
            calls.check(listener)
        self._name = callbacks.name_of(listener)
        self._executor, self._listener = _in_executor(listener, executor)
        self._thresholds = thresholds
        self._offset_interval = offset_interval
        self._offset_store: OffsetStore | None = None
        self._streamed = False
        """Whether anybody has asked for the messages by ``stream``."""
        self._stopped = asyncio.Event()
        self._trace = MessageTrace(group, "CONSUME", trace, settings, Producer) if trace else None
        self._hooks = Hooks.given(hooks, self._trace)
        if middleware and listener is None:
            raise UsageError("middleware= stands around a listener: a consumer for `async for` has none.")
        self._middleware = check_middleware(middleware)

    # ------------------------------------------------------------------ subscribing

    def subscribe(self, topic: str, expression: str, expression_type: str) -> None:
        """As of PushConsumer."""
        check_topic(topic)
        self.membership.check_open()
        version = next_version(self.subscriptions.get(topic))
        self.subscriptions[topic] = subscription_of(topic, expression, expression_type, version)
        self._subscriptions_changed()

    def unsubscribe(self, topic: str) -> None:
        """As of PushConsumer."""
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
        """As of PushConsumer."""
        self.membership.check_open()
        if self.membership.session is not None:
            raise StateError("A consumer takes hooks only before start().")
        self._hooks = Hooks((*self._hooks.all, hook))

    def suspend(self) -> None:
        """As of PushConsumer. Raises StateError after the stop."""
        self.membership.check_not_over()
        self.gate.close()

    # ------------------------------------------------------------------ starting and stopping

    async def start(self) -> None:
        """As of PushConsumer."""
        member = self.membership
        member.check_startable("PushConsumer")
        if not self.subscriptions:
            raise UsageError("The consumer subscribes nothing: call subscribe(topic) before start().")
        if not self.broadcast:
            retry = names.retry_topic(self.group)
            self.subscriptions[retry] = build_subscription(retry, ALL, version=now_ms())
        await check_works(self._middleware)
        session = member.join("PushConsumer")
        self._stopped.clear()
        processing = member.processing = self._make_processing(session)
        try:
            store = self._offset_store = member.options.offset_store(session, self.group)
            rebalance = member.rebalance = self._make_rebalance(session, processing, store)
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
        send_back = None if self.broadcast else SendBack(session, self.group, self._options.policy, self.stats)
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
            self.group,
            concurrency=self._options.concurrency,
            hooks=self._consume_hooks(session),
            middleware=self._middleware,
            orderly=self._options.in_order,
            name=self._name,
        )
        if not self._options.in_order:
            return Concurrent(options, make_runner)
        return Orderly(
            session,
            options,
            make_runner,
            locks=None if self.broadcast else QueueLocks(session, self.group),
            suspend_time=self._options.suspend_time,
            policy=self._options.policy,
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
            dead=None if self.broadcast else self._options.policy.dead,
        )

    def _make_rebalance(
        self, session: Session, processing: Concurrent | Orderly, store: OffsetStore
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
                gate=self.gate,
                filter_messages=message_filter,
                stats=self.stats[queue.topic],
                kind=kind,
            )

        rebalance: Rebalance[QueuePuller[ProcessQueue]] = Rebalance(
            session,
            self.group,
            self.subscriptions,
            options,
            store,
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
            self._store_offsets(rebalance),
            _renew_locks(session, processing) if isinstance(processing, Orderly) else self._expire(processing),
        ]

    async def _store_offsets(self, rebalance: Rebalance[QueuePuller[ProcessQueue]]) -> None:
        """Store all offsets every ``offset_interval``, and those of idle queues soon."""
        due = monotonic() + self._offset_interval
        while True:
            await asyncio.sleep(min(STORE_IDLE_INTERVAL, self._offset_interval))
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
        """As of PushConsumer."""
        if self.membership.session is not None:
            self.membership.session.check_here()
            self.membership.stopping = True
        if self.membership.stopping:
            await self._leave()

    async def wait(self, timeout: float | None) -> bool:
        """As of PushConsumer."""
        member = self.membership
        if member.session is None and not member.stopping:
            raise not_running("consumer", stopped=False)
        if self._listener is None:
            await asyncio.sleep(0)  # a task that was made just now may be the one that takes the messages
            if not self._streamed and not member.stopping:
                raise UsageError(
                    "The consumer has no listener, and nobody takes its messages: give it a listener, or iterate over "
                    "it before wait()."
                )
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None if timeout is None else check_wait("timeout", timeout)):
                with ended_by_signal(lambda: loop.call_soon_threadsafe(self.begin_to_stop)):
                    await self._stopped.wait()
                if member.leaving is not None:
                    await asyncio.shield(member.leaving)
                return True
        except TimeoutError:
            return False

    def begin_to_stop(self) -> None:
        """Begin what ``stop`` does, and wait for nothing."""
        if self.membership.session is not None:
            self.membership.stopping = True
        if self.membership.stopping:
            self._begin_to_leave()

    def _begin_to_leave(self) -> asyncio.Task[None]:
        return self.membership.leave(first=self._shut_down, last=self._close)

    async def _leave(self) -> None:
        leaving, processing = self._begin_to_leave(), self.membership.processing
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
        if self._offset_store is not None:
            await self._offset_store.close()
        self._stopped.set()

    # ------------------------------------------------------------------ while it runs

    @property
    def under_way(self) -> dict[MessageQueue, ProcessQueue]:
        """The messages of each queue that were pulled and are not consumed yet. Thread-safe."""
        rebalance = self.membership.rebalance
        readers = dict(rebalance.readers) if rebalance is not None else {}
        return {queue: puller.process_queue for queue, puller in readers.items()}

    def stream(self) -> MessageStream:
        """The messages for ``async for``. Raises StateError before start, and where there is a listener."""
        processing = self.membership.processing
        stream = processing.runner if processing is not None else None
        if self._listener is not None:
            raise StateError("The listener gets the messages: to iterate over them, make the consumer without one.")
        if not isinstance(stream, MessageStream):
            raise StateError(f"The consumer is not started, so it has no messages to iterate over: {TO_START}.")
        self._streamed = True
        return stream

    def _figures(self) -> dict[str, str]:
        return {
            "PROP_CONSUMEORDERLY": str(self._options.in_order).lower(),
            "PROP_THREADPOOL_CORE_SIZE": str(self._options.concurrency),
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
    if executor is None:
        return None, listener
    in_executor = ListenerInExecutor(executor, listener)
    return in_executor, in_executor.run
