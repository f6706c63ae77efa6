"""Consuming by polling: the library pulls ahead, the caller asks for what has come.

Owns a consumer's settings and its life. Which queues it wants (subscribed in a group, or assigned by hand) is the
matter of ``lite_queues``, which it has that of ``assigned``, what waits to be polled that of ``polled``.
Facts: DefaultLitePullConsumer in 4.9.7; beyond it a reset by mqadmin is felt, and commits are confirmed by the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import ChainMap
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Literal

from eruca.client.assign import Strategy, averagely, everything
from eruca.client.bounds import bounded
from eruca.client.checks import (
    check_least,
    check_offset,
    check_offsets,
    check_queue,
    check_queues,
    check_seconds,
    check_sharing,
    check_wait,
)
from eruca.client.config import (
    ClientSettings,
    check_group,
    check_positive,
    check_start,
    check_suspend,
    find_nameservers,
)
from eruca.client.consuming.offset_store import LocalFileOffsetStore, OffsetStore, RemoteBrokerOffsetStore
from eruca.client.consuming.process_queue import Limits
from eruca.client.consuming.queue_puller import PullOptions
from eruca.client.consuming.rebalance import Reading
from eruca.client.errors import StateError, TopicNotFound, UsageError
from eruca.client.hooks import ConsumeHooks, Hook, Hooks, filter_messages
from eruca.client.message import ReceivedMessage
from eruca.client.network import brokers
from eruca.client.network.session import Session
from eruca.client.polling.assigned import Assigned
from eruca.client.polling.lite_queues import LiteQueues
from eruca.client.polling.polled import Cache, Iteration, Watched
from eruca.client.trace import MessageTrace
from eruca.protocol.queues import MessageQueue

LEAST_COMMIT_INTERVAL = 1.0
PERSIST_INTERVAL = 5.0
"""Seconds between two storings of what was committed without being stored at once (persistConsumerOffsetInterval)."""


class LitePullConsumer(LiteQueues):
    """A member of a group that polls, or a reader of queues that the caller assigns.

    Use it with ``async with``, or call ``start`` and ``stop``; times are in seconds. All methods raise ClientError.

    Args:
        group: the consumer group.
        nameserver: ``host:port`` addresses; default from the environment (see ClientSettings).
        start_from: where queues without a stored offset begin; as of PushConsumer (consumeFromWhere and
            consumeTimestamp).
        strategy: how queues are shared out; all members must use the same (see ``assign``).
        auto_commit: asking for more (poll, iteration) says that what was handed out before is consumed. False leaves
            that to ``commit_sync`` and ``commit``.
        auto_commit_interval: between two storings of what is consumed; at least 1.
        poll_timeout: for which ``poll`` waits unless it is told otherwise.
        pull_batch_size: messages to ask for in one pull, and so the most that one poll gives.
        pull_threshold_for_all: how much may wait here, counted in pulls times pull_batch_size.
        pull_threshold_for_queue: messages of one queue that may wait here.
        pull_threshold_size_for_queue: MiB of one queue that may wait here.
        consume_max_span: offsets from the first to the last of one queue that may wait here.
        broker_suspend_max_time: for which a broker may hold a pull when there is nothing.
        consumer_timeout_when_suspend: until such a pull counts as failed; more than broker_suspend_max_time.
        pull_time_delay_when_exception: until the next pull after a failed one.
        topic_metadata_check_interval: between two looks for changed queues of a topic with a listener.
        broadcast: every member gets all messages; its offsets are in a local file, as of PushConsumer.
        offset_folder: where that file is kept; default ``~/.rocketmq_offsets``.
        hooks: what sees what is handed out, until more is asked for or it is committed (see Hook).
        trace: write message traces, to RMQ_SYS_TRACE_TOPIC or to the topic that is named.
        rebalance_interval: between two looks at who is in the group (brokers tell of changes at once).
        settings: what all clients share.

    Raises BadName, BadConfig, UsageError and NoNameserver.
    """

    def __init__(
        self,
        group: str,
        *,
        nameserver: str | Sequence[str] | None = None,
        start_from: Literal["first", "last", "end"] | int | datetime = "last",
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
        offset_folder: str | Path | None = None,
        rebalance_interval: float = 20.0,
        hooks: Sequence[Hook] = (),
        trace: bool | str = False,
        settings: ClientSettings | None = None,
    ) -> None:
        check_group(group, "consumer")
        check_seconds(LEAST_COMMIT_INTERVAL, auto_commit_interval=auto_commit_interval)
        check_least(
            1,
            pull_batch_size=pull_batch_size,
            pull_threshold_for_all=pull_threshold_for_all,
            pull_threshold_for_queue=pull_threshold_for_queue,
            pull_threshold_size_for_queue=pull_threshold_size_for_queue,
            consume_max_span=consume_max_span,
        )
        check_positive(
            pull_time_delay_when_exception=pull_time_delay_when_exception,
            topic_metadata_check_interval=topic_metadata_check_interval,
            rebalance_interval=rebalance_interval,
        )
        check_suspend(broker_suspend_max_time, consumer_timeout_when_suspend)
        check_sharing(strategy, offset_folder, broadcast=broadcast)
        reading = Reading(
            start_from=check_start(start_from),
            strategy=everything if broadcast else strategy,
            limits=Limits(
                count=pull_threshold_for_queue, size=pull_threshold_size_for_queue << 20, span=consume_max_span
            ),
            pull_batch=pull_batch_size,
            broadcast=broadcast,
            store_start=auto_commit,
        )
        chosen = ClientSettings.choose(settings, nameserver)
        super().__init__(group, reading, rebalance_interval, topic_metadata_check_interval, chosen)
        self._auto_commit = auto_commit
        self._commit_interval = auto_commit_interval
        self._poll_timeout = check_wait("poll_timeout", poll_timeout)
        self._threshold = pull_threshold_for_all
        self._manner = PullOptions(
            hold=broker_suspend_max_time,
            timeout=consumer_timeout_when_suspend,
            after_error=pull_time_delay_when_exception,
            lite=True,
        )
        self._offset_folder = offset_folder
        self._cache = Cache(reading.limits)
        self._trace = MessageTrace(group, "CONSUME", trace, chosen) if trace else None
        self._hooks = Hooks.given(hooks, self._trace)

    def add_hook(self, hook: Hook) -> None:
        """One more that sees what is handed out, after those that are there; before start. Raises StateError."""
        if self._session is not None:
            raise StateError("A consumer takes hooks only before start().")
        self._hooks = Hooks((*self._hooks.all, hook))

    # ------------------------------------------------------------------ starting and stopping

    async def start(self) -> None:
        """Join the group, if something is subscribed, and begin to pull.

        A topic that is not there yet is waited for. Raises StateError when started twice; UsageError for a condition
        that a broker refuses, and NameserverUnreachable, after which it may be started again.
        """
        session = self._join()
        self._look_on(session)
        positions: OffsetStore = RemoteBrokerOffsetStore(session, self.group)
        if self.broadcast:
            positions = LocalFileOffsetStore(self._offset_folder, session, self.group)
        owned = self._ownership = Assigned(
            session,
            self.group,
            ChainMap(self.subscriptions, self._filters),
            self._reading,
            positions,
            self._cache,
            auto=self._auto_commit,
            threshold=self._threshold,
            manner=self._manner,
            listeners=self._listeners,
        )
        try:
            if self._trace is not None:
                await self._trace.start()
            for subscription in tuple(self.subscriptions.values()):
                with contextlib.suppress(TopicNotFound):
                    await brokers.check_subscription(session, self.group, subscription)
            await session.add_consumer(self.group, self)
            if self._mode == "assign":
                owned.named = self._assignment
            await owned.rebalance()
        except BaseException:
            await self._leave()
            raise
        await self._repeat(session, self._keep_stored(), self._watch.keep(session.directory))

    async def stop(self) -> None:
        """Pull no more, store what counts as consumed, leave the group; returns when the brokers have confirmed.

        What was handed out last comes again elsewhere unless it was committed. Calling it twice does no harm.
        """
        if self._session is not None and not self._ended:
            self._ended = True
            self._cache.halt()
            self._end_tasks()
        if self._ended:
            await self._leave()

    async def _end(self) -> None:
        await super()._end()
        if self._trace is not None:
            await self._trace.stop()

    def _look_on(self, session: Session) -> None:
        """Let the hooks see what they want to."""
        if self._hooks.filter_messages:
            self._reading = replace(self._reading, sift=partial(filter_messages, self._hooks, self.group))
        if self._hooks.of_consumption:
            self._cache.watched = Watched(
                ConsumeHooks(
                    self._hooks,
                    self.group,
                    session.client_id,
                    orderly=False,
                    broadcast=self.broadcast,
                    timeout=float("inf"),
                )
            )

    @property
    def auto_commit(self) -> bool:
        """Whether asking for more says that what came before is consumed."""
        return self._auto_commit

    @property
    def is_running(self) -> bool:
        """Whether it is started and not stopped."""
        return self._ownership is not None and not self._ended

    async def _keep_stored(self) -> None:
        while self._ownership is not None:
            await asyncio.sleep(self._commit_interval if self._auto_commit else PERSIST_INTERVAL)
            self._ownership.store_positions()

    async def update_nameserver_address(self, nameserver: str | Sequence[str]) -> None:
        """Ask other nameservers from now on, as all clients with equal settings then do. Raises BadConfig."""
        self._running()
        await self.session.nameservers.replace(find_nameservers(nameserver))

    def _running(self) -> Assigned:
        owned = self._in_any_thread()
        self.session.check_here()
        return owned

    def _in_any_thread(self) -> Assigned:
        """For calls that a listener may make in its thread."""
        if self._session is None or self._ownership is None or self._ended:
            raise StateError("The consumer not running, please start it first.")
        self._session.check_fork()
        return self._ownership

    # ------------------------------------------------------------------ messages

    async def poll(self, timeout: float | None = None) -> list[ReceivedMessage]:
        """The messages of one pull of one queue; empty when none came in ``timeout`` seconds (default poll_timeout).

        With auto-commit this says that all that was handed out before is consumed.
        """
        self._running()
        timeout = check_wait("timeout", self._poll_timeout if timeout is None else timeout)
        self._cache.settle()
        return await self._cache.batch(timeout)

    def batches(self) -> AsyncIterator[list[ReceivedMessage]]:
        """The messages for ``async for``, as ``poll`` gives them, without end; it ends when the consumer stops."""
        self._running()
        return Iteration(self._cache, partial(self._cache.batch, None))

    def messages(self) -> AsyncIterator[ReceivedMessage]:
        """The messages for ``async for``, one by one; with auto-commit each counts when the next is asked for."""
        self._running()
        return Iteration(self._cache, self._cache.one)

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self.messages()

    def pause(self, queues: Collection[MessageQueue]) -> None:
        """Pull no more from these queues; what was pulled before still comes."""
        self._in_any_thread().pause(check_queues(queues))

    def resume(self, queues: Collection[MessageQueue]) -> None:
        """Pull from these queues again."""
        self._in_any_thread().resume(check_queues(queues))

    # ------------------------------------------------------------------ where to go on

    @bounded
    async def seek(self, queue: MessageQueue, offset: int, *, timeout: float | None = None) -> None:
        """Go on from this offset: what was pulled of the queue and not handed out is forgotten.

        Raises UsageError for an offset outside the queue, StateError for a queue that this consumer does not have.
        """
        owned = self._running()
        self._check_mine(queue)
        offset = check_offset(offset)
        least, most = await asyncio.gather(self.min_offset(queue), self.max_offset(queue))
        if not least <= offset <= most:
            raise UsageError(f"Seek offset illegal, seek offset = {offset}, min offset = {least}, max offset = {most}")
        if not await owned.seek(queue, offset):
            self._check_mine(queue)

    @bounded
    async def seek_to_begin(self, queue: MessageQueue, *, timeout: float | None = None) -> None:
        """Go on from the oldest message that is there."""
        self._running()
        await self.seek(queue, await self.min_offset(queue))

    @bounded
    async def seek_to_end(self, queue: MessageQueue, *, timeout: float | None = None) -> None:
        """Go on with the next message that is sent."""
        self._running()
        await self.seek(queue, await self.max_offset(queue))

    @bounded
    async def offset_for_timestamp(
        self, queue: MessageQueue, timestamp: int | datetime, *, timeout: float | None = None
    ) -> int:
        """The offset at a time (a datetime, or ms since 1970), for ``seek``."""
        self._running()
        return await self.offset_by_time(queue, timestamp)

    # ------------------------------------------------------------------ committing

    @bounded
    async def commit_sync(
        self, offsets: Mapping[MessageQueue, int] | None = None, *, persist: bool = True, timeout: float | None = None
    ) -> None:
        """Everything that was handed out is consumed, or of each given queue all before its offset.

        Returns when the broker has confirmed. With ``persist=False`` it is stored a little later, by itself. Raises
        StateError for a queue that this consumer does not have.
        """
        self._running()
        given = {} if offsets is None else check_offsets(offsets)
        self._check_mine(*given)
        await self._commit(self.assignment() if offsets is None else given, given, persist)

    @bounded
    async def commit(
        self, queues: Collection[MessageQueue], *, persist: bool = True, timeout: float | None = None
    ) -> None:
        """As ``commit_sync``, of these queues only."""
        self._running()
        chosen = check_queues(queues)
        self._check_mine(*chosen)
        await self._commit(chosen, {}, persist)

    async def _commit(
        self, queues: Collection[MessageQueue], offsets: Mapping[MessageQueue, int], persist: bool
    ) -> None:
        if self._cache.watched is not None:
            self._cache.watched.end()
        await self._running().commit(queues, offsets, persist=persist)

    @bounded
    async def committed(self, queue: MessageQueue, *, timeout: float | None = None) -> int | None:
        """Where the group goes on in a queue; None where it has no offset."""
        owned = self._running()
        check_queue(queue)
        run = owned.runs().get(queue)
        return await owned.stored(queue) if run is None or run.to_store is None else run.to_store

    def _figures(self) -> dict[str, str]:
        limits, manner = self._reading.limits, self._manner
        return {
            "autoCommit": str(self._auto_commit).lower(),
            "autoCommitIntervalMillis": str(round(self._commit_interval * 1000)),
            "brokerSuspendMaxTimeMillis": str(round(manner.hold * 1000)),
            "consumerTimeoutMillisWhenSuspend": str(round(manner.timeout * 1000)),
            "consumeMaxSpan": str(limits.span),
            "pollTimeoutMillis": str(round(self._poll_timeout * 1000)),
            "pullBatchSize": str(self._reading.pull_batch),
            "pullThresholdForAll": str(self._threshold),
            "pullThresholdForQueue": str(limits.count),
            "pullThresholdSizeForQueue": str(limits.size >> 20),
        }
