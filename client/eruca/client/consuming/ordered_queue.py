"""OrderedQueue: the messages of one queue that are consumed in order, in one lane or in one for each key.

Owns which message is next: in a lane one call runs at a time, and a message that failed is consumed again before all
that follow it. Without a key the queue has one lane, which stays. With a key (``ordered_by``) each key has a lane while
it has messages, so there are never more lanes than messages in the process queue. A queue that is ``closed``, as it is
given up, begins only what lies before messages that were consumed (``reach``), so that its offset passes them and no
member gets them again. Knows nothing of brokers, locks and listeners.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from eruca.client.consuming.consume_request import Argument, ConsumeRequest, PulledBatch
from eruca.client.consuming.process_queue import ProcessQueue
from eruca.client.consuming.send_back import reconsumed
from eruca.client.consuming.unpacker import are_packed
from eruca.client.errors import UsageError
from eruca.client.message import ReceivedMessage
from eruca.client.outcomes import Decision, Reject, Suspend
from eruca.protocol.queues import MessageQueue

KeyOf = Callable[[ReceivedMessage], Hashable]
"""The key of a message: those of one key are consumed in order (``ordered_by``)."""
NOWHERE = -1


class OrderlyRequest(ConsumeRequest):
    """The next call of the listener for a lane; ``lane`` is None for a message that belongs to no assigned queue."""

    __slots__ = ("_auto_commit", "_held", "_ticket", "begun", "ended", "lane")
    allowed = (Suspend, Decision, Reject)
    claims = True

    def __init__(
        self,
        process_queue: ProcessQueue,
        argument: Argument,
        held: Callable[[MessageQueue], bool],
        *,
        auto_commit: bool,
        lane: Lane | None = None,
    ) -> None:
        super().__init__(process_queue)
        self.argument = argument
        self.lane = lane
        self.begun = False
        self.ended = False
        """The call ended and has an outcome."""
        self._held = held
        self._auto_commit = auto_commit
        self._ticket = [None]

    def accept(self, outcome: Any, listener: str) -> None:
        """Record what the listener returned. ROLLBACK with auto-commit is an error; Java takes it for success."""
        if outcome is Decision.ROLLBACK and self._auto_commit:
            self.fail(UsageError("Decision.ROLLBACK takes auto_commit=False; otherwise return Suspend()."))
        else:
            super().accept(outcome, listener)

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
    """One call; the lane waits for ``request``."""

    __slots__ = ("_request",)

    def __init__(self, request: OrderlyRequest) -> None:
        super().__init__(request.process_queue, [request.argument], packed=are_packed(request.messages))
        self._request = request

    def request(self, spare: ConsumeRequest | None = None) -> ConsumeRequest:
        """The request of the call."""
        return self._request


class Lane:
    """Messages that are consumed one after the other. ``running`` is the call that was submitted and has not ended."""

    __slots__ = ("key", "queue", "running", "timer", "waiting")

    def __init__(self, queue: OrderedQueue, key: Hashable) -> None:
        self.queue = queue
        self.key = key
        self.waiting: deque[ReceivedMessage] = deque()
        self.running: OrderlyRequest | None = None
        self.timer: asyncio.TimerHandle | None = None
        """Set while the lane is suspended after a failure."""

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

    def take(self, batch_max_size: int | None) -> Argument | None:
        """The messages of the next call; None if there is none that may begin."""
        waiting, reach = self.waiting, self.queue.reach if self.queue.closed else None
        if not waiting or (reach is not None and waiting[0].queue_offset >= reach):
            return None
        if batch_max_size is None:
            return waiting.popleft()
        messages: list[ReceivedMessage] = []
        while waiting and len(messages) < batch_max_size and (reach is None or waiting[0].queue_offset < reach):
            messages.append(waiting.popleft())
        return messages


class OrderedQueue:
    """The messages of one queue.

    ``key_of`` gives the lane of a message; None for one lane. It must not raise.
    """

    __slots__ = ("closed", "highest", "idle", "key_of", "lanes", "open_messages", "process_queue", "reach")

    def __init__(self, process_queue: ProcessQueue, key_of: KeyOf | None) -> None:
        self.process_queue = process_queue
        self.key_of = key_of
        self.lanes: dict[Hashable, Lane] = {}
        self.open_messages: list[ReceivedMessage] = []
        """Consumed but not committed (without auto_commit)."""
        self.closed = False
        """The queue is being given up."""
        self.highest = NOWHERE
        """The last offset that was consumed."""
        self.reach = NOWHERE
        """Where what a closed queue may still begin ends."""
        self.idle: asyncio.Event | None = None
        if key_of is None:
            self.lanes[None] = Lane(self, None)

    @property
    def running(self) -> list[OrderlyRequest]:
        """The calls that were submitted and have not ended."""
        return [lane.running for lane in self.lanes.values() if lane.running is not None]

    def add(self, messages: Iterable[ReceivedMessage]) -> Sequence[Lane]:
        """Append pulled messages to their lanes; those lanes."""
        key_of, lanes = self.key_of, self.lanes
        if key_of is None:
            lane = lanes[None]
            lane.waiting.extend(messages)
            return (lane,)
        touched: dict[Lane, None] = {}
        for message in messages:
            key = key_of(message)
            found = lanes.get(key)
            if found is None:
                found = lanes[key] = Lane(self, key)
            found.waiting.append(message)
            touched[found] = None
        return tuple(touched)

    def forget(self, lane: Lane) -> None:
        """The lane has nothing more to do."""
        if self.key_of is not None and self.lanes.get(lane.key) is lane:
            del self.lanes[lane.key]

    def begin(self, process_queue: ProcessQueue) -> None:
        """Switch to another process queue of the same queue; calls that run keep their lanes until they end."""
        self.process_queue = process_queue
        self.open_messages.clear()
        self.highest = NOWHERE
        for lane in tuple(self.lanes.values()):
            lane.waiting.clear()
            lane.wake()
            if lane.running is None:
                self.forget(lane)

    def done(self, offset: int) -> None:
        """A message is consumed."""
        self.process_queue.done(offset)
        if offset > self.highest:  # without a call, as this is done for each message
            self.highest = offset

    def close(self, *, fill_gaps: bool) -> None:
        """Withdraw what has not begun, and begin no more but, with ``fill_gaps``, what lies before consumed messages.

        Calls that run count as consumed.
        """
        self.closed = True
        for lane in self.lanes.values():
            if lane.running is not None and lane.running.withdraw():
                lane.put_back(lane.running.messages, tried=False)
                lane.running = None
        self.reach = NOWHERE
        if fill_gaps and self.key_of is not None:
            at_work = (message.queue_offset for request in self.running for message in request.messages)
            self.reach = max(self.highest, *at_work, NOWHERE)

    def open(self) -> None:
        """Begin calls again."""
        self.closed = False

    def wake(self) -> None:
        """End all suspensions."""
        for lane in self.lanes.values():
            lane.wake()
