"""PullScheduleService: a callback pulls each queue that this member has, periodically.

Owns when a callback runs: never twice at once for one queue, ``pull_thread_nums`` at once in all, and not for a queue
that was given up or by a service that stops, even if the call waited for its turn. What it pulls and which offset it
stores is up to the callback. Facts: MQPullConsumerScheduleService in 4.9.7; beyond it a reset by mqadmin takes effect:
the running callback ends, the new offset is stored, then the next one begins.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from os import PathLike
from typing import Generic, Self, TypeVar

from eruca.client import callbacks
from eruca.client.admin_calls import Client
from eruca.client.assign import Strategy, averagely
from eruca.client.checks import check_kind, check_least, check_seconds
from eruca.client.config import ClientSettings, check_group, check_positive, check_topic
from eruca.client.consuming.member_options import MemberOptions
from eruca.client.consuming.membership import GroupMember
from eruca.client.consuming.process_queue import ProcessQueue
from eruca.client.consuming.rebalance import NO_OFFSET, Rebalance
from eruca.client.environment import known_options
from eruca.client.errors import ClientError, UsageError
from eruca.client.hooks import Hook
from eruca.client.log import Warnings, log
from eruca.client.network.events import DisconnectedListener, ErrorListener, EventListeners, ReconnectedListener
from eruca.client.network.session import Session
from eruca.client.polling.message_cache import PolledQueue
from eruca.client.polling.pull_consumer import PullConsumer
from eruca.client.polling.queue_share import pull_figures
from eruca.protocol.bodies import ConsumeType
from eruca.protocol.queues import MessageQueue
from eruca.protocol.subscription import ALL, build_subscription
from eruca.remoting.clock import now_ms

NEXT_PULL = 0.2
"""Seconds between two calls for one queue (PullTaskContext)."""


C = TypeVar("C")


@dataclass(slots=True)
class PullTaskContext(Generic[C]):
    """What a callback gets besides its queue; it sets here when it is called next.

    ``pull_consumer`` pulls and stores offsets; ``pull_next_delay_time`` is in seconds.
    """

    pull_consumer: C
    pull_next_delay_time: float = NEXT_PULL


PullTaskCallback = Callable[[MessageQueue, PullTaskContext[PullConsumer]], Awaitable[None] | None]
"""Pulls one queue once: a coroutine function, or another function, which runs in a thread."""


class PullTask:
    """The calls for one queue; begins when ``previous``, the task that had the queue before, has ended.

    ``restore`` stores the offset of a reset again if the previous task was running.
    """

    def __init__(
        self,
        queue: MessageQueue,
        call: Callable[[PullTask], Awaitable[float]],
        previous: PullTask | None,
        restore: Callable[[], Awaitable[object]],
    ) -> None:
        self.process_queue: ProcessQueue = PolledQueue(queue, 0, auto_commit=False)
        self.last_pull = 0
        self.reported = -1
        self._call = call
        self._stopped = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._work(previous, restore))

    def stop(self) -> None:
        """Begin no further call; a running one is not affected."""
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        """Whether no further call is to begin."""
        return self._stopped.is_set()

    async def _work(self, previous: PullTask | None, restore: Callable[[], Awaitable[object]]) -> None:
        _in_callback.set(True)
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


_in_callback: ContextVar[bool] = ContextVar("in_callback", default=False)
"""Whether a callback runs here."""


@known_options
class PullScheduleService(Client):
    """Takes a share of the queues in a group, and lets a callback pull each of them.

    Use it with ``async with``, or call ``start`` and ``stop``.

    Args:
        group: the consumer group.
        nameserver: ``host:port`` addresses; default from the environment (see ClientSettings).
        strategy: how queues are allocated; all members must use the same (see ``assign``).
        broadcast: every member gets all queues, and has its own offsets in a local file, as of PushConsumer.
        offset_folder: the folder of that file; default ``~/.rocketmq_offsets``.
        pull_thread_nums: callbacks that run at once.
        pull_time_delay_when_exception: until the next call for a queue after one that failed.
        rebalance_interval: seconds between two lookups of the members of the group (brokers also notify at once).
        stop_timeout: seconds for which ``stop`` waits for running callbacks.
        hooks: as of PullConsumer.
        trace: as of PullConsumer.
        on_disconnected: as of PushConsumer.
        on_reconnected: as of PushConsumer.
        on_error: as of PushConsumer.
        settings: what all clients share.

    Raises BadName and BadConfig; ``start`` also NoNameserver.
    """

    def __init__(
        self,
        group: str,
        *,
        nameserver: str | Sequence[str] | None = None,
        strategy: Strategy = averagely,
        broadcast: bool = False,
        offset_folder: str | PathLike[str] | None = None,
        pull_thread_nums: int = 20,
        pull_time_delay_when_exception: float = 1.0,
        rebalance_interval: float = 20.0,
        stop_timeout: float = 30.0,
        hooks: Sequence[Hook] = (),
        trace: bool | str = False,
        on_disconnected: DisconnectedListener | None = None,
        on_reconnected: ReconnectedListener | None = None,
        on_error: ErrorListener | None = None,
        settings: ClientSettings | None = None,
    ) -> None:
        check_group(group, "consumer")
        check_least(1, pull_thread_nums=pull_thread_nums)
        check_seconds(0, stop_timeout=stop_timeout)
        check_positive(pull_time_delay_when_exception=pull_time_delay_when_exception)
        settings = ClientSettings.choose(settings, nameserver)
        options = MemberOptions(
            strategy=strategy,
            broadcast=broadcast,
            offset_folder=offset_folder,
            rebalance_interval=rebalance_interval,
            events=EventListeners(
                group=group, on_disconnected=on_disconnected, on_reconnected=on_reconnected, on_error=on_error
            ),
        )
        self.group = group
        self.membership: GroupMember[PullTask] = GroupMember(
            group,
            settings,
            options,
            ConsumeType.CONSUME_ACTIVELY,
            figures=lambda: pull_figures(group, options),
        )
        """Its membership in the group, which answers the brokers."""
        self.membership.reads_queues = False
        self.pull_consumer = PullConsumer(
            group, broadcast=broadcast, offset_folder=offset_folder, hooks=hooks, trace=trace, settings=settings
        )
        """What callbacks pull with."""
        self.pull_consumer.shared_out_by = self
        self._callbacks: dict[str, PullTaskCallback] = {}
        self._free = asyncio.Semaphore(pull_thread_nums)
        self._stop_timeout = stop_timeout
        self._after_error = pull_time_delay_when_exception
        self._tasks: dict[MessageQueue, PullTask] = {}
        """The last task of each queue."""
        self._warnings = Warnings()

    def register_pull_task_callback(self, topic: str, callback: PullTaskCallback) -> Self:
        """Call ``callback(queue, context)`` periodically for each queue of a topic that this member has.

        If it raises, the error is logged and it is called again after ``pull_time_delay_when_exception``. May be called
        before and after start; returns the service. Raises BadName and UsageError.
        """
        self.membership.check_here()
        check_topic(topic)
        callbacks.check_callable(callback, "The callback", "queue", "context")
        callbacks.check_no_generator(callback, "The callback")
        self._callbacks[topic] = callback
        self.membership.subscriptions[topic] = build_subscription(topic, ALL, version=0)
        self.membership.announce()
        return self

    def add_hook(self, hook: Hook) -> None:
        """As of PullConsumer: one more that sees what callbacks pull from now on. Raises UsageError."""
        self.pull_consumer.add_hook(hook)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has now (fetchMessageQueuesInBalance)."""
        return self.membership.queues

    @property
    def _details(self) -> str:
        return self.membership.details

    @property
    def _seat(self) -> Session:
        return self.membership.seat

    def _needs(self) -> tuple[ClientSettings, Collection[str]]:
        return self.membership.needs

    async def _join(self) -> None:
        """Join the group and begin to call."""
        if not self._callbacks:
            raise UsageError("Nothing is scheduled: call register_pull_task_callback(topic, callback) before start().")
        member = self.membership
        session = member.join("PullScheduleService")
        try:
            await self.pull_consumer.start()
            rebalance = member.rebalance = self._make_rebalance(session)
            await session.add_consumer(self.group, member)
            await rebalance.rebalance()
        except BaseException:
            await self._leave()
            raise
        interval = member.options.rebalance_interval
        await member.run(session, rebalance.run(interval), rebalance.find_topics(member.topics))

    def _make_rebalance(self, session: Session) -> Rebalance[PullTask]:
        def schedule(queue: MessageQueue, offset: int) -> PullTask:
            async def restore() -> None:
                if offset != NO_OFFSET:
                    await rebalance.store(queue, offset)

            task = self._tasks[queue] = PullTask(queue, self._call, self._tasks.get(queue), restore)
            if rebalance.stopped:
                task.stop()
            return task

        member, store = self.membership, self.pull_consumer.offset_store
        rebalance: Rebalance[PullTask] = Rebalance(
            session, self.group, member.subscriptions, member.options, store, open=schedule, locate=False
        )
        return rebalance

    async def stop(self) -> None:
        """Begin no further call, wait for running ones, leave the group. Further calls wait for the same end.

        Called in a callback it returns at once, as that call is waited for.
        """
        if self.membership.session is not None:
            self.membership.session.check_here()
            self.membership.stopping = True
            self.membership.stop_reading()
        if self.membership.stopping:
            await self._leave()

    async def _leave(self) -> None:
        leaving = self.membership.leave(first=self._end_calls, last=self.pull_consumer.stop)
        if not _in_callback.get():
            await asyncio.shield(leaving)

    async def _end_calls(self) -> None:
        """Wait for the running callbacks."""
        running = [each.task for each in self._tasks.values()]
        if running:
            _, pending = await asyncio.wait(running, timeout=self._stop_timeout)
            for task in pending:
                log.warning("a callback of %s still runs and is abandoned", self.group)
                task.cancel()

    async def _call(self, task: PullTask) -> float:
        """Call the callback of a queue once, unless its task was stopped; the seconds until the next call."""
        queue = task.process_queue.queue
        callback = self._callbacks[queue.topic]
        context = PullTaskContext(self.pull_consumer)
        async with self._free:
            if task.stopped:
                return 0.0
            try:
                await callbacks.call(callback, queue, context)
                delay = context.pull_next_delay_time
                check_kind("pull_next_delay_time", delay, int | float, "a number of seconds")
                if delay != delay:
                    raise UsageError("pull_next_delay_time=nan: a number of seconds is expected.")
            except ClientError as error:  # such as an unreachable broker: no fault of the callback
                text = f"the callback for {queue} failed, retrying every {self._after_error} s: {error}"
                self._warnings.warn(queue, text)
                return self._after_error
            except Exception:
                log.exception("the callback for %s failed, retrying in %s s", queue, self._after_error)
                return self._after_error
            self._warnings.forget(queue)
        return delay
