"""MessageStream: messages for ``async for``, where the user's own loop takes the place of a listener.

Owns the messages that wait to be taken, and their acknowledgement: by taking the next one, by ``ack`` or by ``later``.
Invariant: a message is acknowledged at most once; one that never is comes again, here or at another member.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from time import monotonic
from types import TracebackType
from typing import Any, Self

from eruca.client.consuming.consume_request import ConsumeRequest, PulledBatch
from eruca.client.consuming.ordered_queue import OrderlyRequest
from eruca.client.consuming.runners import Runner, resolving, run_listener
from eruca.client.consuming.unpacker import is_packed, unpack
from eruca.client.errors import StateError
from eruca.client.hooks import ConsumeContext, ConsumeHooks
from eruca.client.message import ReceivedMessage
from eruca.client.middleware import Middleware, around
from eruca.client.outcomes import Later, Listener, Reject
from eruca.protocol.message import COMPRESSED

Settle = Callable[[ConsumeRequest], float | None]
"""Finishes the request of a message; returns the monotonic time, or None if another thread finishes it."""


class Delivery(ReceivedMessage):
    """A received message that the user acknowledges: consumed by ``ack``, retried by ``later``, given up by
    ``reject``."""

    __slots__ = ("_finished", "_outcome", "_request")
    _finished: Settle
    _outcome: Later | Reject | None
    """How it was settled; not there before."""
    _request: ConsumeRequest | None

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles cannot be settled."""
        return ReceivedMessage, (self.record, self.queue)

    @property
    def settled(self) -> bool:
        """Whether ``ack``, ``later`` or ``reject`` was called."""
        return self._request is None

    def ack(self) -> None:
        """Mark the message as consumed. Further calls have no effect."""
        self._settle(None)

    def later(self, delay_level: int = 0, *, seconds: float | None = None) -> None:
        """Let the message be retried, with the arguments of ``Later``. Further calls have no effect.

        Raises StateError for a message that counts as consumed, or was rejected.
        """
        outcome = Later(delay_level=delay_level, seconds=seconds)
        self._check_unsettled(Later, "it cannot be retried")
        self._settle(outcome)

    def reject(self, reason: str | None = None) -> None:
        """Make the message a dead letter, as ``Reject``. Further calls have no effect.

        Raises StateError for a message that counts as consumed, or is retried.
        """
        outcome = Reject(reason)
        self._check_unsettled(Reject, "it cannot become a dead letter")
        self._settle(outcome)

    def _check_unsettled(self, kind: type[Later | Reject], impossible: str) -> None:
        if self._request is None and not isinstance(self._outcome, kind):
            how = {Later: "was left for later", Reject: "was rejected"}.get(
                type(self._outcome), "counts as consumed, by ack() or since the next one was taken"
            )
            raise StateError(f"The message {how}, so {impossible}: call one of ack(), later() and reject() in time.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Consumed if the block succeeds, retried if it raises, unless the message was settled inside."""
        if kind is None:
            self.ack()
        else:
            self._settle(Later(cause=error))

    def _settle(self, outcome: Later | Reject | None) -> float | None:
        """Settle the message unless it is settled; the monotonic time if known."""
        request, self._request = self._request, None
        if request is None:
            return None
        self._outcome = request.outcome = outcome
        return self._finished(request)


def hand_out(delivery: Delivery, request: ConsumeRequest, finished: Settle) -> None:
    """Make it possible to settle the message, which calls ``finished`` with ``request``."""
    delivery._request = request
    delivery._finished = finished


def settle_by(delivery: Delivery, call: Callable[[Settle, ConsumeRequest], object]) -> None:
    """Settle by ``call(function, request)``: for threads other than that of the event loop."""
    finished = delivery._finished

    def settle(request: ConsumeRequest) -> None:
        call(finished, request)

    delivery._finished = settle


class MessageStream:
    """Buffers pulled messages until they are taken; hooks see a message until it is settled."""

    def __init__(self, finished: Callable[[ConsumeRequest], None], hooks: ConsumeHooks | None = None) -> None:
        self._finished = finished
        self._settle = self._settled
        self._waiting: deque[PulledBatch] = deque()
        self._takers: deque[asyncio.Future[None]] = deque()
        self._ended = False
        self._taken: dict[ConsumeRequest, None] = {}
        """Requests of messages that were taken and are not settled."""
        self._spare: ConsumeRequest | None = None
        """A request that can be reused."""
        self._hooks = hooks
        self._contexts: dict[ConsumeRequest, ConsumeContext] = {}

    @property
    def running(self) -> Sequence[ConsumeRequest]:
        """Requests of messages that are not settled; none after the end, as these are retried elsewhere."""
        return [] if self._ended else list(self._taken)

    def _settled(self, request: ConsumeRequest) -> float:
        del self._taken[request]
        now = monotonic()
        request.took = now - request.began
        if self._hooks is not None:
            context = self._contexts.pop(request)
            self._hooks.end(context, request.outcome, None, request.took)
        self._finished(request)
        if request.outcome is None and not request.expired:
            self._spare = request
        return now

    def submit(self, batch: PulledBatch) -> None:
        """Add messages."""
        self._waiting.append(batch)
        self._wake(batch.left)

    def _wake(self, count: int) -> None:
        takers = self._takers
        while count and takers:
            taker = takers.popleft()
            if not taker.done():  # else its task was cancelled
                taker.set_result(None)
                count -= 1

    def take(self, now: float | None = None) -> Delivery | None:
        """The next message, or None if none waits; ``now`` is the monotonic time if known."""
        waiting = self._waiting
        while waiting:
            batch = waiting[0]
            each: Any
            for each in batch.arguments:
                delivery: Delivery = each
                request, self._spare = batch.request(self._spare), None
                request.argument = delivery
                if not batch.process_queue.dropped and (not request.claims or request.claim()):
                    self._taken[request] = None
                    request.began = monotonic() if now is None else now
                    hand_out(delivery, request, self._settle)
                    if self._hooks is not None:
                        self._contexts[request] = self._hooks.begin([delivery], in_listener=False)
                    return delivery
                self._finished(request)
            waiting.popleft()
        return None

    async def next(self) -> Delivery | None:
        """Wait for the next message; None when the consumer stopped."""
        while not self._ended:
            delivery = self.take()
            if delivery is not None:
                return delivery
            taker = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                if taker.done() and not taker.cancelled() and self._waiting:
                    self._wake(1)  # another task can take the message
                raise
        return None

    async def consume(self, request: ConsumeRequest) -> None:
        """Fails: there is no listener."""
        request.fail(StateError("This consumer has no listener: its messages are taken by `async for`."))

    async def shutdown(self, timeout: float) -> bool:
        """End all iterations."""
        self._ended = True
        self._waiting.clear()
        self._wake(len(self._takers))
        return True

    def stop_waiting(self) -> None:
        """Nothing to do: ``shutdown`` does not wait."""


def runner_factory(
    listener: Listener | None,
    group: str,
    *,
    concurrency: int,
    hooks: ConsumeHooks | None = None,
    middleware: Sequence[Middleware] = (),
    orderly: bool = False,
    name: str = "",
) -> Callable[[Callable[[ConsumeRequest], None]], Runner]:
    """A factory of the runner of a listener, or of a MessageStream if there is no listener.

    Hooks stand around the middleware, and that around the listener; ``name`` is what errors call the listener.
    """

    def make(finished: Callable[[ConsumeRequest], None]) -> Runner:
        if listener is None:
            return MessageStream(finished, hooks)
        chosen = listener
        if middleware:
            kind = OrderlyRequest if orderly else ConsumeRequest
            chosen = around(resolving(chosen), middleware, kind.checked, group)
        if hooks is not None:
            chosen = hooks.around(resolving(chosen), monotonic)
        return run_listener(chosen, concurrency=concurrency, finished=finished, name=name)

    return make


class Messages(AsyncIterator[Delivery]):
    """One iteration over the messages of a consumer; each task needs its own."""

    def __init__(self, stream: MessageStream, auto_ack: bool) -> None:
        self._stream = stream
        self._auto_ack = auto_ack
        self._last: Delivery | None = None
        self._unpacking: Delivery | None = None
        """A message that was taken, and is handed over when its large body is unpacked."""

    def __aiter__(self) -> Messages:
        return self

    async def __anext__(self) -> Delivery:
        last, self._last, stream = self._last, None, self._stream
        now = last._settle(None) if last is not None and self._auto_ack else None
        message = self._unpacking
        if message is None:
            message = stream.take(now)
            if message is None:
                message = await stream.next()
                if message is None:
                    raise StopAsyncIteration
        if message._head[3] & COMPRESSED and is_packed(message):
            self._unpacking = message
            await unpack((message,))
            self._unpacking = None
        self._last = message
        return message
