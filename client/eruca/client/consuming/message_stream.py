"""Messages for ``async for``: the listener is the user's own loop.

Owns the messages that wait to be asked for, and their settling: by asking for the next one, by ``ack`` or by ``later``.
Invariant: a message is settled at most once, and one that is never settled comes again, here or at another member.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Any, Self

from eruca.client.consuming.listeners import Lot, Work, clock
from eruca.client.consuming.runners import Runner, awaiting, run_listener
from eruca.client.errors import StateError
from eruca.client.hooks import ConsumeContext, ConsumeHooks
from eruca.client.message import ReceivedMessage
from eruca.client.outcomes import Later, Listener

Settle = Callable[[Work], float | None]
"""Ends a message's work; the time by ``clock`` when it did, None when another thread will."""


class Delivery(ReceivedMessage):
    """A received message that is settled by hand: consumed with ``ack``, or to come again with ``later``."""

    __slots__ = ("_finished", "_work")
    _finished: Settle
    _work: Work | None

    def hand_out(self, work: Work, finished: Settle) -> None:
        """From here on it can be settled: ``finished`` is called with ``work``."""
        self._work = work
        self._finished = finished

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles cannot be settled."""
        return ReceivedMessage, (self.record, self.queue)

    @property
    def settled(self) -> bool:
        """Whether ``ack`` or ``later`` was called."""
        return self._work is None

    def ack(self) -> None:
        """It is consumed. Calling it again does no harm."""
        self._settle(None)

    def later(self, delay_level: int = 0) -> None:
        """It shall come again; ``delay_level`` as in ``Later``."""
        self._settle(Later(delay_level=delay_level))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Consumed when the block ends well; to come again when it raises, unless it was settled inside."""
        if kind is None:
            self.ack()
        else:
            self.later()

    def settle_by(self, call: Callable[[Settle, Work], object]) -> None:
        """Let ``call(function, work)`` settle it: for a thread that is not the event loop's."""
        finished = self._finished

        def settle(work: Work) -> None:
            call(finished, work)

        self._finished = settle

    def _settle(self, outcome: Later | None) -> float | None:
        """Settle it unless that was done; the time by ``clock``, where it is known."""
        work, self._work = self._work, None
        if work is None:
            return None
        work.outcome = outcome
        return self._finished(work)


class MessageStream:
    """Keeps what was pulled until somebody asks for it; hooks see a message until it is settled."""

    def __init__(self, finished: Callable[[Work], None], hooks: ConsumeHooks | None = None) -> None:
        self._finished = finished
        self._settle = self._settled
        self._waiting: deque[Lot] = deque()
        self._asking: deque[asyncio.Future[None]] = deque()
        self._halted = False
        self._out: dict[Work, None] = {}
        """What was handed out and is not settled."""
        self._spare: Work | None = None
        """What was consumed in time, and may serve again."""
        self._hooks = hooks
        self._contexts: dict[Work, ConsumeContext] = {}

    @property
    def at_work(self) -> Sequence[Work]:
        """What was handed out and is not settled; nothing after the end, as it is to come again elsewhere."""
        return [] if self._halted else list(self._out)

    def _settled(self, work: Work) -> float:
        del self._out[work]
        now = clock()
        work.took = now - work.began
        if self._hooks is not None:
            context = self._contexts.pop(work)
            self._hooks.end(context, work.outcome, None, work.took)
        self._finished(work)
        if work.outcome is None and not work.expired:
            self._spare = work
        return now

    def give(self, lot: Lot) -> None:
        """More to hand out."""
        self._waiting.append(lot)
        self._wake(lot.left)

    def _wake(self, count: int) -> None:
        for _ in range(min(count, len(self._asking))):
            asking = self._asking.popleft()
            if asking.done():
                continue
            asking.set_result(None)

    def take(self, now: float | None = None) -> Delivery | None:
        """The next message that waits, if there is one; ``now`` is the time by ``clock``, where it is known."""
        waiting = self._waiting
        while waiting:
            lot = waiting[0]
            each: Any
            for each in lot.pieces:
                piece: Delivery = each
                work, self._spare = lot.work(self._spare), None
                work.piece = piece
                if not lot.run.dropped and (not work.claims or work.claim()):
                    self._out[work] = None
                    work.began = clock() if now is None else now
                    piece.hand_out(work, self._settle)
                    if self._hooks is not None:
                        self._contexts[work] = self._hooks.begin([piece], in_listener=False)
                    return piece
                self._finished(work)
            waiting.popleft()
        return None

    async def next(self) -> Delivery | None:
        """The next message, waited for; None when the consumer has stopped."""
        while not self._halted:
            delivery = self.take()
            if delivery is not None:
                return delivery
            asking = asyncio.get_running_loop().create_future()
            self._asking.append(asking)
            try:
                await asking
            except asyncio.CancelledError:
                if asking.done() and not asking.cancelled() and self._waiting:
                    self._wake(1)  # it was woken for a message that another one can have
                raise
        return None

    async def consume(self, work: Work) -> None:
        """There is no listener to run."""
        work.fail(StateError("This consumer has no listener: its messages are taken by `async for`."))

    async def halt(self, timeout: float) -> bool:
        """Hand out nothing more, and end all iterations."""
        self._halted = True
        self._waiting.clear()
        self._wake(len(self._asking))
        return True

    def hurry(self) -> None:
        """Nobody is waited for."""


def runner_maker(
    listener: Listener | None, *, concurrency: int, hooks: ConsumeHooks | None = None
) -> Callable[[Callable[[Work], None]], Runner]:
    """Given whom to call with finished work: what runs the listener, or hands messages out where there is none."""

    def make(finished: Callable[[Work], None]) -> Runner:
        if listener is None:
            return MessageStream(finished, hooks)
        chosen = listener if hooks is None else hooks.around(awaiting(listener), clock)
        return run_listener(chosen, concurrency=concurrency, finished=finished)

    return make


class Messages(AsyncIterator[Delivery]):
    """One iteration over the messages of a consumer; each task that iterates has its own."""

    def __init__(self, mailbox: MessageStream, auto_ack: bool) -> None:
        self._mailbox = mailbox
        self._auto_ack = auto_ack
        self._last: Delivery | None = None

    def __aiter__(self) -> Messages:
        return self

    async def __anext__(self) -> Delivery:
        last, self._last, mailbox = self._last, None, self._mailbox
        now = last._settle(None) if last is not None and self._auto_ack else None
        message = mailbox.take(now)
        if message is None:
            message = await mailbox.next()
            if message is None:
                raise StopAsyncIteration
        self._last = message
        return message
