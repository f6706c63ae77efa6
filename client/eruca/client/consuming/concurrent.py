"""What becomes of pulled messages whose order does not matter: all go to the listener at once.

Owns the way from a pull to the listener and back: what was consumed is done for its run, what was not goes back to the
broker, and so does what a listener keeps for too long. Facts: ConsumeMessageConcurrentlyService and
ProcessQueue.cleanExpiredMsg in 4.9.7, which looks only at the first messages of each queue and every 15 minutes; and
takes a second time back what a listener fails to consume after the time-out, which does not count here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eruca.client.consuming.inflight import InFlight, Limits
from eruca.client.consuming.listeners import Later, Runner, Work, clock
from eruca.client.consuming.pace import Pace, Paces
from eruca.client.consuming.returns import FIRST_RETRY_LEVEL, Returns
from eruca.client.log import log
from eruca.client.message import ReceivedMessage
from eruca.protocol.record import Record

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
    paces: Paces
    returns: Returns | None
    timeout: float


class Concurrent:
    """Hands messages to the listener, however many it takes at once."""

    def __init__(self, handling: Handling, make_runner: MakeRunner) -> None:
        self._handling = handling
        self._batch = handling.batch
        self._limits = handling.limits
        self._paces = handling.paces
        self._run: InFlight | None = None
        """The run whose messages were finished last, and the pace of its topic."""
        self._pace = Pace(0.0)
        self.runner = make_runner(self._finished)
        self._ended = False

    def deliver(self, run: InFlight, records: list[Record]) -> None:
        """Pulled messages go to the runner."""
        queue = run.queue
        if self._batch is None:
            works = [Work(run, [ReceivedMessage(record, queue)]) for record in records]
        else:
            size = self._batch
            works = [
                Work(run, [ReceivedMessage(record, queue) for record in records[start : start + size]])
                for start in range(0, len(records), size)
            ]
        self.runner.give(works)

    def work_of(self, run: InFlight, message: ReceivedMessage) -> Work:
        """A piece of work outside all queues."""
        return Work(run, [message])

    def again(self, work: Work) -> None:
        """Give a piece of work to the listener once more."""
        if not work.run.dropped and not self._ended:
            self.runner.give([work])

    def _finished(self, work: Work) -> None:
        """A listener ended: its messages are done, or go back."""
        run = work.run
        if run.dropped:
            return
        if work.expired:
            log.warning("the listener of %s ended %.0f s after it began, too late", self._handling.group, work.took)
            return
        outcome, messages = work.outcome, work.messages
        if run is not self._run:
            self._run, self._pace = run, self._paces[run.queue.topic]
        pace = self._pace
        pace.runs += 1
        pace.run_seconds += work.took
        run.consumed_at = work.began + work.took
        if isinstance(outcome, Later):
            if work.error is not None:
                log.error("the listener of %s failed with %s", self._handling.group, messages, exc_info=work.error)
            pace.failed += len(messages) - outcome.consumed
            if self._handling.returns is not None:
                self._handling.returns.start(run, messages[outcome.consumed :], outcome.delay_level)
                messages = messages[: outcome.consumed]
            else:
                log.warning("%s were not consumed, and do not come again: %s", len(messages), messages)
        pace.consumed += len(messages)
        for message in messages:
            run.done(message.record.queue_offset)
        if run.made_room is not None and run.has_room(self._limits):
            run.made_room()

    def expire(self) -> None:
        """Send back what listeners keep for too long; call it now and then."""
        latest = clock() - self._handling.timeout
        for work in self.runner.at_work:
            if work.began <= latest and not work.expired and not work.run.dropped:
                work.expired = True
                log.warning(
                    "the listener of %s did not end within %s s, sending back %s",
                    self._handling.group,
                    self._handling.timeout,
                    work.messages,
                )
                self._paces[work.run.queue.topic].failed += len(work.messages)
                if self._handling.returns is not None:
                    self._handling.returns.start(work.run, work.messages, FIRST_RETRY_LEVEL)

    async def halt(self, timeout: float) -> bool:
        """Begin nothing more, wait for the listeners and for what goes back; False when listeners still run."""
        self._ended = True
        quiet = await self.runner.halt(timeout)
        if self._handling.returns is not None:
            await self._handling.returns.finish(timeout)
        return quiet
