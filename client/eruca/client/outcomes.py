"""Outcomes: what a listener returns, and what hooks see of it.

Pure. A wrong value is an error of the listener and raises where it is made. Facts: ConsumeConcurrentlyStatus and
ConsumeOrderlyStatus in 4.9.7.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from eruca.client.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """What a listener returns for messages that shall come again.

    Args:
        delay_level: 1 to 18 for a certain delay; 0 for one that grows with each time; -1 for the dead letters at once.
        consumed: of a list of messages the first so many are consumed all the same.

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
    """What an orderly listener returns for messages that shall come again, and before all others of their queue.

    Args:
        seconds: until then, from 0.01 to 30; None for the suspend_time of the consumer.

    Raises UsageError.
    """

    seconds: float | None = None

    def __post_init__(self) -> None:
        seconds = self.seconds
        if seconds is not None and not (isinstance(seconds, int | float) and seconds >= 0):
            raise UsageError(f"Suspend({seconds!r}): a number of seconds is expected.")


class Decision(enum.Enum):
    """What an orderly listener returns when it commits by hand (``auto_commit=False``)."""

    COMMIT = "commit"
    """All that came of this queue counts as consumed."""
    ROLLBACK = "rollback"
    """All that came since the last commit comes again."""


Outcome = None | Later | Suspend | Decision
Listener = Callable[[Any], Outcome | Awaitable[Outcome]]
"""Takes one ReceivedMessage (or, with ``batch``, a list). Returning None consumes, raising is as returning Later, or
Suspend of an orderly consumer."""
