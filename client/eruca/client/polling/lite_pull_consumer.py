"""LitePullConsumer: the library pulls ahead, the caller polls what arrived.

Owns the options of the consumer, what it subscribes or assigns, and its start and stop. ``assignment`` has the queues,
``message_cache`` the messages that wait to be polled. Facts: DefaultLitePullConsumer in 4.9.7; beyond it a reset by
mqadmin takes effect, and brokers confirm commits.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import ChainMap
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Literal, Self

from eruca.client import callbacks
from eruca.client.admin_calls import Client
from eruca.client.assign import Strategy, averagely
from eruca.client.bounds import bounded
from eruca.client.checks import (
    check_flags,
    check_kind,
    check_least,
    check_number,
    check_offset,
    check_offsets,
    check_queue,
    check_queues,
    check_seconds,
    check_wait,
)
from eruca.client.config import (
    ClientSettings,
    StartFrom,
    check_group,
    check_positive,
    check_suspend,
    check_text,
    check_topic,
    find_nameservers,
)
from eruca.client.consuming.member_options import MemberOptions
from eruca.client.consuming.membership import GroupMember, next_version, subscription_of
from eruca.client.consuming.process_queue import PullThresholds
from eruca.client.consuming.queue_puller import MessageFilter, PullOptions, QueuePuller
from eruca.client.consuming.rebalance_listener import QueuesListener
from eruca.client.environment import known_keywords, known_options
from eruca.client.errors import StateError, TopicNotFound, UsageError
from eruca.client.hooks import ConsumeHooks, Hook, Hooks, filter_messages
from eruca.client.lifecycle import not_running
from eruca.client.message import ReceivedMessage
from eruca.client.network import brokers
from eruca.client.network.events import DisconnectedListener, ErrorListener, EventListeners, ReconnectedListener
from eruca.client.network.session import Session
from eruca.client.polling.assignment import Assignment, PollOptions
from eruca.client.polling.message_cache import Iteration, MessageCache, PolledQueue, PollHooks
from eruca.client.polling.queue_share import MessageQueueListener, QueueListeners, pull_figures
from eruca.client.polling.topic_watch import TopicMessageQueueChangeListener, TopicWatch
from eruca.client.producing.producer import Producer
from eruca.client.trace import MessageTrace
from eruca.protocol.bodies import ConsumeType, SubscriptionData
from eruca.protocol.queues import MessageQueue
from eruca.protocol.subscription import ALL, TAG

LEAST_COMMIT_INTERVAL = 1.0
PERSIST_INTERVAL = 5.0
"""Seconds between two stores of offsets that were committed without being stored (persistConsumerOffsetInterval)."""


@known_options
class LitePullConsumer(Client):
    """A member of a group that polls, or a reader of queues that the caller assigns.

    Use it with ``async with``, or call ``start`` and ``stop``; times are in seconds. All methods raise ClientError.

    Args:
        group: the consumer group.
        nameserver: ``host:port`` addresses; default from the environment (see ClientSettings).
        start_from: where queues without a stored offset begin; as of PushConsumer (consumeFromWhere and
            consumeTimestamp).
        strategy: how queues are allocated; all members must use the same (see ``assign``).
        auto_commit: polling more, also by iteration, commits what was polled before. False leaves that to
            ``commit_sync`` and ``commit``.
        auto_commit_interval: between two stores of the offsets; at least 1.
        poll_timeout: how long ``poll`` waits by default.
        pull_batch_size: messages to ask for in one pull, and so the most that one poll returns.
        pull_threshold_for_all: how much may wait in memory, counted in pulls times pull_batch_size.
        pull_threshold_for_queue: messages of one queue that may wait in memory.
        pull_threshold_size_for_queue: MiB of one queue that may wait in memory.
        consume_max_span: offsets from the first to the last waiting message of one queue.
        broker_suspend_max_time: how long a broker may hold a pull if there is no message.
        consumer_timeout_when_suspend: until such a pull counts as failed; more than broker_suspend_max_time.
        pull_time_delay_when_exception: until the next pull after a failed one.
        topic_metadata_check_interval: between two lookups of the queues of a topic with a change listener.
        broadcast: every member gets all messages; its offsets are stored in a local file, as of PushConsumer.
        offset_folder: the folder of that file; default ``~/.rocketmq_offsets``.
        hooks: see what is polled, until the next poll or a commit (see Hook).
        trace: write message traces, to RMQ_SYS_TRACE_TOPIC or to the topic that is named.
        rebalance_interval: between two lookups of the members of the group (brokers also notify at once).
        on_assigned: called with the queues that this member got by its subscriptions, before it reads them; a coroutine
            function, or another that runs in a thread. A rebalance waits for it, 10 s at most
            (Waits.rebalance_listener); errors are logged.
        on_revoked: the same, with the queues that it gives up, also when it stops, before other members get them.
            A commit counts meanwhile.
        on_disconnected: called with a Disconnected when a broker cannot be reached; a coroutine function, or another
            that runs in a thread. Nothing waits for it, it ends after 10 s (Waits.event_listener), errors are logged.
        on_reconnected: the same, with a Reconnected when it is reached again.
        on_error: the same, with a BackgroundError when background work failed, such as to store offsets.
        settings: what all clients share.

    Raises BadName, BadConfig and UsageError; ``start`` also NoNameserver.
    """

    def __init__(
        self,
        group: str,
        *,
        nameserver: str | Sequence[str] | None = None,
        start_from: StartFrom = "last",
        strategy: Strategy = averagely,
        auto_commit: bool = True,
        auto_commit_interval: float = 5.0,
        poll_timeout: float = 5.0,
        pull_batch_size: int = 10,
        pull_threshold_for_all: int = 10_000,
        pull_threshold_for_queue: int = 1000,
        pull_threshold_size_for_queue: int = 100,
        consume_max_span: int = 2000,
        broker_suspend_max_time: float = 20.0,
        consumer_timeout_when_suspend: float = 30.0,
        pull_time_delay_when_exception: float = 1.0,
        topic_metadata_check_interval: float = 30.0,
        broadcast: bool = False,
        offset_folder: str | PathLike[str] | None = None,
        rebalance_interval: float = 20.0,
        on_assigned: QueuesListener | None = None,
        on_revoked: QueuesListener | None = None,
        on_disconnected: DisconnectedListener | None = None,
        on_reconnected: ReconnectedListener | None = None,
        on_error: ErrorListener | None = None,
        hooks: Sequence[Hook] = (),
        trace: bool | str = False,
        settings: ClientSettings | None = None,
    ) -> None:
        check_group(group, "consumer")
        check_seconds(LEAST_COMMIT_INTERVAL, auto_commit_interval=auto_commit_interval)
        check_flags(auto_commit=auto_commit)
        check_least(1, pull_batch_size=pull_batch_size, pull_threshold_for_all=pull_threshold_for_all)
        check_positive(
            pull_time_delay_when_exception=pull_time_delay_when_exception,
            topic_metadata_check_interval=topic_metadata_check_interval,
        )
        check_suspend(broker_suspend_max_time, consumer_timeout_when_suspend)
        self.group = group
        self.broadcast = broadcast
        self._thresholds = PullThresholds(
            pull_threshold_for_queue=pull_threshold_for_queue,
            pull_threshold_size_for_queue=pull_threshold_size_for_queue,
            consume_max_span=consume_max_span,
        )
        self._options = PollOptions(
            auto_commit=auto_commit,
            pull=PullOptions(
                batch_size=pull_batch_size,
                hold=broker_suspend_max_time,
                timeout=consumer_timeout_when_suspend,
                after_error=pull_time_delay_when_exception,
                lite=True,
                commit=False,
            ),
            limits=self._thresholds.of_queue(),
            threshold=pull_threshold_for_all,
        )
        options = MemberOptions(
            start_from=start_from,
            strategy=strategy,
            broadcast=broadcast,
            offset_folder=offset_folder,
            rebalance_interval=rebalance_interval,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            events=EventListeners(
                group=group, on_disconnected=on_disconnected, on_reconnected=on_reconnected, on_error=on_error
            ),
            store_start=auto_commit,
        )
        settings = ClientSettings.choose(settings, nameserver)
        self._membership: GroupMember[QueuePuller[PolledQueue]] = GroupMember(
            group, settings, options, ConsumeType.CONSUME_ACTIVELY, figures=self._figures
        )
        """Its membership in the group, which answers the brokers."""
        self._subscriptions = self._membership.subscriptions
        self._commit_interval = auto_commit_interval
        self._poll_timeout = check_wait("poll_timeout", poll_timeout)
        self._trace = MessageTrace(group, "CONSUME", trace, settings, Producer) if trace else None
        self._hooks = Hooks.given(hooks, self._trace)
        self._mode: Literal["subscribe", "assign"] | None = None
        self._assigned: frozenset[MessageQueue] = frozenset()
        self._filters: dict[str, SubscriptionData] = {}
        """Of the topics of assigned queues; heartbeats do not carry them."""
        self._listeners: dict[str, MessageQueueListener] = {}
        self._watch = TopicWatch(topic_metadata_check_interval)
        self._cache = MessageCache(self._options.limits)
        self._assignment: Assignment | None = None
        """Set while it runs."""

    def add_hook(self, hook: Hook) -> None:
        """Add a hook after those that exist; before start. Raises StateError."""
        self._membership.check_open()
        if self._membership.session is not None:
            raise StateError("A consumer takes hooks only before start().")
        self._hooks = Hooks((*self._hooks.all, hook))

    # ------------------------------------------------------------------ subscribing and assigning

    def _set_mode(self, mode: Literal["subscribe", "assign"]) -> None:
        if self._mode not in (None, mode):
            raise StateError("Subscribe and assign are mutually exclusive.")
        self._mode = mode

    @known_keywords
    def subscribe(
        self,
        topic: str,
        expression: str = ALL,
        *,
        expression_type: str = TAG,
        listener: MessageQueueListener | None = None,
    ) -> Self:
        """Take a share of a topic: messages with one of the tags of ``TagA || TagB``, or all with ``*``.

        With ``expression_type="SQL92"`` the expression is a condition on properties. ``listener(topic, queues, mine)``
        is called when the queues were allocated. May be called before and after start; returns the consumer. Raises
        BadName, UsageError, and StateError after ``assign``.
        """
        self._membership.check_open()
        if not topic:
            raise UsageError("Topic can not be null or empty.")
        check_topic(topic)
        if listener is not None:
            callbacks.check_callable(listener, "The listener", "topic", "queues", "mine")
        version = next_version(self._subscriptions.get(topic))
        subscription = subscription_of(topic, expression, expression_type, version)
        self._set_mode("subscribe")
        self._subscriptions[topic] = subscription
        self._listeners.pop(topic, None)
        if listener is not None:
            self._listeners[topic] = listener
        self._subscriptions_changed()
        return self

    def unsubscribe(self, topic: str) -> None:
        """End the subscription of a topic; messages that were polled can no longer be committed."""
        self._membership.check_here()
        check_text(topic, "topic")
        self._listeners.pop(topic, None)
        if self._subscriptions.pop(topic, None) is not None:
            self._subscriptions_changed()

    def _subscriptions_changed(self) -> None:
        if self._assignment is not None:
            self._assignment.subscriptions_changed()
        self._membership.announce()

    def assign(self, queues: Collection[MessageQueue]) -> None:
        """Read these queues and no others, whoever else is in the group. May be called before and after start.

        Each continues at the group's stored offset, unless ``seek`` changes it; a queue that was assigned before just
        continues. Raises UsageError, and StateError after ``subscribe``.
        """
        self._membership.check_open()
        chosen = frozenset(check_queues(queues)) if queues is not None else None
        if not chosen:
            raise UsageError("Message queues can not be null or empty.")
        self._set_mode("assign")
        self._assigned = chosen
        self._membership.assigned_topics = frozenset(queue.topic for queue in chosen)
        for topic in self._membership.assigned_topics - self._filters.keys():
            self._filters[topic] = subscription_of(topic, ALL, TAG, 0)
        if self._assignment is not None:
            self._assignment.assign(chosen)

    def set_sub_expression_for_assign(self, topic: str, expression: str) -> None:
        """Read only messages with these tags from the assigned queues of a topic; before start.

        Raises UsageError and StateError.
        """
        check_topic(topic)
        check_kind("expression", expression, str | None, "a text")
        if not expression or expression.isspace():
            raise UsageError("subExpression can not be null or empty.")
        if self._membership.session is not None or self._membership.stopping:
            raise StateError("setAssignTag only can be called before start.")
        subscription = subscription_of(topic, expression, TAG, 0)
        self._set_mode("assign")
        self._filters[topic] = subscription

    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that this consumer has now."""
        return self._assigned if self._assignment is None else self._assignment.queues

    @bounded
    async def register_topic_message_queue_change_listener(
        self, topic: str, listener: TopicMessageQueueChangeListener, *, timeout: float | None = None
    ) -> None:
        """Call ``listener(topic, queues)`` whenever the queues of a topic change.

        May be called before and after start; a second listener of a topic replaces the first. Raises UsageError.
        """
        self._membership.check_here()
        check_topic(topic)
        session = self._membership.session
        await self._watch.add(None if session is None else session.directory, topic, listener)

    # ------------------------------------------------------------------ starting and stopping

    @property
    def _details(self) -> str:
        return self._membership.details

    @property
    def _seat(self) -> Session:
        return self._membership.seat

    def _needs(self) -> tuple[ClientSettings, Collection[str]]:
        return self._membership.needs

    async def _join(self) -> None:
        """Join the group, if something is subscribed, and begin to pull."""
        member = self._membership
        session = member.join("LitePullConsumer")
        try:
            assignment = self._assignment = self._make_assignment(session)
            rebalance = member.rebalance = assignment.rebalance
            if self._trace is not None:
                await self._trace.start()
            for subscription in tuple(self._subscriptions.values()):
                with contextlib.suppress(TopicNotFound):
                    await brokers.check_subscription(session, self.group, subscription)
            await session.add_consumer(self.group, member)
            if self._mode == "assign":
                rebalance.assigned = self._assigned
            await rebalance.rebalance()
        except BaseException:
            await self._leave()
            raise
        await member.run(
            session,
            rebalance.run(member.options.rebalance_interval),
            rebalance.find_topics(member.topics),
            self._store_offsets(assignment),
            self._watch.run(session.directory),
        )

    def _make_assignment(self, session: Session) -> Assignment:
        message_filter: MessageFilter | None = None
        if self._hooks.filter_messages:
            message_filter = partial(filter_messages, self._hooks, self.group)
        if self._hooks.of_consumption:
            hooks = ConsumeHooks(
                self._hooks,
                self.group,
                session.client_id,
                orderly=False,
                broadcast=self.broadcast,
                timeout=float("inf"),
            )
            self._cache.hooks = PollHooks(hooks)
        return Assignment(
            session,
            self.group,
            ChainMap(self._subscriptions, self._filters),
            self._membership.options,
            self._options,
            self._cache,
            QueueListeners(session, self._listeners),
            message_filter,
        )

    async def stop(self) -> None:
        """Stop pulling, store what counts as consumed, leave the group; returns when the brokers have confirmed.

        What was polled last is retried elsewhere unless it was committed. Further calls wait for the same end.
        """
        if self._membership.session is not None and not self._membership.stopping:
            self._membership.session.check_here()
            self._membership.stopping = True
            self._cache.end()
            self._membership.stop_reading()
        if self._membership.stopping:
            await self._leave()

    async def _leave(self) -> None:
        await asyncio.shield(self._membership.leave(last=self._close))

    async def _close(self) -> None:
        assignment, self._assignment = self._assignment, None
        if self._trace is not None:
            await self._trace.stop()
        if assignment is not None:
            await assignment.close()

    @property
    def auto_commit(self) -> bool:
        """Whether polling more commits what was polled before."""
        return self._options.auto_commit

    @property
    def is_running(self) -> bool:
        """Whether it is started and not stopped."""
        return self._assignment is not None and not self._membership.stopping

    async def _store_offsets(self, assignment: Assignment) -> None:
        while True:
            await asyncio.sleep(self._commit_interval if self.auto_commit else PERSIST_INTERVAL)
            assignment.rebalance.store_positions()

    async def update_nameserver_address(self, nameserver: str | Sequence[str]) -> None:
        """Use other nameservers from now on; so do all clients with equal settings. Raises BadConfig."""
        self._running()
        await self.session.nameservers.replace(find_nameservers(nameserver))

    def _running(self, *, or_leaving: bool = False) -> Assignment:
        assignment = self._running_in_any_thread(or_leaving=or_leaving)
        self.session.check_here()
        return assignment

    def _running_in_any_thread(self, *, or_leaving: bool = False) -> Assignment:
        """For calls that a listener may make in its thread; ``or_leaving`` for those that on_revoked may make."""
        session = self._membership.session
        if session is None or self._assignment is None or (self._membership.stopping and not or_leaving):
            raise not_running("consumer", stopped=self._membership.stopping)
        session.check_fork()
        return self._assignment

    # ------------------------------------------------------------------ messages

    async def poll(self, timeout: float | None = None, *, max_messages: int | None = None) -> list[ReceivedMessage]:
        """The messages of one pull of one queue; empty if none arrived in ``timeout`` seconds (default poll_timeout).

        With ``max_messages``, up to that number of those that have arrived, of all queues, each queue in its order; it
        waits for the first only. With auto-commit a poll commits what was polled before. Raises UsageError, also where
        nothing is subscribed or assigned.
        """
        self._check_source()
        timeout = check_wait("timeout", self._poll_timeout if timeout is None else timeout)
        if max_messages is not None:
            check_number("max_messages", max_messages, 1)
        self._cache.settle()
        return await self._cache.batch(timeout, max_messages)

    def _check_source(self) -> None:
        """Raise StateError unless it runs, UsageError where no message can ever come."""
        self._running()
        if self._mode is None:
            raise UsageError(
                "Nothing is subscribed, so no message will ever come: call subscribe(topic) or assign(queues) first."
            )

    def batches(self) -> AsyncIterator[list[ReceivedMessage]]:
        """The messages for ``async for``, in batches as of ``poll``; ends when the consumer stops."""
        self._check_source()
        return Iteration(self._cache, partial(self._cache.batch, None))

    def messages(self) -> AsyncIterator[ReceivedMessage]:
        """The messages for ``async for``, one by one; with auto-commit taking the next one commits the last."""
        self._check_source()
        return Iteration(self._cache, self._cache.one)

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self.messages()

    def pause(self, queues: Collection[MessageQueue]) -> None:
        """Stop pulling these queues; what was pulled can still be polled."""
        self._running_in_any_thread().pause(check_queues(queues))

    def resume(self, queues: Collection[MessageQueue]) -> None:
        """Pull these queues again."""
        self._running_in_any_thread().resume(check_queues(queues))

    # ------------------------------------------------------------------ seeking

    @bounded
    async def seek(self, queue: MessageQueue, offset: int, *, timeout: float | None = None) -> None:
        """Continue at this offset: what was pulled of the queue and not polled is forgotten.

        Raises UsageError for an offset outside the queue, StateError for a queue that this consumer does not have.
        """
        assignment = self._running()
        self._check_mine(queue)
        offset = check_offset(offset)
        least, most = await asyncio.gather(self.min_offset(queue), self.max_offset(queue))
        if not least <= offset <= most:
            raise UsageError(f"Seek offset illegal, seek offset = {offset}, min offset = {least}, max offset = {most}")
        if not await assignment.seek(queue, offset):
            self._check_mine(queue)

    @bounded
    async def seek_to_begin(self, queue: MessageQueue, *, timeout: float | None = None) -> None:
        """Continue at the oldest message that exists."""
        self._running()
        await self.seek(queue, await self.min_offset(queue))

    @bounded
    async def seek_to_end(self, queue: MessageQueue, *, timeout: float | None = None) -> None:
        """Continue with the next message that is sent."""
        self._running()
        await self.seek(queue, await self.max_offset(queue))

    # ------------------------------------------------------------------ committing

    @bounded
    async def commit_sync(
        self, offsets: Mapping[MessageQueue, int] | None = None, *, persist: bool = True, timeout: float | None = None
    ) -> None:
        """Commit everything that was polled, or of each given queue everything before its offset.

        Returns when the broker has confirmed. With ``persist=False`` the offsets are stored a little later. Raises
        StateError for a queue that this consumer does not have.
        """
        self._running(or_leaving=True)
        given = {} if offsets is None else check_offsets(offsets)
        self._check_mine(*given)
        await self._commit(self.assignment() if offsets is None else given, given, persist)

    @bounded
    async def commit(
        self, queues: Collection[MessageQueue], *, persist: bool = True, timeout: float | None = None
    ) -> None:
        """As ``commit_sync``, for these queues only."""
        self._running(or_leaving=True)
        chosen = check_queues(queues)
        self._check_mine(*chosen)
        await self._commit(chosen, {}, persist)

    async def _commit(
        self, queues: Collection[MessageQueue], offsets: Mapping[MessageQueue, int], persist: bool
    ) -> None:
        if self._cache.hooks is not None:
            self._cache.hooks.end()
        await self._running(or_leaving=True).commit(queues, offsets, persist=persist)

    @bounded
    async def committed(self, queue: MessageQueue, *, timeout: float | None = None) -> int | None:
        """The offset of the group in a queue; None if it has none."""
        assignment = self._running()
        check_queue(queue)
        return await assignment.committed(queue)

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """The offset to store of each queue of a topic that this member has."""
        return self._membership.positions(topic)

    def _check_mine(self, *queues: MessageQueue) -> None:
        for queue in queues:
            check_queue(queue)
            if queue not in self.assignment():
                rebalancing = "may be rebalancing, " if self._mode == "subscribe" else ""
                raise StateError(f"The message queue is not in assigned list, {rebalancing}message queue: {queue}")

    def _figures(self) -> dict[str, str]:
        pull, thresholds = self._options.pull, self._thresholds
        return {
            **pull_figures(self.group, self._membership.options),
            "autoCommit": str(self.auto_commit).lower(),
            "autoCommitIntervalMillis": str(round(self._commit_interval * 1000)),
            "brokerSuspendMaxTimeMillis": str(round(pull.hold * 1000)),
            "consumerTimeoutMillisWhenSuspend": str(round(pull.timeout * 1000)),
            "consumeMaxSpan": str(thresholds.consume_max_span),
            "pollTimeoutMillis": str(round(self._poll_timeout * 1000)),
            "pullBatchSize": str(pull.batch_size),
            "pullThresholdForAll": str(self._options.threshold),
            "pullThresholdForQueue": str(thresholds.pull_threshold_for_queue),
            "pullThresholdSizeForQueue": str(thresholds.pull_threshold_size_for_queue),
        }


def membership_of(consumer: LitePullConsumer) -> GroupMember[QueuePuller[PolledQueue]]:
    """The membership of a consumer, which answers the brokers: for other modules of the client, not for users."""
    return consumer._membership


def assignment_of(consumer: LitePullConsumer) -> Assignment | None:
    """The queues of a consumer and what waits in them, while it runs: for other modules of the client only."""
    return consumer._assignment
