"""What becomes of pulled messages whose order does not matter: all go to the listener at once.

Owns the way from a pull to the listener and back: what was consumed is done for its run, what was not goes back to the
broker, and so does what a listener keeps for too long. Facts: ConsumeMessageConcurrentlyService and
ProcessQueue.cleanExpiredMsg in 4.9.7, which looks only at the first messages of each queue and every 15 minutes; takes
a second time back what a listener fails to consume after the time-out, which does not count here; and sends back what a
broadcasting member has for too long, too, where nobody reads it: here such a listener is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eruca.client.consuming.consumer_stats import ConsumerStats, TopicStats
from eruca.client.consuming.listeners import Lot, Piece, Work, clock
from eruca.client.consuming.process_queue import Limits, ProcessQueue
from eruca.client.consuming.runners import Runner
from eruca.client.consuming.send_back import FIRST_RETRY_LEVEL, SendBack
from eruca.client.log import log
from eruca.client.message import ReceivedMessage
from eruca.client.outcomes import Later

MakeRunner = Callable[[Callable[[Work], None]], Runner]
"""Given whom to call with finished work: what runs the listener."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """How messages are handled: ``batch`` None for one by one, ``returns`` None where failures are only told.

    ``timeout``: seconds after which the messages of a listener go back.
    """

    group: str
    batch: int | None
    limits: Limits
    paces: ConsumerStats
    returns: SendBack | None
    timeout: float


class Concurrent:
    """Hands messages to the listener, however many it takes at once."""

    def __init__(self, handling: Handling, make_runner: MakeRunner) -> None:
        self._handling = handling
        self._batch = handling.batch
        self._limits = handling.limits
        self._paces = handling.paces
        self._run: ProcessQueue | None = None
        """The run whose messages were finished last, and the pace of its topic."""
        self._pace = TopicStats(0.0)
        self.runner = make_runner(self._finished)
        self._ended = False
        if handling.returns is not None:
            handling.returns.again = self.again

    def deliver(self, run: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Pulled messages go to the runner."""
        if messages:
            self.runner.give(Lot(run, self._pieces(messages)))

    def _pieces(self, messages: list[ReceivedMessage]) -> Sequence[Piece]:
        size = self._batch
        if size is None:
            return messages
        return [messages[start : start + size] for start in range(0, len(messages), size)]

    def work_of(self, run: ProcessQueue, message: ReceivedMessage) -> Work:
        """A piece of work outside all queues."""
        work = Work(run)
        (work.piece,) = self._pieces([message])
        return work

    def again(self, run: ProcessQueue, message: ReceivedMessage) -> None:
        """Give a message to the listener once more."""
        if not run.dropped and not self._ended:
            self.deliver(run, [message])

    def _finished(self, work: Work) -> None:
        """A listener ended: its messages are done, or go back."""
        run = work.run
        if run.dropped:
            return
        if work.expired:
            log.warning("the listener of %s ended %.0f s after it began, too late", self._handling.group, work.took)
            return
        if run is not self._run:
            self._run, self._pace = run, self._paces[run.queue.topic]
        pace = self._pace
        pace.runs += 1
        pace.run_seconds += work.took
        run.consumed_at = work.began + work.took
        if work.outcome is None and self._batch is None:
            pace.consumed += 1
            run.done(work.piece.queue_offset)  # type: ignore[union-attr]
        else:
            messages = self._returned(work, work.outcome) if isinstance(work.outcome, Later) else work.messages
            pace.consumed += len(messages)
            for message in messages:
                run.done(message.queue_offset)
        if run.made_room is not None and run.has_room(self._limits):
            run.made_room()

    def _returned(self, work: Work, outcome: Later) -> list[ReceivedMessage]:
        """Give back what was not consumed; what remains is done."""
        messages = work.messages
        if work.error is not None:
            log.error("the listener of %s failed with %s", self._handling.group, messages, exc_info=work.error)
        self._pace.failed += max(len(messages) - outcome.consumed, 0)
        if self._handling.returns is None:
            log.warning("%s were not consumed, and do not come again: %s", len(messages), messages)
            return messages
        self._handling.returns.start(work.run, messages[outcome.consumed :], outcome.delay_level)
        return messages[: outcome.consumed]

    def expire(self) -> None:
        """Send back what listeners keep for too long, where it can come again; call it now and then."""
        handling = self._handling
        latest = clock() - handling.timeout
        for work in self.runner.at_work:
            if work.began > latest or work.expired or work.run.dropped:
                continue
            late = "the listener of %s did not end within %s s, %s %s"
            if handling.returns is not None:
                work.expired = True
                log.warning(late, handling.group, handling.timeout, "sending back", work.messages)
                self._paces[work.run.queue.topic].failed += len(work.messages)
                handling.returns.start(work.run, work.messages, FIRST_RETRY_LEVEL)
            elif work.overdue != work.began:
                work.overdue = work.began
                log.warning(late, handling.group, handling.timeout, "it is waited for with", work.messages)

    async def halt(self, timeout: float) -> bool:
        """Begin nothing more, wait for the listeners and for what goes back; False when listeners still run."""
        self._ended = True
        quiet = await self.runner.halt(timeout)
        if self._handling.returns is not None:
            await self._handling.returns.finish(timeout)
        return quiet
