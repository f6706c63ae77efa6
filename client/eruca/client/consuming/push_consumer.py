"""Consuming as a member of a group: messages come by themselves, and what was consumed is remembered by the broker.

Owns a consumer's settings, its subscriptions, and its life: start, the work that repeats, an orderly stop. Which queues
it has is the matter of ``ownership``, what becomes of their messages that of ``concurrent`` and ``orderly``, and what
runs a listener that of ``listeners`` and ``mailbox``. Facts: DefaultMQPushConsumer in 4.9.7.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Literal, Self

from eruca.client import callbacks
from eruca.client.assign import Strategy, averagely, everything
from eruca.client.config import ClientSettings, check_group, check_start, check_topic
from eruca.client.consuming import orderly as ordered
from eruca.client.consuming.concurrent import Concurrent, Handling
from eruca.client.consuming.consumer_stats import ConsumerStats
from eruca.client.consuming.executors import ListenerElsewhere
from eruca.client.consuming.expressions import subscription_of
from eruca.client.consuming.leaving import Leaving
from eruca.client.consuming.listeners import clock
from eruca.client.consuming.locks import QueueLocks
from eruca.client.consuming.member import PushMember
from eruca.client.consuming.message_stream import Delivery, Messages, MessageStream, runner_maker
from eruca.client.consuming.offset_store import LocalFileOffsetStore, OffsetStore, RemoteBrokerOffsetStore
from eruca.client.consuming.options import check_options
from eruca.client.consuming.process_queue import Limits
from eruca.client.consuming.queue_puller import PULL_BATCH, PullOptions
from eruca.client.consuming.rebalance import Reading, Rebalance
from eruca.client.consuming.send_back import DEFAULT_MAX_RECONSUME_TIMES, SendBack
from eruca.client.consuming.suspension import Gate
from eruca.client.consuming.upkeep import Intervals, Upkeep
from eruca.client.errors import StateError, TopicNotFound, UsageError
from eruca.client.hooks import ConsumeHooks, Hook, Hooks, filter_messages
from eruca.client.log import log
from eruca.client.message import ReceivedMessage
from eruca.client.network import brokers
from eruca.client.network.session import Session
from eruca.client.outcomes import Listener
from eruca.client.trace import MessageTrace
from eruca.protocol import names
from eruca.protocol.bodies import SubscriptionData
from eruca.protocol.subscription import ALL, TAG, build_subscription
from eruca.remoting.clock import now_ms


class PushConsumer(PushMember):
    """A member of a consumer group: each message goes to one member.

    With a ``listener`` its messages go there; without one they are taken by ``async for message in consumer``. Use it
    with ``async with``, or call ``start`` and ``stop``.

    Args:
        group: the consumer group.
        listener: takes a ReceivedMessage. A coroutine function runs in the event loop, another function in threads.
            Returning None consumes the message, raising or returning ``Later()`` lets it come again.
        nameserver: ``host:port`` addresses; default from the environment (see ClientSettings).
        start_from: where a group without stored offsets begins: "first", "last", "end", or a time (datetime, or ms
            since 1970). A broker counts a queue's first message as "last", too, as long as it is in memory; "end" skips
            whatever is there.
        strategy: how queues are shared out; all members must use the same (see ``assign``).
        concurrency: listeners at work at once.
        batch: None gives one message to a listener; a number gives a list of up to so many.
        pull_batch: messages to ask for in one pull, less where ``limits`` leave less room. What a pull costs is shared
            by its messages; a broker of RocketMQ's defaults gives 32 at most.
        limits: how much of one queue, or of one topic, may wait here.
        pull_interval: seconds between a pull that brought messages and the next one.
        max_reconsume_times: returns after which a message goes to the dead letters; default 16, without end if orderly.
        orderly: the messages of a queue are consumed in their order, one piece at a time by one member. Raising or
            returning ``Suspend()`` lets a message come again before all others of its queue.
        suspend_time: seconds until then, from 0.01 to 30.
        auto_commit: False lets an orderly listener say when its messages count as consumed, by ``Decision``.
        broadcast: every member gets all messages. Its positions are kept in a local file, as RocketMQ's clients do;
            what a listener fails to consume is only told to the log.
        offset_folder: where that file is kept; default ``~/.rocketmq_offsets``.
        offset_interval: seconds between two storings of the positions.
        rebalance_interval: seconds between two looks at who is in the group (brokers tell of changes at once).
        stop_timeout: seconds for which ``stop`` waits for listeners at work.
        consume_timeout: seconds after which messages that a listener still has go back, to come again (not if orderly).
        executor: runs a listener that is a plain function, such as a ProcessPoolExecutor for one that computes much; or
            a function that makes one, which is shut down at the stop, and replaced when a process of it died.
        hooks: what sees what is consumed (see Hook).
        trace: True writes the trace of each message to RMQ_SYS_TRACE_TOPIC, a name to that topic (enableMsgTrace).
        settings: what all clients share.

    Raises BadName, BadConfig, UsageError and NoNameserver.
    """

    def __init__(
        self,
        group: str,
        listener: Listener | None = None,
        *,
        nameserver: str | Sequence[str] | None = None,
        start_from: Literal["first", "last", "end"] | int | datetime = "last",
        strategy: Strategy = averagely,
        concurrency: int = 20,
        batch: int | None = None,
        pull_batch: int = PULL_BATCH,
        limits: Limits = Limits(),  # noqa: B008
        pull_interval: float = 0.0,
        max_reconsume_times: int | None = None,
        orderly: bool = False,
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
        trace: bool | str = False,
        settings: ClientSettings | None = None,
    ) -> None:
        check_group(group, "consumer")
        if listener is not None:
            callbacks.check_callable(listener, "The listener")
        check_options(
            pull_interval=pull_interval,
            stop_timeout=stop_timeout,
            max_reconsume_times=max_reconsume_times,
            orderly=orderly,
            auto_commit=auto_commit,
            broadcast=broadcast,
            offset_folder=offset_folder,
            limits=limits,
            strategy=strategy,
            concurrency=concurrency,
            pull_batch=pull_batch,
            batch=1 if batch is None else batch,
            offset_interval=offset_interval,
            rebalance_interval=rebalance_interval,
            suspend_time=suspend_time,
            consume_timeout=consume_timeout,
        )
        self.group = group
        self.orderly = orderly
        self.broadcast = broadcast
        self._offset_folder = offset_folder
        self.concurrency = concurrency
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.started_at = 0
        self.paces = ConsumerStats(clock())
        self._elsewhere = None if listener is None or executor is None else ListenerElsewhere(executor, listener)
        self._listener = listener if self._elsewhere is None else self._elsewhere.run
        self._intervals = Intervals(
            rebalance=rebalance_interval, store=offset_interval, consume_timeout=consume_timeout
        )
        self._batch = batch
        self._gate = Gate()
        self._reading = Reading(
            start_from=check_start(start_from),
            strategy=everything if broadcast else strategy,
            limits=limits,
            pull_batch=pull_batch,
            broadcast=broadcast,
            paces=self.paces,
            kind=Delivery if listener is None else ReceivedMessage,
            gate=self._gate,
            manner=PullOptions(interval=pull_interval),
        )
        if max_reconsume_times is None:
            max_reconsume_times = ordered.MAX_RECONSUME_TIMES if orderly else DEFAULT_MAX_RECONSUME_TIMES
        self._max_reconsume_times = max_reconsume_times
        self._suspend_time = suspend_time
        self._auto_commit = auto_commit
        self._stop_timeout = stop_timeout
        self._settings = ClientSettings.choose(settings, nameserver)
        self._trace = MessageTrace(group, "CONSUME", trace, self._settings) if trace else None
        self._hooks = Hooks.given(hooks, self._trace)
        self._session: Session | None = None
        self._ownership: Rebalance | None = None
        self._processing: Concurrent | ordered.Orderly | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._leaving: Leaving | None = None

    # ------------------------------------------------------------------ subscribing

    def subscribe(self, topic: str, expression: str = ALL, *, expression_type: str = TAG) -> Self:
        """Take a topic's messages: those with one of the tags of ``TagA || TagB``, or all with ``*``.

        With ``expression_type="SQL92"`` the expression is a condition on properties. All members of a group must
        subscribe alike. May be called before and after start; returns the consumer. Raises BadName and UsageError.
        """
        check_topic(topic)
        self._check_here()
        self.subscriptions[topic] = subscription_of(topic, expression, expression_type, now_ms())
        self._subscriptions_changed()
        return self

    def unsubscribe(self, topic: str) -> None:
        """Take no more messages of a topic; what was begun is ended."""
        self._check_here()
        if self.subscriptions.pop(topic, None) is not None:
            self._subscriptions_changed()

    def _subscriptions_changed(self) -> None:
        if self._session is not None and self._ownership is not None:
            self._ownership.filter_anew()
            self._session.spawn(self._announce())

    async def _announce(self) -> None:
        session = self._session
        if session is not None and self._ownership is not None:
            await session.add_consumer(self.group, self)
            self._ownership.pull_anew()
            await self._ownership.give_up_unsubscribed()
            self._changed.set()

    def add_hook(self, hook: Hook) -> None:
        """One more that sees what is consumed, after those that are there; before start. Raises StateError."""
        if self._session is not None:
            raise StateError("A consumer takes hooks only before start().")
        self._hooks = Hooks((*self._hooks.all, hook))

    # ------------------------------------------------------------------ starting and stopping

    async def start(self) -> None:
        """Join the group and begin to read.

        A topic that is not there yet is waited for. Raises StateError when started twice; UsageError for a condition
        that a broker refuses, and NameserverUnreachable, after which it may be started again.
        """
        if self._session is not None or self._leaving is not None:
            raise StateError(
                "The PushConsumer service state not OK, maybe started once. Make a new PushConsumer to start again."
            )
        if not self.subscriptions:
            raise UsageError("The consumer subscribes nothing: call subscribe(topic) before start().")
        if not self.broadcast:
            retry = names.retry_topic(self.group)
            self.subscriptions[retry] = build_subscription(retry, ALL, version=now_ms())
        session = self._session = Session.join(self._settings, self.group, self)
        self.started_at = now_ms()
        self._prepare(session)
        assert self._ownership is not None and self._processing is not None
        try:
            if self._trace is not None:
                await self._trace.start()
            for subscription in tuple(self.subscriptions.values()):
                with contextlib.suppress(TopicNotFound):
                    await brokers.check_subscription(session, self.group, subscription)
            await session.add_consumer(self.group, self)
            await self._ownership.rebalance()
        except BaseException:
            if self._leaving is None:
                await Leaving(self._leave(), self._processing.runner).wait()
            raise
        if self._leaving is not None:  # stopped meanwhile, perhaps by a listener
            await session.remove_consumer(self.group)
            return
        upkeep = Upkeep(
            session, self.group, self._ownership, self._processing, self.paces, self._changed, self._intervals
        )
        self._tasks = [session.spawn(work) for work in upkeep.tasks(self.subscriptions, compare=not self.broadcast)]

    def _prepare(self, session: Session) -> None:
        """Put the parts together."""
        group, most, hooks = self.group, self._max_reconsume_times, None
        if self._hooks.filter_messages:
            self._reading = replace(self._reading, sift=partial(filter_messages, self._hooks, group))
        if self._hooks.of_consumption:
            hooks = ConsumeHooks(
                self._hooks,
                group,
                session.client_id,
                orderly=self.orderly,
                broadcast=self.broadcast,
                timeout=self._intervals.consume_timeout,
            )
        make_runner = runner_maker(self._listener, concurrency=self.concurrency, hooks=hooks)
        returns = None if self.broadcast else SendBack(session, group, most)
        handling = Handling(
            group=group,
            batch=self._batch,
            limits=self._reading.limits,
            paces=self.paces,
            returns=returns,
            timeout=self._intervals.consume_timeout,
        )
        order: ordered.Orderly | None = None
        if self.orderly:
            self._processing = order = ordered.Orderly(
                session,
                handling,
                make_runner,
                locks=None if self.broadcast else QueueLocks(session, group),
                suspend_time=self._suspend_time,
                max_reconsume_times=most,
                auto_commit=self._auto_commit,
            )
        else:
            self._processing = Concurrent(handling, make_runner)
        positions: OffsetStore = RemoteBrokerOffsetStore(session, group)
        if self.broadcast:
            positions = LocalFileOffsetStore(self._offset_folder, session, group)
        self._ownership = Rebalance(
            session, group, self.subscriptions, self._reading, positions, self._processing.deliver, order
        )

    async def stop(self) -> None:
        """Read no more, wait for listeners at work, store the positions, leave the group.

        Returns when the brokers have confirmed; in a listener at once, as it is waited for itself. When it is
        cancelled, listeners are waited for no longer. Calling it twice does no harm.
        """
        if self._session is not None and self._leaving is None and self._processing is not None:
            self._leaving = Leaving(self._leave(), self._processing.runner)
        if self._leaving is not None:
            await self._leaving.wait()

    async def _leave(self) -> None:
        session, ownership, processing = self._session, self._ownership, self._processing
        assert session and ownership and processing
        ownership.stop_reading()
        if not await processing.halt(self._stop_timeout):
            log.warning("listeners of %s still run; their messages come again elsewhere", self.group)
        await ownership.release()
        for task in self._tasks:
            task.cancel()
        if self._elsewhere is not None:
            self._elsewhere.close()
        await session.remove_consumer(self.group)
        if self._trace is not None:
            await self._trace.stop()
        self._session = None
        await session.leave()

    # ------------------------------------------------------------------ messages

    def messages(self, *, auto_ack: bool = True) -> Messages:
        """The messages for ``async for``, of a consumer without a listener.

        A message counts as consumed when the next one is asked for; with ``auto_ack=False`` only by its ``ack()``.
        A loop that is left by ``break`` or an error leaves its last message unsettled: it comes again, unless
        ``ack()`` was called. Several tasks may iterate at once, each over its own ``messages()``.
        """
        runner = self._processing.runner if self._processing is not None else None
        if not isinstance(runner, MessageStream):
            raise StateError("Messages can be iterated only after start, and of a consumer made without a listener.")
        return Messages(runner, auto_ack)

    def __aiter__(self) -> Messages:
        return self.messages()
