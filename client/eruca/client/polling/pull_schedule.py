"""Pulling on schedule: a callback a queue, called again and again for the queues that this member has.

Owns when a callback runs: for one queue never twice at once, and ``pull_thread_nums`` at once in all. What it pulls and
which offset it stores is its own matter. Facts: MQPullConsumerScheduleService in 4.9.7; beyond it a reset by mqadmin is
felt: the callback at work ends, the new offset is stored, then the next one begins.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from eruca.client import calling
from eruca.client.assign import Strategy, averagely, everything
from eruca.client.config import ClientSettings, check_group, check_positive, check_topic
from eruca.client.consuming.inflight import InFlight, Limits
from eruca.client.consuming.ownership import Ownership, Reading
from eruca.client.consuming.positions import BrokerPositions
from eruca.client.errors import UsageError
from eruca.client.hooks import Hook
from eruca.client.log import log
from eruca.client.message import ReceivedMessage
from eruca.client.network.session import Session, now_ms
from eruca.client.polling.active_member import ActiveMember
from eruca.client.polling.polled import PolledRun
from eruca.client.polling.pull_consumer import PullConsumer
from eruca.protocol.bodies import SubscriptionData
from eruca.protocol.queues import MessageQueue
from eruca.protocol.subscription import ALL, build_subscription

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
        call: Callable[[MessageQueue], Awaitable[float]],
        previous: PullTask | None,
        restore: Callable[[], Awaitable[object]],
    ) -> None:
        self.run: InFlight = PolledRun(queue, 0, auto=False)
        self.last_pull = 0
        self.told = -1
        self._call = call
        self._stopped = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._work(previous, restore))

    def stop(self) -> None:
        """Begin no further call; one at work is not disturbed."""
        self._stopped.set()

    async def _work(self, previous: PullTask | None, restore: Callable[[], Awaitable[object]]) -> None:
        if previous is not None and not previous.task.done():
            await asyncio.wait([previous.task])
            if not self._stopped.is_set():
                await restore()
        while not self._stopped.is_set():
            self.last_pull = now_ms()
            delay = await self._call(self.run.queue)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), delay)


class _Scheduled(Ownership):
    """The queues of a service: each gets a task in place of a reader."""

    def __init__(
        self,
        session: Session,
        group: str,
        subscriptions: dict[str, SubscriptionData],
        reading: Reading,
        call: Callable[[MessageQueue], Awaitable[float]],
    ) -> None:
        super().__init__(session, group, subscriptions, reading, BrokerPositions(session, group), _nothing)
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


def _nothing(run: InFlight, messages: list[ReceivedMessage]) -> None:
    """Nobody reads here but the callbacks."""


class PullScheduleService(ActiveMember):
    """Shares queues out in a group, and lets a callback pull each of them.

    Use it with ``async with``, or call ``start`` and ``stop``.

    Args:
        group: the consumer group.
        nameserver: ``host:port`` addresses; default from the environment (see ClientSettings).
        strategy: how queues are shared out; all members must use the same (see ``assign``).
        broadcast: every member gets all queues.
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
        pull_thread_nums: int = 20,
        rebalance_interval: float = 20.0,
        stop_timeout: float = 30.0,
        hooks: Sequence[Hook] = (),
        trace: bool | str = False,
        settings: ClientSettings | None = None,
    ) -> None:
        check_group(group, "consumer")
        check_positive(pull_thread_nums=pull_thread_nums, rebalance_interval=rebalance_interval)
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
        self.pull_consumer = PullConsumer(group, hooks=hooks, trace=trace, settings=chosen)
        """What callbacks pull with."""
        self._callbacks: dict[str, PullTaskCallback] = {}
        self._free = asyncio.Semaphore(pull_thread_nums)
        self._stop_timeout = stop_timeout
        self._scheduled: _Scheduled | None = None

    def register_pull_task_callback(self, topic: str, callback: PullTaskCallback) -> Self:
        """Call ``callback(queue, context)`` again and again for each queue of a topic that this member has.

        When it raises, the log tells, and it is called again after a second. May be called before and after start;
        returns the service. Raises BadName and UsageError.
        """
        check_topic(topic)
        calling.check_callable(callback, "The callback")
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
        owned = _Scheduled(session, self.group, self.subscriptions, self._reading, self._call)
        self._owned = self._scheduled = owned
        try:
            await self.pull_consumer.start()
            await session.add_consumer(self.group, self)
            await owned.rebalance()
        except BaseException:
            await self.pull_consumer.stop()
            await self._leave()
            raise
        self._repeat()

    async def stop(self) -> None:
        """Begin no further call, wait for those at work, leave the group. Calling it twice does no harm."""
        if self._session is None or self._ended or self._scheduled is None:
            return
        self._ended = True
        self._end_tasks()
        working = [each.task for each in self._scheduled.last.values() if not each.task.done()]
        if working:
            _, pending = await asyncio.wait(working, timeout=self._stop_timeout)
            for task in pending:
                log.warning("a callback of %s still runs and is left", self.group)
                task.cancel()
        await self._leave()
        await self.pull_consumer.stop()

    async def _call(self, queue: MessageQueue) -> float:
        """Call the callback of a queue once; the seconds until the next time."""
        callback = self._callbacks[queue.topic]
        context = PullTaskContext(self.pull_consumer)
        async with self._free:
            try:
                await calling.call(callback, queue, context)
            except Exception:
                log.exception("the callback for %s failed, calling it again in %s s", queue, AFTER_ERROR)
                return AFTER_ERROR
        return context.pull_next_delay_time
