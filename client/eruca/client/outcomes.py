"""Outcomes: what listeners and local transactions return, and what a send returns.

Pure. A wrong value raises where it is made. Facts: ConsumeConcurrentlyStatus, ConsumeOrderlyStatus,
LocalTransactionState, SendStatus and SendResult in 4.9.7.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from eruca.client.environment import known_options
from eruca.client.errors import UsageError
from eruca.protocol.message import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK
from eruca.protocol.queues import MessageQueue

MAX_DELAY_LEVEL: Final = 18
"""The highest of RocketMQ's delay levels."""
LONGEST_SUSPENSION: Final = 30.0
"""Seconds for which an orderly consumer suspends a queue at most (suspendCurrentQueueTimeMillis)."""


@known_options
@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """Returned by a listener: the messages are retried.

    Args:
        delay_level: 1 to 18 for a fixed delay; 0 for the consumer's ``retry``, or one that grows with each retry; -1
            for the dead letters at once (see Reject).
        seconds: in place of it any time until the retry; a broker that knows levels only takes the nearest one.
        consumed: the first N messages of a list are consumed nevertheless.
        cause: the error that led to it, which a dead letter then names.

    Raises UsageError.
    """

    delay_level: int = 0
    consumed: int = 0
    seconds: float | None = None
    cause: BaseException | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        _check_cause(self)
        if not isinstance(self.delay_level, int) or not -1 <= self.delay_level <= MAX_DELAY_LEVEL:
            raise UsageError(
                f"Later(delay_level={self.delay_level!r}): a whole number from -1 to {MAX_DELAY_LEVEL} is expected."
            )
        if not isinstance(self.consumed, int) or self.consumed < 0:
            raise UsageError(f"Later(consumed={self.consumed!r}): a whole number from 0 on is expected.")
        if self.seconds is not None:
            if not _is_seconds(self.seconds):
                raise UsageError(f"Later(seconds={self.seconds!r}): 0 or more seconds are expected.")
            if self.delay_level:
                raise UsageError("Later takes delay_level or seconds, not both.")


@known_options
@dataclass(frozen=True, slots=True)
class Reject:
    """Returned by a listener: the messages become dead letters at once, without further retries.

    Args:
        reason: a text for the log and for the property DEAD_LETTER_TEXT of the dead letter.
        consumed: the first N messages of a list are consumed nevertheless.
        cause: the error that led to it, which the dead letter then names; ``reason`` is in place of its text.

    Raises UsageError.
    """

    reason: str | None = None
    consumed: int = field(default=0, kw_only=True)
    cause: BaseException | None = field(default=None, kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        _check_cause(self)
        if self.reason is not None and not isinstance(self.reason, str):
            raise UsageError(f"Reject({self.reason!r}): a text is expected.")
        if not isinstance(self.consumed, int) or self.consumed < 0:
            raise UsageError(f"Reject(consumed={self.consumed!r}): a whole number from 0 on is expected.")


@known_options
@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The times of a consumer's retries: ``first`` seconds, each further time ``factor`` times the one before.

    Args:
        first: seconds until the first retry.
        factor: 1 or more; 1 is a fixed time.
        most: seconds that none exceeds.

    Raises UsageError.
    """

    first: float = 1.0
    factor: float = 2.0
    most: float = 300.0

    def __post_init__(self) -> None:
        for name in ("first", "most"):
            if not _is_seconds(getattr(self, name)):
                raise UsageError(f"Backoff({name}={getattr(self, name)!r}): 0 or more seconds are expected.")
        if not _is_seconds(self.factor) or self.factor < 1:
            raise UsageError(f"Backoff(factor={self.factor!r}): a number from 1 on is expected.")
        if self.most < self.first:
            raise UsageError(f"Backoff(first={self.first!r}, most={self.most!r}): most is to be first at least.")

    def seconds(self, times: int) -> float:
        """Until the next retry of a message that was retried ``times`` before."""
        try:
            return min(self.first * self.factor**times, self.most)
        except OverflowError:
            return self.most


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")


@known_options
@dataclass(frozen=True, slots=True)
class Suspend:
    """Returned by an orderly listener: the messages are retried before all others of their queue.

    Args:
        seconds: until the retry, up to 30, and 0.01 at least; None for the suspend_time of the consumer.
        cause: the error that led to it, which a dead letter then names.

    Raises UsageError.
    """

    seconds: float | None = None
    cause: BaseException | None = field(default=None, kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        _check_cause(self)
        seconds = self.seconds
        if seconds is not None and not (_is_seconds(seconds) and seconds <= LONGEST_SUSPENSION):
            raise UsageError(f"Suspend({seconds!r}): a number of seconds from 0 to {LONGEST_SUSPENSION:g} is expected.")


def _check_cause(outcome: Later | Reject | Suspend) -> None:
    cause = outcome.cause
    if cause is not None and not isinstance(cause, BaseException):
        raise UsageError(
            f"cause of {type(outcome).__name__} is of type {type(cause).__name__}: the error itself is expected."
        )


class Decision(enum.Enum):
    """Returned by an orderly listener with ``auto_commit=False``."""

    COMMIT = "commit"
    """All messages of this queue up to now are consumed."""
    ROLLBACK = "rollback"
    """All messages since the last commit are retried."""


Outcome = None | Later | Reject | Suspend | Decision
Listener = Callable[[Any], Outcome | Awaitable[Outcome]]
"""Takes one ReceivedMessage (or, with ``batch``, a list). Returning None consumes, raising is as returning Later, or
Suspend of an orderly consumer."""


class TransactionState(enum.Enum):
    """The state of a local transaction; the values are those of the wire."""

    COMMIT = TRANSACTION_COMMIT
    """Consumers get the message."""
    ROLLBACK = TRANSACTION_ROLLBACK
    """Nobody gets it."""
    UNKNOWN = TRANSACTION_NONE
    """Not decided yet: the broker asks later."""


class SendStatus(enum.Enum):
    """How a message was stored. With every status it is stored."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    """The master stored it, but not on its disk in time (SYNC_FLUSH)."""
    SLAVE_NOT_AVAILABLE = 11
    """The master stored it, but has no slave (SYNC_MASTER)."""
    FLUSH_SLAVE_TIMEOUT = 12
    """The master stored it, but its slave not in time (SYNC_MASTER)."""


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message was stored.

    ``message_id`` is the id in its properties (UNIQ_KEY), ``offset_message_id`` names its place in the broker's log.
    A batch has as many as messages: ``message_ids`` and ``offset_message_ids`` are lists, while the two texts join them
    by commas, as RocketMQ does; ``offset`` is that of the first message.
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    offset: int
    transaction_id: str | None = None

    @property
    def message_ids(self) -> list[str]:
        """The id of each message, in their order: one, or those of a batch."""
        return self.message_id.split(",")

    @property
    def offset_message_ids(self) -> list[str]:
        """The broker's id of each message, in their order."""
        return self.offset_message_id.split(",")
