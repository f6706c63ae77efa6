"""What becomes of pulled messages whose order does not matter: all go to the listener at once.

Owns the way from a pull to the listener and back: what was consumed is done for its run, what was not goes back to the
broker. Facts: ConsumeMessageConcurrentlyService in 4.9.7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eruca.client.inflight import InFlight, Limits
from eruca.client.listeners import Later, Runner, Work
from eruca.client.log import log
from eruca.client.message import ReceivedMessage
from eruca.client.report import Counts
from eruca.client.returns import Returns
from eruca.protocol.record import Record

MakeRunner = Callable[[Callable[[Work], None]], Runner]
"""Given whom to call with finished work: what runs the listener."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """How messages are handled: ``batch`` None for one by one, ``returns`` None where failures are only told."""

    group: str
    batch: int | None
    limits: Limits
    counts: Counts
    returns: Returns | None


class Concurrent:
    """Hands messages to the listener, however many it takes at once."""

    def __init__(self, handling: Handling, make_runner: MakeRunner) -> None:
        self._handling = handling
        self._batch = handling.batch
        self._limits = handling.limits
        self._counts = handling.counts
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
        outcome, messages = work.outcome, work.messages
        if isinstance(outcome, Later):
            if work.error is not None:
                log.error("the listener of %s failed with %s", self._handling.group, messages, exc_info=work.error)
            self._counts.failed += len(messages) - outcome.consumed
            if self._handling.returns is not None:
                self._handling.returns.start(run, messages[outcome.consumed :], outcome.delay_level)
                messages = messages[: outcome.consumed]
            else:
                log.warning("%s were not consumed, and do not come again: %s", len(messages), messages)
        self._counts.consumed += len(messages)
        for message in messages:
            run.done(message.record.queue_offset)
        if run.made_room is not None and run.has_room(self._limits):
            run.made_room()

    async def halt(self, timeout: float) -> bool:
        """Begin nothing more, wait for the listeners and for what goes back; False when listeners still run."""
        self._ended = True
        quiet = await self.runner.halt(timeout)
        if self._handling.returns is not None:
            await self._handling.returns.finish(timeout)
        return quiet
