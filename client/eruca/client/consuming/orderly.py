"""Orderly consumption: the messages of each queue are consumed in their order, one call of the listener at a time.

Owns, for each queue, the messages that wait, the call that runs, and the suspension after a failure. Invariants: at any
time one call at most runs for a queue, also across a reset and a lost lock; a call begins only while the lock of the
queue is held; a queue is released only when no call runs for it. After each call a queue lines up behind the others, so
that none occupies a listener for long (Java switches after 60 s).
Facts: ConsumeMessageOrderlyService and RebalancePushImpl.removeUnnecessaryMessageQueue in 4.9.7.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from eruca.client.consuming.concurrent import ConsumeOptions, RunnerFactory
from eruca.client.consuming.consume_request import Argument, ConsumeRequest, PulledBatch
from eruca.client.consuming.locks import QueueLocks
from eruca.client.consuming.process_queue import ProcessQueue
from eruca.client.consuming.send_back import reconsumed
from eruca.client.errors import ClientError, UsageError
from eruca.client.log import log
from eruca.client.message import ReceivedMessage
from eruca.client.network.session import Session
from eruca.client.outcomes import Decision, Suspend
from eruca.protocol.queues import MessageQueue

SHORTEST_WAIT, LONGEST_WAIT = 0.01, 30.0
"""Bounds of a suspension in seconds, whatever the listener returns (suspendCurrentQueueTimeMillis)."""
MAX_RECONSUME_TIMES = 2**31 - 1


class OrderlyRequest(ConsumeRequest):
    """The next call of the listener for a queue."""

    __slots__ = ("_auto_commit", "_held", "_ticket", "begun", "ended")
    allowed = (Suspend, Decision)
    claims = True

    def __init__(
        self,
        process_queue: ProcessQueue,
        argument: Argument,
        held: Callable[[MessageQueue], bool],
        *,
        auto_commit: bool,
    ) -> None:
        super().__init__(process_queue)
        self.argument = argument
        self.begun = False
        self.ended = False
        """The call ended and has an outcome."""
        self._held = held
        self._auto_commit = auto_commit
        self._ticket = [None]

    def accept(self, outcome: Any) -> None:
        """Record what the listener returned. ROLLBACK with auto-commit is an error; Java takes it for success."""
        if outcome is Decision.ROLLBACK and self._auto_commit:
            self.fail(UsageError("Decision.ROLLBACK takes auto_commit=False; otherwise return Suspend()."))
        else:
            super().accept(outcome)

    def claim(self) -> bool:
        """Whether the call may begin. Thread-safe: only the first of ``claim`` and ``withdraw`` succeeds."""
        if not self.withdraw() or self.process_queue.dropped or not self._held(self.process_queue.queue):
            return False
        self.begun = True
        return True

    def withdraw(self) -> bool:
        """Prevent the call; False if it has begun."""
        try:
            self._ticket.pop()
        except IndexError:
            return False
        return True


class OrderlyBatch(PulledBatch):
    """One call; the queue waits for ``request``."""

    __slots__ = ("_request",)

    def __init__(self, request: OrderlyRequest) -> None:
        super().__init__(request.process_queue, [request.argument])
        self._request = request

    def request(self, spare: ConsumeRequest | None = None) -> ConsumeRequest:
        """The request of the call."""
        return self._request


class OrderedQueue:
    """The messages of one queue. ``running`` is the call that runs; ``closed`` while the queue is being released."""

    __slots__ = ("closed", "idle", "open_messages", "process_queue", "running", "timer", "waiting")

    def __init__(self, process_queue: ProcessQueue) -> None:
        self.process_queue = process_queue
        self.waiting: deque[ReceivedMessage] = deque()
        self.open_messages: list[ReceivedMessage] = []
        """Consumed but not committed (without auto_commit)."""
        self.running: OrderlyRequest | None = None
        self.closed = False
        self.idle: asyncio.Event | None = None
        self.timer: asyncio.TimerHandle | None = None

    def begin(self, process_queue: ProcessQueue) -> None:
        """Switch to another process queue of the same queue."""
        self.process_queue = process_queue
        self.waiting.clear()
        self.open_messages.clear()
        self.wake()

    def wake(self) -> None:
        """End the suspension."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def put_back(self, messages: Sequence[ReceivedMessage], *, tried: bool) -> None:
        """Consume these next; ``tried`` increments their ``reconsume_times``."""
        if tried:
            messages = [reconsumed(message) for message in messages]
        self.waiting.extendleft(reversed(messages))


class Orderly:
    """Passes the messages of each queue to the listener one call after another.

    ``locks`` is None for a broadcasting member; ``suspend_time`` in seconds; ``max_reconsume_times`` and
    ``auto_commit`` as in PushConsumer.
    """

    def __init__(
        self,
        session: Session,
        options: ConsumeOptions,
        make_runner: RunnerFactory,
        *,
        locks: QueueLocks | None,
        suspend_time: float,
        max_reconsume_times: int,
        auto_commit: bool,
    ) -> None:
        self._session = session
        self._waits = session.settings.waits
        self._options = options
        self._locks = locks
        self._suspend_time = suspend_time
        self._max = max_reconsume_times
        self._auto_commit = auto_commit
        self.queues: dict[MessageQueue, OrderedQueue] = {}
        self._locking: set[MessageQueue] = set()
        """Queues whose lost lock is being requested."""
        self._ended = False
        self.runner = make_runner(self._finished)

    # ------------------------------------------------------------------ from the pull to the listener

    def deliver(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Append pulled messages to their queue."""
        ordered = self.queues.get(process_queue.queue)
        if ordered is None:
            ordered = self.queues[process_queue.queue] = OrderedQueue(process_queue)
        elif ordered.process_queue is not process_queue:
            ordered.begin(process_queue)
        ordered.waiting.extend(messages)
        self._next(ordered)

    def direct_request(self, process_queue: ProcessQueue, message: ReceivedMessage) -> ConsumeRequest:
        """A request that belongs to no assigned queue (309)."""
        argument = message if self._options.batch_max_size is None else [message]
        return OrderlyRequest(process_queue, argument, lambda queue: True, auto_commit=self._auto_commit)

    def _next(self, ordered: OrderedQueue) -> None:
        """Submit the next call of a queue if one may run."""
        if (
            ordered.running is not None
            or ordered.timer is not None
            or ordered.closed
            or ordered.process_queue.dropped
            or self._ended
        ):
            return
        if not ordered.waiting or not self.may_pull(ordered.process_queue.queue):
            return
        argument: Argument
        if self._options.batch_max_size is None:
            argument = ordered.waiting.popleft()
        else:
            argument = [
                ordered.waiting.popleft() for _ in range(min(self._options.batch_max_size, len(ordered.waiting)))
            ]
        request = ordered.running = OrderlyRequest(
            ordered.process_queue, argument, self.held, auto_commit=self._auto_commit
        )
        self.runner.submit(OrderlyBatch(request))

    async def _relock(self, locks: QueueLocks, queue: MessageQueue) -> None:
        """Regain a lost lock; meanwhile the queue waits."""
        try:
            while locks.wanted(queue) and not self._ended:
                if locks.held(queue) or await locks.take(queue):
                    break
                await asyncio.sleep(self._waits.lock)
        finally:
            self._locking.discard(queue)
        ordered = self.queues.get(queue)
        if ordered is not None and locks.held(queue):
            self._next(ordered)

    # ------------------------------------------------------------------ from the listener on

    def _finished(self, request: ConsumeRequest) -> None:
        ordered = self.queues.get(request.process_queue.queue)
        if ordered is None or ordered.running is not request:
            return  # it was withdrawn
        ordered.running.ended = True
        if request.process_queue.dropped:
            self._end(ordered)
        elif not ordered.running.begun:
            ordered.put_back(request.messages, tried=False)
            self._end(ordered)
        else:
            stats = self._options.stats[ordered.process_queue.queue.topic]
            stats.runs += 1
            stats.run_seconds += request.took
            request.process_queue.consumed_at = request.began + request.took
            if request.outcome is None or isinstance(request.outcome, Decision):
                self._consumed(ordered, request)
                self._end(ordered)
            else:
                self._failed(ordered, request)

    def _end(self, ordered: OrderedQueue) -> None:
        """No call runs for the queue any more."""
        ordered.running = None
        if ordered.idle is not None:
            ordered.idle.set()
        self._next(ordered)

    def _consumed(self, ordered: OrderedQueue, request: ConsumeRequest) -> None:
        self._options.stats[ordered.process_queue.queue.topic].consumed += len(request.messages)
        if self._auto_commit:
            self._done(ordered.process_queue, request.messages)
            return
        ordered.open_messages += request.messages
        if request.outcome is Decision.COMMIT:
            self._done(ordered.process_queue, ordered.open_messages)
            ordered.open_messages.clear()
        elif request.outcome is Decision.ROLLBACK:
            ordered.put_back(ordered.open_messages, tried=False)
            ordered.open_messages.clear()
            self._suspend(ordered, self._suspend_time)

    def _done(self, process_queue: ProcessQueue, messages: Collection[ReceivedMessage]) -> None:
        for message in messages:
            process_queue.done(message.queue_offset)
        if process_queue.made_room is not None and process_queue.has_room(self._options.limits):
            process_queue.made_room()

    def _failed(self, ordered: OrderedQueue, request: ConsumeRequest) -> None:
        messages = request.messages
        if request.error is not None:
            log.error("the listener of %s failed with %s", self._options.group, messages, exc_info=request.error)
        self._options.stats[ordered.process_queue.queue.topic].failed += len(messages)
        if any(message.reconsume_times >= self._max for message in messages):
            self._session.spawn(self._send_dead_letters(ordered, request))  # until then the call counts as running
        else:
            self._again(ordered, request, messages)

    def _again(self, ordered: OrderedQueue, request: ConsumeRequest, messages: Sequence[ReceivedMessage]) -> None:
        if messages:
            ordered.put_back(messages, tried=True)
            wanted = request.outcome.seconds if isinstance(request.outcome, Suspend) else None
            self._suspend(ordered, self._suspend_time if wanted is None else wanted)
        self._end(ordered)

    async def _send_dead_letters(self, ordered: OrderedQueue, request: ConsumeRequest) -> None:
        """Send messages that exhausted their retries to the dead letters; the rest is retried, as are failed sends."""
        left = []
        for message in request.messages:
            if message.reconsume_times >= self._max and await self._sent_to_dead_letters(message):
                request.process_queue.done(message.queue_offset)
            else:
                left.append(message)
        if request.process_queue.dropped:
            self._end(ordered)
        else:
            self._done(request.process_queue, ())
            self._again(ordered, request, left)

    async def _sent_to_dead_letters(self, message: ReceivedMessage) -> bool:
        if self._options.send_back is None:
            log.warning("%s was retried %s times and is skipped now", message, message.reconsume_times)
            return True
        try:
            await self._options.send_back.send_dead_letter(message.record)
        except ClientError as error:
            log.warning("%s could not be sent to the dead letters, retrying it: %s", message, error)
            return False
        return True

    def _suspend(self, ordered: OrderedQueue, seconds: float) -> None:
        def resume() -> None:
            ordered.timer = None
            self._next(ordered)

        wait = min(max(seconds, SHORTEST_WAIT), LONGEST_WAIT)
        ordered.timer = self._session.loop.call_later(wait, resume)

    # ------------------------------------------------------------------ who may read a queue

    def held(self, queue: MessageQueue) -> bool:
        """Whether this member may pull the queue and consume from it now."""
        return self._locks is None or self._locks.held(queue)

    def may_pull(self, queue: MessageQueue) -> bool:
        """As ``held``; requests a lost lock again."""
        if self._locks is None or self._locks.held(queue):
            return True
        if self._locks.wanted(queue) and queue not in self._locking and not self._ended:
            self._locking.add(queue)
            self._session.spawn(self._relock(self._locks, queue))
        return False

    def catch_up_by(self, catch_up: Callable[[MessageQueue], Awaitable[bool]]) -> None:
        """Set what runs before a queue continues whose lock was lost (see QueueLocks)."""
        if self._locks is not None:
            self._locks.catch_up = catch_up

    async def enter(self, queue: MessageQueue) -> bool:
        """Lock a queue before it is pulled; False if another member holds the lock."""
        return self._locks is None or await self._locks.take(queue)

    async def leave(self, queue: MessageQueue) -> bool:
        """Begin no more calls for a queue; False if one still runs after a while, and the queue must be kept."""
        ordered = self.queues.get(queue)
        if ordered is None:
            return True
        ordered.closed = True
        if ordered.running is not None and ordered.running.withdraw():
            ordered.put_back(ordered.running.messages, tried=False)
            ordered.running = None
        if ordered.running is not None:
            ordered.idle = asyncio.Event()
            try:
                async with asyncio.timeout(self._waits.release):
                    await ordered.idle.wait()
            except TimeoutError:
                return False
            finally:
                ordered.idle = None
        return True

    def stay(self, queue: MessageQueue) -> None:
        """The queue is kept: continue with it."""
        ordered = self.queues.get(queue)
        if ordered is not None and ordered.closed:
            ordered.closed = False
            self._next(ordered)

    async def left(self, queues: Collection[MessageQueue]) -> None:
        """The last offsets of these queues are stored: release their locks."""
        for queue in queues:
            ordered = self.queues.pop(queue, None)
            if ordered is not None:
                ordered.wake()
        if self._locks is not None:
            await self._locks.release(queues)

    async def leave_rest(self) -> None:
        """At the end, release all locks but those of queues for which a call runs."""
        if self._locks is not None:
            busy = {queue for queue, ordered in self.queues.items() if ordered.running is not None}
            await self._locks.release([queue for queue in self._locks.all if queue not in busy])

    async def renew_locks(self) -> None:
        """Renew the locks (lockAll)."""
        if self._locks is not None:
            await self._locks.renew()
            for ordered in tuple(self.queues.values()):
                self._next(ordered)

    async def shutdown(self, timeout: float) -> bool:
        """Begin no more calls and wait for those that run; False if some still run."""
        self._ended = True
        for ordered in self.queues.values():
            ordered.wake()
        quiet = await self.runner.shutdown(timeout)
        for ordered in self.queues.values():
            if ordered.running is not None and not ordered.running.ended and ordered.running not in self.runner.running:
                ordered.running = None  # cancelled, or never taken
        return quiet
