"""Messages as FastStream's handlers see them, and how they end.

Owns the meaning of ack, nack and reject. ``Settlement`` belongs to one call of Eruca's listener and makes its outcome,
``PulledSettlement`` to what ``get_one`` and iteration return; the messages of a test have one that nobody asks.
Invariant: the first of ack, nack and reject counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Generic, TypeVar

from faststream import StreamMessage
from faststream.exceptions import FeatureNotSupportedException

from eruca.client import Later, LitePullConsumer, ReceivedMessage, Reject, Suspend

Raw = TypeVar("Raw")


class Settlement:
    """The outcome of one call of a listener. Until it is settled the messages are to be retried."""

    def __init__(self, raw: object = None, *, in_order: bool = False) -> None:
        self.raw = raw
        self._in_order = in_order
        self._settled = False
        self._outcome: Later | Suspend | Reject | None = self._retry(0, None)
        self.error: Exception | None = None
        """What the handler raised."""

    @property
    def outcome(self) -> Later | Suspend | Reject | None:
        """What the listener returns."""
        if self._outcome is None or self.error is None:
            return self._outcome
        return replace(self._outcome, cause=self.error)

    async def ack(self) -> None:
        """The messages are consumed."""
        self._settle(None)

    async def nack(self, delay_level: int, delay: float | None) -> None:
        """The messages are retried. Raises UsageError."""
        self._settle(self._retry(delay_level, delay))

    async def reject(self, reason: str | None) -> None:
        """The messages go to the dead letters. Raises UsageError."""
        self._settle(Reject(reason))

    def _retry(self, delay_level: int, delay: float | None) -> Later | Suspend:
        if self._in_order:
            return Suspend(delay)
        return Later(delay_level=delay_level, seconds=delay)

    def _settle(self, outcome: Later | Suspend | Reject | None) -> None:
        if not self._settled:
            self._settled, self._outcome = True, outcome


class PulledSettlement(Settlement):
    """The end of messages that were pulled: an ack stores the group's position behind them."""

    def __init__(self, raw: list[ReceivedMessage] | ReceivedMessage, reader: LitePullConsumer) -> None:
        super().__init__(raw)
        self._last = raw[-1] if isinstance(raw, list) else raw
        self._reader = reader

    async def ack(self) -> None:
        """The messages are consumed. Raises ClientError."""
        await self._reader.commit_sync({self._last.queue: self._last.queue_offset + 1})

    async def nack(self, delay_level: int, delay: float | None) -> None:
        """Fails. Raises FeatureNotSupportedException."""
        raise FeatureNotSupportedException(
            "A pulled message is not given back: without an ack the last one comes to the next program. For retries "
            "and dead letters give the subscriber a handler."
        )

    async def reject(self, reason: str | None) -> None:
        """Fails. Raises FeatureNotSupportedException."""
        await self.nack(0, None)


_current: ContextVar[Settlement | None] = ContextVar("current", default=None)


@contextmanager
def settling(settlement: Settlement) -> Iterator[None]:
    """Messages that are made here of ``settlement.raw`` settle it."""
    token = _current.set(settlement)
    try:
        yield
    finally:
        _current.reset(token)


def settlement_of(raw: object) -> Settlement:
    """The settlement of the call that got ``raw``; of none a new one."""
    settlement = _current.get()
    return settlement if settlement is not None and settlement.raw is raw else Settlement(raw)


class _Settled(StreamMessage[Raw], Generic[Raw]):
    """A message with ack, nack and reject."""

    def __init__(self, raw_message: Raw, body: Any, **fields: Any) -> None:
        super().__init__(raw_message, body, **fields)
        self._settlement = settlement_of(raw_message)

    async def ack(self) -> None:
        """Mark it as consumed."""
        await self._settlement.ack()
        await super().ack()

    async def nack(self, delay_level: int = 0, delay: float | None = None) -> None:
        """Let it be retried. Raises UsageError.

        Args:
            delay_level: 1 to 18 for a fixed delay; 0 for the subscriber's ``retry``, or one that grows with each retry.
                Not in order.
            delay: seconds in place of it; in order from 0.01 to 30, default the subscriber's suspend_time.
        """
        await self._settlement.nack(delay_level, delay)
        await super().nack()

    async def reject(self, reason: str | None = None) -> None:
        """Move it to the dead letters of the group; ``reason`` is a text for the log and for its properties."""
        await self._settlement.reject(reason)
        await super().reject()


class RocketMQMessage(_Settled[ReceivedMessage]):
    """A message; ``raw_message`` is Eruca's ReceivedMessage, ``headers`` are its user properties."""


class RocketMQBatchMessage(_Settled[list[ReceivedMessage]]):
    """The messages of a batch: ``body`` and ``batch_headers`` are lists, and ack, nack and reject mean all of them."""


def messages_of(message: StreamMessage[Any]) -> list[ReceivedMessage]:
    """Eruca's messages of one or of a batch."""
    raw = message.raw_message
    return raw if isinstance(raw, list) else [raw]
