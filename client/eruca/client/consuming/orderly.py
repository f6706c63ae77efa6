"""Orderly consumption: messages are consumed in their order, one call of the listener at a time for each lane.

A lane is a queue, or with ``ordered_by`` the messages of one key in a queue (``ordered_queue``). Owns the calls, the
suspension of a lane after a failure, and the locks. Invariants: at any time one call at most runs for a lane, also
across a reset and a lost lock; a call begins only while the lock of its queue is held; a queue is released only when no
call runs for it. After each call a lane lines up behind the others, so that none occupies a listener for long (Java
switches after 60 s).
Facts: ConsumeMessageOrderlyService and RebalancePushImpl.removeUnnecessaryMessageQueue in 4.9.7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence

from eruca.client.consuming.concurrent import ConsumeOptions, RunnerFactory
from eruca.client.consuming.consume_request import Argument, ConsumeRequest, listener_failed
from eruca.client.consuming.last_error import LastError, last_error
from eruca.client.consuming.locks import QueueLocks
from eruca.client.consuming.ordered_queue import KeyOf, Lane, OrderedQueue, OrderlyBatch, OrderlyRequest
from eruca.client.consuming.process_queue import ProcessQueue
from eruca.client.consuming.retry_policy import RetryPolicy
from eruca.client.log import Warnings, log, often
from eruca.client.message import ReceivedMessage
from eruca.client.network.session import Session
from eruca.client.outcomes import LONGEST_SUSPENSION, Decision, Reject
from eruca.protocol.queues import MessageQueue

SHORTEST_WAIT = 0.01
"""Seconds for which a queue is suspended at least, whatever the listener returns (suspendCurrentQueueTimeMillis)."""
MAX_RECONSUME_TIMES = 2**31 - 1


class Orderly:
    """Passes the messages of each lane to the listener one call after another.

    ``locks`` is None for a broadcasting member; ``suspend_time`` in seconds, where ``policy`` has no times of its own;
    ``auto_commit`` and ``ordered_by`` as in PushConsumer.
    """

    def __init__(
        self,
        session: Session,
        options: ConsumeOptions,
        make_runner: RunnerFactory,
        *,
        locks: QueueLocks | None,
        suspend_time: float,
        policy: RetryPolicy,
        auto_commit: bool,
        ordered_by: KeyOf | None = None,
    ) -> None:
        self._session = session
        self._waits = session.settings.waits
        self._options = options
        self._batch_max_size = options.batch_max_size
        self._locks = locks
        self._suspend_time = suspend_time
        self._policy = policy
        self._auto_commit = auto_commit
        self._ordered_by = ordered_by
        self._key_of = None if ordered_by is None else self._find_key
        self._warnings = Warnings()
        self.queues: dict[MessageQueue, OrderedQueue] = {}
        self._locking: set[MessageQueue] = set()
        """Queues whose lost lock is being requested."""
        self._ended = False
        self.runner = make_runner(self._finished)

    # ------------------------------------------------------------------ from the pull to the listener

    def deliver(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Append pulled messages to their lanes."""
        ordered = self.queues.get(process_queue.queue)
        if ordered is None:
            ordered = self.queues[process_queue.queue] = OrderedQueue(process_queue, self._key_of)
        elif ordered.process_queue is not process_queue:
            ordered.begin(process_queue)
        for lane in ordered.add(messages):
            self._next(lane)

    def _find_key(self, message: ReceivedMessage) -> Hashable:
        """The key of a message by ``ordered_by``; None, with a warning in the log, if it fails."""
        assert self._ordered_by is not None
        try:
            key = self._ordered_by(message)
            hash(key)
        except Exception as error:
            about = f"ordered_by= of {self._options.group} raised {error!r}: messages without a key share one order"
            self._warnings.warn(type(error), about)
            return None
        return key

    def direct_request(self, process_queue: ProcessQueue, message: ReceivedMessage) -> ConsumeRequest:
        """A request that belongs to no assigned queue (309)."""
        argument = message if self._options.batch_max_size is None else [message]
        return OrderlyRequest(process_queue, argument, lambda queue: True, auto_commit=self._auto_commit)

    def _next(self, lane: Lane) -> None:
        """Submit the next call of a lane if one may run."""
        ordered = lane.queue
        process_queue = ordered.process_queue
        if lane.running is not None or lane.timer is not None or process_queue.dropped or self._ended:
            return
        if not lane.waiting:
            ordered.forget(lane)
            return
        if not self.may_pull(process_queue.queue):
            return
        argument: Argument | None
        if self._batch_max_size is None and not ordered.closed:
            argument = lane.waiting.popleft()
        else:
            argument = lane.take(self._batch_max_size)
        if argument is None:
            return
        request = lane.running = OrderlyRequest(
            process_queue, argument, self.held, auto_commit=self._auto_commit, lane=lane
        )
        self.runner.submit(OrderlyBatch(request))

    def _go_on(self, ordered: OrderedQueue) -> None:
        """Submit the next calls of a queue."""
        for lane in tuple(ordered.lanes.values()):
            self._next(lane)

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
            self._go_on(ordered)

    # ------------------------------------------------------------------ from the listener on

    def _finished(self, request: ConsumeRequest) -> None:
        lane = request.lane if isinstance(request, OrderlyRequest) else None
        if lane is None or lane.running is not request:
            return  # it was withdrawn
        lane.running.ended = True
        if request.process_queue.dropped:
            self._end(lane)
        elif not lane.running.begun:
            lane.put_back(request.messages, tried=False)
            self._end(lane)
        else:
            stats = self._options.stats[request.process_queue.queue.topic]
            stats.runs += 1
            stats.run_seconds += request.took
            request.process_queue.consumed_at = request.began + request.took
            if request.outcome is None or isinstance(request.outcome, Decision):
                self._consumed(lane, request)
                self._end(lane)
            else:
                self._failed(lane, request)

    def _end(self, lane: Lane) -> None:
        """No call runs for the lane any more."""
        lane.running = None
        self._next(lane)
        ordered = lane.queue
        if ordered.idle is not None and not ordered.running:
            ordered.idle.set()

    def _consumed(self, lane: Lane, request: ConsumeRequest) -> None:
        ordered = lane.queue
        self._options.stats[ordered.process_queue.queue.topic].consumed += len(request.messages)
        if self._auto_commit:
            self._done(ordered, request.messages)
            return
        ordered.open_messages += request.messages
        if request.outcome is Decision.COMMIT:
            self._done(ordered, ordered.open_messages)
            ordered.open_messages.clear()
        elif request.outcome is Decision.ROLLBACK:
            lane.put_back(ordered.open_messages, tried=False)
            ordered.open_messages.clear()
            self._suspend(lane, self._suspend_time)

    def _done(self, ordered: OrderedQueue, messages: Collection[ReceivedMessage]) -> None:
        process_queue = ordered.process_queue
        for message in messages:
            ordered.done(message.queue_offset)
        if process_queue.made_room is not None and process_queue.has_room(self._options.limits):
            process_queue.made_room()

    def _failed(self, lane: Lane, request: ConsumeRequest) -> None:
        messages = request.messages
        if request.error is not None:
            listener_failed(self._options.group, messages, request.error)
        self._options.stats[request.process_queue.queue.topic].failed += len(messages)
        if self._policy.dead(messages, request.outcome):
            self._session.spawn(self._send_dead_letters(lane, request))  # until then the call counts as running
        else:
            self._again(lane, request, messages)

    def _again(self, lane: Lane, request: ConsumeRequest, messages: Sequence[ReceivedMessage]) -> None:
        if messages:
            lane.put_back(messages, tried=True)
            self._options.stats[request.process_queue.queue.topic].retried += len(messages)
            wanted = self._policy.wait(messages[0].reconsume_times, request.outcome)
            self._suspend(lane, self._suspend_time if wanted is None else wanted)
        self._end(lane)

    async def _send_dead_letters(self, lane: Lane, request: ConsumeRequest) -> None:
        """Send what is not to be retried to the dead letters; the rest is retried, as are failed sends."""
        outcome, left, sent = request.outcome, [], []
        why = last_error(request.error, outcome)
        for number, message in enumerate(request.messages):
            consumed = isinstance(outcome, Reject) and number < outcome.consumed
            if consumed or (self._policy.is_dead(message, outcome) and await self._buried(message, why)):
                sent.append(message)
            else:
                left.append(message)
        if request.process_queue.dropped:
            self._end(lane)
        else:
            self._done(lane.queue, sent)
            self._again(lane, request, left)

    async def _buried(self, message: ReceivedMessage, why: LastError) -> bool:
        if self._options.send_back is None:
            log.warning("%s was retried %s and is skipped now: %s", message, often(message.reconsume_times), why)
            return True
        return await self._options.send_back.bury(message, why, times=max(message.reconsume_times, 1))

    def _suspend(self, lane: Lane, seconds: float) -> None:
        def resume() -> None:
            lane.timer = None
            self._next(lane)

        wait = min(max(seconds, SHORTEST_WAIT), LONGEST_SUSPENSION)
        lane.timer = self._session.loop.call_later(wait, resume)

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
        """Begin no more calls for a queue; False if one still runs after a while, and the queue must be kept.

        Gaps before messages that were consumed are filled meanwhile.
        """
        ordered = self.queues.get(queue)
        return ordered is None or await self._close(ordered)

    async def _close(self, ordered: OrderedQueue) -> bool:
        ordered.close(fill_gaps=True)
        self._go_on(ordered)
        if ordered.running:
            ordered.idle = asyncio.Event()
            try:
                async with asyncio.timeout(self._waits.release):
                    await ordered.idle.wait()
            except TimeoutError:
                ordered.close(fill_gaps=False)
            finally:
                ordered.idle = None
        return not ordered.running

    def stay(self, queue: MessageQueue) -> None:
        """The queue is kept: continue with it."""
        ordered = self.queues.get(queue)
        if ordered is not None and ordered.closed:
            ordered.open()
            self._go_on(ordered)

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
            busy = {queue for queue, ordered in self.queues.items() if ordered.running}
            await self._locks.release([queue for queue in self._locks.all if queue not in busy])

    async def renew_locks(self) -> None:
        """Renew the locks (lockAll)."""
        if self._locks is not None:
            await self._locks.renew()
            for ordered in tuple(self.queues.values()):
                self._go_on(ordered)

    async def shutdown(self, timeout: float) -> bool:
        """Begin no more calls and wait for those that run; False if some still run."""
        if self._ordered_by is not None:
            await asyncio.gather(*(self._close(ordered) for ordered in self.queues.values()))
        self._ended = True
        for ordered in self.queues.values():
            ordered.wake()
        quiet = await self.runner.shutdown(timeout)
        for ordered in self.queues.values():
            for lane in ordered.lanes.values():
                if lane.running is not None and not lane.running.ended and lane.running not in self.runner.running:
                    lane.running = None  # cancelled, or never taken
        return quiet
