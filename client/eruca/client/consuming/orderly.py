"""What becomes of pulled messages of which each queue's order counts: one piece at a time, in its order.

Owns, for each queue, the messages that wait, the one piece of them that a listener has, and the wait after a failure.
Invariants: of a queue only one listener is at work at any time, also across a reset and a lost lock; a listener begins
only while the queue's lock is held; a queue is let go only when no listener has a part of it. After each piece the
queue lines up again behind the others, so none keeps a listener for long (Java changes after 60 s).
Facts: ConsumeMessageOrderlyService and RebalancePushImpl.removeUnnecessaryMessageQueue in 4.9.7.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from eruca.client.consuming.concurrent import Handling, MakeRunner
from eruca.client.consuming.listeners import Lot, Piece, Work
from eruca.client.consuming.locks import QueueLocks
from eruca.client.consuming.process_queue import ProcessQueue
from eruca.client.errors import ClientError, UsageError
from eruca.client.log import log
from eruca.client.message import ReceivedMessage
from eruca.client.network.session import Session
from eruca.client.outcomes import Decision, Suspend
from eruca.protocol.queues import MessageQueue

SHORTEST_WAIT, LONGEST_WAIT = 0.01, 30.0
"""Seconds between which a suspension lies, whatever the listener says."""
LET_GO_WAIT = 1.0
"""Seconds for which a rebalance waits for the listener of a queue that another member is to have."""
LOCK_AGAIN = 1.0
"""Seconds between two tries to get a lost lock back."""
MAX_RECONSUME_TIMES = 2**31 - 1


class OrderlyWork(Work):
    """The messages of a queue that a listener gets next."""

    __slots__ = ("_auto_commit", "_held", "_ticket", "begun", "ended")
    allowed = (Suspend, Decision)
    claims = True

    def __init__(
        self, run: ProcessQueue, piece: Piece, held: Callable[[MessageQueue], bool], *, auto_commit: bool
    ) -> None:
        super().__init__(run)
        self.piece = piece
        self.begun = False
        self.ended = False
        """Its listener ended, and said how."""
        self._held = held
        self._auto_commit = auto_commit
        self._ticket = [None]

    def accept(self, outcome: Any) -> None:
        """Keep what the listener returned; a rollback that cannot be is an error, and no consent as in Java."""
        if outcome is Decision.ROLLBACK and self._auto_commit:
            self.fail(UsageError("Decision.ROLLBACK takes auto_commit=False; otherwise return Suspend()."))
        else:
            super().accept(outcome)

    def claim(self) -> bool:
        """Whether the listener may begin; any thread may ask, and the first to ask decides."""
        if not self.withdraw() or self.run.dropped or not self._held(self.run.queue):
            return False
        self.begun = True
        return True

    def withdraw(self) -> bool:
        """Whether the listener has not begun; then it never will."""
        try:
            self._ticket.pop()
        except IndexError:
            return False
        return True


class OrderlyLot(Lot):
    """One piece; ``work`` is what the queue waits for."""

    __slots__ = ("_work",)

    def __init__(self, work: OrderlyWork) -> None:
        super().__init__(work.run, [work.piece])
        self._work = work

    def work(self, spare: Work | None = None) -> Work:
        """What a listener will be at work on."""
        return self._work


class Line:
    """The messages of one queue. ``busy`` is what a listener has; ``closed`` while the queue is to be let go."""

    __slots__ = ("busy", "closed", "idle", "open_messages", "run", "timer", "waiting")

    def __init__(self, run: ProcessQueue) -> None:
        self.run = run
        self.waiting: deque[ReceivedMessage] = deque()
        self.open_messages: list[ReceivedMessage] = []
        """Consumed, but not committed yet (without auto_commit)."""
        self.busy: OrderlyWork | None = None
        self.closed = False
        self.idle: asyncio.Event | None = None
        self.timer: asyncio.TimerHandle | None = None

    def begin(self, run: ProcessQueue) -> None:
        """Another run of the queue takes the place of this one."""
        self.run = run
        self.waiting.clear()
        self.open_messages.clear()
        self.wake()

    def wake(self) -> None:
        """End the suspension."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def put_back(self, messages: Sequence[ReceivedMessage], *, tried: bool) -> None:
        """These come next; ``tried`` counts one more time for each."""
        if tried:
            messages = [_once_more(message) for message in messages]
        self.waiting.extendleft(reversed(messages))


def _once_more(message: ReceivedMessage) -> ReceivedMessage:
    record = message.record
    return type(message)(record._replace(reconsume_times=record.reconsume_times + 1), message.queue)


class Orderly:
    """Hands the messages of each queue to the listener one piece after the other.

    ``locks`` is None where each member gets everything; ``suspend_time`` in seconds; ``max_reconsume_times`` as in
    PushConsumer; without ``auto_commit`` the listener says when its messages count as consumed.
    """

    def __init__(
        self,
        session: Session,
        handling: Handling,
        make_runner: MakeRunner,
        *,
        locks: QueueLocks | None,
        suspend_time: float,
        max_reconsume_times: int,
        auto_commit: bool,
    ) -> None:
        self._session = session
        self._handling = handling
        self._locks = locks
        self._suspend_time = suspend_time
        self._max = max_reconsume_times
        self._auto_commit = auto_commit
        self._lines: dict[MessageQueue, Line] = {}
        self._locking: set[MessageQueue] = set()
        """Queues whose lost lock is being asked for."""
        self._ended = False
        self.runner = make_runner(self._finished)

    # ------------------------------------------------------------------ from the pull to the listener

    def deliver(self, run: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Pulled messages line up."""
        line = self._lines.get(run.queue)
        if line is None:
            line = self._lines[run.queue] = Line(run)
        elif line.run is not run:
            line.begin(run)
        line.waiting.extend(messages)
        self._next(line)

    def work_of(self, run: ProcessQueue, message: ReceivedMessage) -> Work:
        """A piece of work outside all queues."""
        piece = message if self._handling.batch is None else [message]
        return OrderlyWork(run, piece, lambda queue: True, auto_commit=self._auto_commit)

    def _next(self, line: Line) -> None:
        """Let the listener have the next messages of a queue, if it may."""
        if line.busy is not None or line.timer is not None or line.closed or line.run.dropped or self._ended:
            return
        if not line.waiting or not self.may_read(line.run.queue):
            return
        piece: Piece
        if self._handling.batch is None:
            piece = line.waiting.popleft()
        else:
            piece = [line.waiting.popleft() for _ in range(min(self._handling.batch, len(line.waiting)))]
        work = line.busy = OrderlyWork(line.run, piece, self.held, auto_commit=self._auto_commit)
        self.runner.give(OrderlyLot(work))

    async def _lock_again(self, locks: QueueLocks, queue: MessageQueue) -> None:
        """Get a lost lock back; meanwhile the queue waits."""
        try:
            while locks.wanted(queue) and not self._ended:
                if locks.held(queue) or await locks.take(queue):
                    break
                await asyncio.sleep(LOCK_AGAIN)
        finally:
            self._locking.discard(queue)
        line = self._lines.get(queue)
        if line is not None and locks.held(queue):
            self._next(line)

    # ------------------------------------------------------------------ from the listener on

    def _finished(self, work: Work) -> None:
        line = self._lines.get(work.run.queue)
        if line is None or line.busy is not work:
            return  # it was withdrawn
        line.busy.ended = True
        if work.run.dropped:
            self._end(line)
        elif not line.busy.begun:
            line.put_back(work.messages, tried=False)
            self._end(line)
        else:
            pace = self._handling.paces[line.run.queue.topic]
            pace.runs += 1
            pace.run_seconds += work.took
            work.run.consumed_at = work.began + work.took
            if work.outcome is None or isinstance(work.outcome, Decision):
                self._consumed(line, work)
                self._end(line)
            else:
                self._failed(line, work)

    def _end(self, line: Line) -> None:
        """No listener has a part of the queue any more."""
        line.busy = None
        if line.idle is not None:
            line.idle.set()
        self._next(line)

    def _consumed(self, line: Line, work: Work) -> None:
        self._handling.paces[line.run.queue.topic].consumed += len(work.messages)
        if self._auto_commit:
            self._done(line.run, work.messages)
            return
        line.open_messages += work.messages
        if work.outcome is Decision.COMMIT:
            self._done(line.run, line.open_messages)
            line.open_messages.clear()
        elif work.outcome is Decision.ROLLBACK:
            line.put_back(line.open_messages, tried=False)
            line.open_messages.clear()
            self._suspend(line, self._suspend_time)

    def _done(self, run: ProcessQueue, messages: Collection[ReceivedMessage]) -> None:
        for message in messages:
            run.done(message.queue_offset)
        if run.made_room is not None and run.has_room(self._handling.limits):
            run.made_room()

    def _failed(self, line: Line, work: Work) -> None:
        messages = work.messages
        if work.error is not None:
            log.error("the listener of %s failed with %s", self._handling.group, messages, exc_info=work.error)
        self._handling.paces[line.run.queue.topic].failed += len(messages)
        if any(message.reconsume_times >= self._max for message in messages):
            self._session.spawn(self._bury(line, work))  # until then the queue is busy
        else:
            self._again(line, work, messages)

    def _again(self, line: Line, work: Work, messages: Sequence[ReceivedMessage]) -> None:
        if messages:
            line.put_back(messages, tried=True)
            wanted = work.outcome.seconds if isinstance(work.outcome, Suspend) else None
            self._suspend(line, self._suspend_time if wanted is None else wanted)
        self._end(line)

    async def _bury(self, line: Line, work: Work) -> None:
        """Send what came too often to the dead letters; what cannot be sent comes again, as the others do."""
        left = []
        for message in work.messages:
            if message.reconsume_times >= self._max and await self._buried(message):
                work.run.done(message.queue_offset)
            else:
                left.append(message)
        if work.run.dropped:
            self._end(line)
        else:
            self._done(work.run, ())
            self._again(line, work, left)

    async def _buried(self, message: ReceivedMessage) -> bool:
        if self._handling.returns is None:
            log.warning("%s came %s times and is left out now", message, message.reconsume_times)
            return True
        try:
            await self._handling.returns.bury(message.record)
        except ClientError as error:
            log.warning("%s could not be sent to the dead letters, it comes again: %s", message, error)
            return False
        return True

    def _suspend(self, line: Line, seconds: float) -> None:
        def resume() -> None:
            line.timer = None
            self._next(line)

        wait = min(max(seconds, SHORTEST_WAIT), LONGEST_WAIT)
        line.timer = self._session.loop.call_later(wait, resume)

    # ------------------------------------------------------------------ who may read a queue

    def held(self, queue: MessageQueue) -> bool:
        """Whether this member may read the queue and consume from it now."""
        return self._locks is None or self._locks.held(queue)

    def may_read(self, queue: MessageQueue) -> bool:
        """As ``held``; a lock that was lost is asked for from here on."""
        if self._locks is None or self._locks.held(queue):
            return True
        if self._locks.wanted(queue) and queue not in self._locking and not self._ended:
            self._locking.add(queue)
            self._session.spawn(self._lock_again(self._locks, queue))
        return False

    def catch_up_by(self, catch_up: Callable[[MessageQueue], Awaitable[bool]]) -> None:
        """Set what is asked before a queue goes on whose lock was lost (see QueueLocks)."""
        if self._locks is not None:
            self._locks.catch_up = catch_up

    async def enter(self, queue: MessageQueue) -> bool:
        """Before a queue is read: lock it."""
        return self._locks is None or await self._locks.take(queue)

    async def leave(self, queue: MessageQueue) -> bool:
        """Begin nothing more of a queue; False when its listener still works after a while, then it is kept."""
        line = self._lines.get(queue)
        if line is None:
            return True
        line.closed = True
        if line.busy is not None and line.busy.withdraw():
            line.put_back(line.busy.messages, tried=False)
            line.busy = None
        if line.busy is not None:
            line.idle = asyncio.Event()
            try:
                async with asyncio.timeout(LET_GO_WAIT):
                    await line.idle.wait()
            except TimeoutError:
                return False
            finally:
                line.idle = None
        return True

    def stay(self, queue: MessageQueue) -> None:
        """The queue is kept after all."""
        line = self._lines.get(queue)
        if line is not None and line.closed:
            line.closed = False
            self._next(line)

    async def left(self, queues: Collection[MessageQueue]) -> None:
        """The queues' last positions are stored: others may have them."""
        for queue in queues:
            line = self._lines.pop(queue, None)
            if line is not None:
                line.wake()
        if self._locks is not None:
            await self._locks.release(queues)

    async def leave_rest(self) -> None:
        """At the end: give back all locks but of queues that a listener has a part of, as of a start cut short."""
        if self._locks is not None:
            busy = {queue for queue, line in self._lines.items() if line.busy is not None}
            await self._locks.release([queue for queue in self._locks.all if queue not in busy])

    async def keep(self) -> None:
        """Renew the locks."""
        if self._locks is not None:
            await self._locks.renew()
            for line in tuple(self._lines.values()):
                self._next(line)

    async def halt(self, timeout: float) -> bool:
        """Begin nothing more, and wait for the listeners; False when some still run."""
        self._ended = True
        for line in self._lines.values():
            line.wake()
        quiet = await self.runner.halt(timeout)
        for line in self._lines.values():
            if line.busy is not None and not line.busy.ended and line.busy not in self.runner.at_work:
                line.busy = None  # its listener was cancelled, or nobody takes it any more
        return quiet
