"""Concurrent consumption: all pulled messages go to the listener at once, in no particular order.

Owns the way from a pull to the listener and back: consumed messages are removed from their process queue, others are
sent back to the broker, and so are the messages of a call that exceeds ``consume_timeout``. Facts:
ConsumeMessageConcurrentlyService and ProcessQueue.cleanExpiredMsg in 4.9.7. Java checks only the first messages of each
queue, every 15 minutes, and sends a message back a second time if its listener fails after the timeout; here that
failure does not count. Java also sends back the overdue messages of a broadcasting member, which no member reads; here
the listener is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

import msgspec

from eruca.client.consuming.consume_request import Argument, ConsumeRequest, PulledBatch, listener_failed
from eruca.client.consuming.consumer_stats import ConsumerStats, TopicStats
from eruca.client.consuming.process_queue import ProcessQueue, QueueLimits
from eruca.client.consuming.runners import Runner
from eruca.client.consuming.send_back import FIRST_RETRY_LEVEL, SendBack
from eruca.client.consuming.unpacker import are_packed
from eruca.client.log import log
from eruca.client.message import ReceivedMessage
from eruca.client.outcomes import Later, Reject

RunnerFactory = Callable[[Callable[[ConsumeRequest], None]], Runner]
"""Makes the runner of a listener, given the callback for finished requests."""


class ConsumeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How messages are consumed.

    Args:
        batch_max_size: None calls the listener with one message (consumeMessageBatchMaxSize).
        limits: a puller that waits for room is woken below these.
        send_back: None if failures are only logged.
        timeout: seconds after which the messages of a call are sent back (consumeTimeout).
    """

    group: str
    batch_max_size: int | None
    limits: QueueLimits
    stats: ConsumerStats
    send_back: SendBack | None
    timeout: float


class Concurrent:
    """Passes messages to the listener in any order."""

    def __init__(self, options: ConsumeOptions, make_runner: RunnerFactory) -> None:
        self._options = options
        self._batch_max_size = options.batch_max_size
        self._limits = options.limits
        self._stats = options.stats
        self._last_queue: ProcessQueue | None = None
        """The process queue of the last finished request, and the statistics of its topic."""
        self._last_stats = TopicStats(0.0)
        self.runner = make_runner(self._finished)
        self._ended = False
        if options.send_back is not None:
            options.send_back.consume_again = self.consume_again

    def deliver(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Submit pulled messages to the runner."""
        if messages:
            self.runner.submit(PulledBatch(process_queue, self._arguments(messages), packed=are_packed(messages)))

    def _arguments(self, messages: list[ReceivedMessage]) -> Sequence[Argument]:
        size = self._batch_max_size
        if size is None:
            return messages
        return [messages[start : start + size] for start in range(0, len(messages), size)]

    def direct_request(self, process_queue: ProcessQueue, message: ReceivedMessage) -> ConsumeRequest:
        """A request that belongs to no assigned queue (309)."""
        request = ConsumeRequest(process_queue)
        (request.argument,) = self._arguments([message])
        return request

    def consume_again(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        """Pass a message to the listener once more."""
        if not process_queue.dropped and not self._ended:
            self.deliver(process_queue, [message])

    def _finished(self, request: ConsumeRequest) -> None:
        """Remove the consumed messages of a finished request, and send the others back."""
        process_queue = request.process_queue
        if process_queue.dropped:
            return
        if request.expired:
            log.warning("the listener of %s ended after %.0f s, too late", self._options.group, request.took)
            return
        if process_queue is not self._last_queue:
            self._last_queue, self._last_stats = process_queue, self._stats[process_queue.queue.topic]
        stats = self._last_stats
        stats.runs += 1
        stats.run_seconds += request.took
        process_queue.consumed_at = request.began + request.took
        if request.outcome is None and self._batch_max_size is None:
            stats.consumed += 1
            process_queue.done(request.argument.queue_offset)  # type: ignore[union-attr]
        else:
            messages = request.messages
            if isinstance(request.outcome, Later | Reject):
                messages = self._send_back(request, request.outcome)
            stats.consumed += len(messages)
            for message in messages:
                process_queue.done(message.queue_offset)
        if process_queue.made_room is not None and process_queue.has_room(self._limits):
            process_queue.made_room()

    def _send_back(self, request: ConsumeRequest, outcome: Later | Reject) -> list[ReceivedMessage]:
        """Send back what was not consumed; returns what was."""
        messages = request.messages
        if request.error is not None:
            listener_failed(self._options.group, messages, request.error)
        self._last_stats.failed += max(len(messages) - outcome.consumed, 0)
        if self._options.send_back is None:
            log.warning("%s messages were not consumed and are not retried: %s", len(messages), messages)
            return messages
        self._options.send_back.start(request.process_queue, messages[outcome.consumed :], outcome, request.error)
        return messages[: outcome.consumed]

    def expire(self) -> None:
        """Send back the messages of calls that exceed the timeout. Call it periodically."""
        options = self._options
        latest = monotonic() - options.timeout
        for request in self.runner.running:
            if request.began > latest or request.expired or request.process_queue.dropped:
                continue
            late = "the listener of %s did not end within %s s, %s %s"
            if options.send_back is not None:
                request.expired = True
                log.warning(late, options.group, options.timeout, "sending back", request.messages)
                self._stats[request.process_queue.queue.topic].failed += len(request.messages)
                too_late = TimeoutError(f"the listener did not end within {options.timeout} s")
                outcome = Later() if options.send_back.has_backoff else Later(delay_level=FIRST_RETRY_LEVEL)
                options.send_back.start(request.process_queue, request.messages, outcome, too_late)
            elif request.overdue != request.began:
                request.overdue = request.began
                log.warning(late, options.group, options.timeout, "still waiting for", request.messages)

    async def shutdown(self, timeout: float) -> bool:
        """Begin no more calls; wait for running calls and messages on their way back. False if calls still run."""
        self._ended = True
        quiet = await self.runner.shutdown(timeout)
        if self._options.send_back is not None:
            await self._options.send_back.finish(timeout)
        return quiet
