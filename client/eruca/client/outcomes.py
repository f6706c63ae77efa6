"""Outcomes: what listeners and local transactions return, and what a send returns.

Pure. A wrong value raises where it is made. Facts: ConsumeConcurrentlyStatus, ConsumeOrderlyStatus,
LocalTransactionState, SendStatus and SendResult in 4.9.7.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from eruca.client.errors import UsageError
from eruca.protocol.message import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK
from eruca.protocol.queues import MessageQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """Returned by a listener: the messages are retried.

    Args:
        delay_level: 1 to 18 for a fixed delay; 0 for one that grows with each retry; -1 for the dead letters at once.
        consumed: the first N messages of a list are consumed nevertheless.

    Raises UsageError.
    """

    delay_level: int = 0
    consumed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("delay_level", -1), ("consumed", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise UsageError(f"Later({name}={value!r}): a whole number from {least} on is expected.")


@dataclass(frozen=True, slots=True)
class Suspend:
    """Returned by an orderly listener: the messages are retried before all others of their queue.

    Args:
        seconds: until the retry, from 0.01 to 30; None for the suspend_time of the consumer.

    Raises UsageError.
    """

    seconds: float | None = None

    def __post_init__(self) -> None:
        seconds = self.seconds
        if seconds is not None and not (isinstance(seconds, int | float) and seconds >= 0):
            raise UsageError(f"Suspend({seconds!r}): a number of seconds is expected.")


class Decision(enum.Enum):
    """Returned by an orderly listener with ``auto_commit=False``."""

    COMMIT = "commit"
    """All messages of this queue up to now are consumed."""
    ROLLBACK = "rollback"
    """All messages since the last commit are retried."""


Outcome = None | Later | Suspend | Decision
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

    ``message_id`` is the id in its properties (UNIQ_KEY), ``offset_message_id`` names its place in the broker's
    log; for a batch both are lists joined by commas, and ``offset`` is that of the first message.
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    offset: int
    transaction_id: str | None = None
