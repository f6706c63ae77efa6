"""Pulling on schedule: a callback a queue, called again and again for the queues that this member has.

Owns when a callback runs: for one queue never twice at once, ``pull_thread_nums`` at once in all, and none is begun for
a queue that was given up, or by a service that stops, also where it waited for its turn. What it pulls and which offset
it stores is its own matter. Facts: MQPullConsumerScheduleService in 4.9.7; beyond it a reset by mqadmin is felt: the
callback at work ends, the new offset is stored, then the next one begins.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Self, TypeVar

from eruca.client import callbacks
from eruca.client.assign import Strategy, averagely, everything
from eruca.client.checks import check_kind, check_least, check_seconds, check_sharing
from eruca.client.config import ClientSettings, check_group, check_positive, check_topic
from eruca.client.consuming.offset_store import OffsetStore
from eruca.client.consuming.process_queue import Limits, ProcessQueue
from eruca.client.consuming.rebalance import Reading, Rebalance
from eruca.client.errors import ClientError, UsageError
from eruca.client.hooks import Hook
from eruca.client.log import Warnings, log
from eruca.client.message import ReceivedMessage
from eruca.client.network.session import Session
from eruca.client.polling.active_member import ActiveMember
from eruca.client.polling.polled import PolledQueue
from eruca.client.polling.pull_consumer import PullConsumer
from eruca.protocol.bodies import SubscriptionData
from eruca.protocol.queues import MessageQueue
from eruca.protocol.subscription import ALL, build_subscription
from eruca.remoting.clock import now_ms

NEXT_PULL = 0.2
"""Seconds between two calls for one queue (PullTaskContext)."""
AFTER_ERROR = 1.0


C = TypeVar("C")


@dataclass(slots=True)
class PullTaskContext(Generic[C]):
    """What a callback gets beside its queue, and where it says when it is to be called again.

    ``pull_consumer`` pulls and stores offsets; ``pull_next_delay_time`` is in seconds.
    """

    pull_consumer: C
    pull_next_delay_time: float = NEXT_PULL


PullTaskCallback = Callable[[MessageQueue, PullTaskContext[PullConsumer]], Awaitable[None] | None]
"""Pulls one queue once: a coroutine function, or another function, which runs in a thread."""


class PullTask:
    """The calls for one queue; begins when ``previous``, the task that had the queue before, has ended.

    ``restore`` stores the offset that a reset wants once more, should the previous one have been at work.
    """

    def __init__(
        self,
        queue: MessageQueue,
        call: Callable[[PullTask], Awaitable[float]],
        previous: PullTask | None,
        restore: Callable[[], Awaitable[object]],
    ) -> None:
        self.run: ProcessQueue = PolledQueue(queue, 0, auto=False)
        self.last_pull = 0
        self.told = -1
        self._call = call
        self._stopped = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._work(previous, restore))

    def stop(self) -> None:
        """Begin no further call; one at work is not disturbed."""
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        """Whether no further call is to begin."""
        return self._stopped.is_set()

    async def _work(self, previous: PullTask | None, restore: Callable[[], Awaitable[object]]) -> None:
        _at_work.set(True)
        if previous is not None and not previous.task.done():
            await asyncio.wait([previous.task])
            if not self.stopped:
                await restore()
        while not self.stopped:
            self.last_pull = now_ms()
            delay = await self._call(self)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._stopped.wait()


_at_work: ContextVar[bool] = ContextVar("at_work", default=False)
"""Whether it is a callback that calls."""


class _Scheduled(Rebalance):
    """The queues of a service: each gets a task in place of a reader."""

    def __init__(
        self,
        session: Session,
        group: str,
        subscriptions: dict[str, SubscriptionData],
        reading: Reading,
        positions: OffsetStore,
        call: Callable[[PullTask], Awaitable[float]],
    ) -> None:
        super().__init__(session, group, subscriptions, reading, positions, _nothing)
        self.last: dict[MessageQueue, PullTask] = {}
        """The task that was begun last for each queue."""
        self._call = call

    async def _take(self, queue: MessageQueue) -> bool:
        self._schedule(queue, None)
        return True

    def _begin(self, queue: MessageQueue, offset: int) -> None:
        self._schedule(queue, offset)

    def _schedule(self, queue: MessageQueue, offset: int | None) -> None:
        async def restore() -> None:
            if offset is not None:
                await self._store(queue, offset)

        if not self._stopped:
            self.readers[queue] = self.last[queue] = PullTask(queue, self._call, self.last.get(queue), restore)


def _nothing(run: ProcessQueue, messages: list[ReceivedMessage]) -> None:
    """Nobody reads here but the callbacks."""


class PullScheduleService(ActiveMember):
    """Shares queues out in a group, and lets a callback pull each of them.

    Use it with ``async with``, or call ``start`` and ``stop``.

    Args:
        group: the consumer group.
        nameserver: ``host:port`` addresses; default from the environment (see ClientSettings).
        strategy: how queues are shared out; all members must use the same (see ``assign``).
        broadcast: every member gets all queues, and keeps its own offsets in a local file, as of PushConsumer.
        offset_folder: where that file is kept; default ``~/.rocketmq_offsets``.
        pull_thread_nums: callbacks at work at once.
        rebalance_interval: seconds between two looks at who is in the group (brokers tell of changes at once).
        stop_timeout: seconds for which ``stop`` waits for callbacks at work.
        hooks: as of PullConsumer.
        trace: as of PullConsumer.
        settings: what all clients share.

    Raises BadName, BadConfig and NoNameserver.
    """

    def __init__(
        self,
        group: str,
        *,
        nameserver: str | Sequence[str] | None = None,
        strategy: Strategy = averagely,
        broadcast: bool = False,
        offset_folder: str | Path | None = None,
        pull_thread_nums: int = 20,
        rebalance_interval: float = 20.0,
        stop_timeout: float = 30.0,
        hooks: Sequence[Hook] = (),
        trace: bool | str = False,
        settings: ClientSettings | None = None,
    ) -> None:
        check_group(group, "consumer")
        check_least(1, pull_thread_nums=pull_thread_nums)
        check_positive(rebalance_interval=rebalance_interval)
        check_seconds(0, stop_timeout=stop_timeout)
        check_sharing(strategy, offset_folder, broadcast=broadcast)
        reading = Reading(
            start_from="last",
            strategy=everything if broadcast else strategy,
            limits=Limits(),
            pull_batch=1,
            broadcast=broadcast,
            store_start=False,
        )
        chosen = ClientSettings.choose(settings, nameserver)
        super().__init__(group, reading, rebalance_interval, chosen)
        self.pull_consumer = PullConsumer(
            group, broadcast=broadcast, offset_folder=offset_folder, hooks=hooks, trace=trace, settings=chosen
        )
        """What callbacks pull with."""
        self.pull_consumer.shared_out_by = self
        self._callbacks: dict[str, PullTaskCallback] = {}
        self._free = asyncio.Semaphore(pull_thread_nums)
        self._stop_timeout = stop_timeout
        self._scheduled: _Scheduled | None = None
        self._warnings = Warnings()

    def register_pull_task_callback(self, topic: str, callback: PullTaskCallback) -> Self:
        """Call ``callback(queue, context)`` again and again for each queue of a topic that this member has.

        When it raises, the log tells, and it is called again after a second. May be called before and after start;
        returns the service. Raises BadName and UsageError.
        """
        self._check_here()
        check_topic(topic)
        callbacks.check_callable(callback, "The callback")
        self._callbacks[topic] = callback
        self.subscriptions[topic] = build_subscription(topic, ALL, version=0)
        self._announce_soon()
        return self

    def add_hook(self, hook: Hook) -> None:
        """As of PullConsumer: one more that sees what callbacks pull from now on. Raises UsageError."""
        self.pull_consumer.add_hook(hook)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has now (fetchMessageQueuesInBalance)."""
        return sorted(self._scheduled.readers) if self._scheduled is not None else []

    async def start(self) -> None:
        """Join the group and begin to call. Raises StateError when started twice, and NameserverUnreachable."""
        if not self._callbacks:
            raise UsageError("Nothing is scheduled: call register_pull_task_callback(topic, callback) before start().")
        session = self._join()
        try:
            await self.pull_consumer.start()
            positions = self.pull_consumer._kept_offsets
            owned = _Scheduled(session, self.group, self.subscriptions, self._reading, positions, self._call)
            self._ownership = self._scheduled = owned
            await session.add_consumer(self.group, self)
            await owned.rebalance()
        except BaseException:
            await self._leave()
            raise
        await self._repeat(session)

    async def stop(self) -> None:
        """Begin no further call, wait for those at work, leave the group. Calling it twice does no harm.

        In a callback it returns at once, as the end waits for that one, too.
        """
        if self._session is not None and not self._ended:
            self._ended = True
            self._end_tasks()
        if self._ended:
            await self._leave(wait=not _at_work.get())

    async def _end(self) -> None:
        if self._scheduled is not None:
            self._scheduled.stop_reading()
            await self._wait_for([each.task for each in self._scheduled.last.values()])
        await super()._end()
        await self.pull_consumer.stop()

    async def _wait_for(self, working: list[asyncio.Task[None]]) -> None:
        """Wait for the callbacks at work."""
        if working:
            _, pending = await asyncio.wait(working, timeout=self._stop_timeout)
            for task in pending:
                log.warning("a callback of %s still runs and is left", self.group)
                task.cancel()

    async def _call(self, task: PullTask) -> float:
        """Call the callback of a queue once, if it is still to be called; the seconds until the next time."""
        queue = task.run.queue
        callback = self._callbacks[queue.topic]
        context = PullTaskContext(self.pull_consumer)
        async with self._free:
            if task.stopped:
                return 0.0
            try:
                await callbacks.call(callback, queue, context)
                delay = context.pull_next_delay_time
                check_kind("pull_next_delay_time", delay, int | float, "a number of seconds")
            except ClientError as error:  # such as a broker that is away: no fault of the callback
                text = f"the callback for {queue} failed, calling it again every {AFTER_ERROR} s: {error}"
                self._warnings.tell(queue, text)
                return AFTER_ERROR
            except Exception:
                log.exception("the callback for %s failed, calling it again in %s s", queue, AFTER_ERROR)
                return AFTER_ERROR
            self._warnings.forget(queue)
        return delay
