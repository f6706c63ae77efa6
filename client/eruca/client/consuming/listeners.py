"""What a listener gets and what it may say: pieces of work, lots of them, and outcomes.

Owns the outcomes and their checks: a wrong one is an error of the listener, raised where it is made or returned. What
runs listeners is in ``runners``.
"""

from __future__ import annotations

import enum
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import length_hint
from typing import Any

from eruca.client.consuming.inflight import InFlight
from eruca.client.errors import UsageError
from eruca.client.message import ReceivedMessage

clock = time.monotonic
"""Seconds that never go back, asked anew each time: the time of an event loop may be that of its last round."""


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


Piece = ReceivedMessage | list[ReceivedMessage]
"""What a listener gets at once."""


class Work:
    """A piece that a listener has, or had. One that was consumed in time may serve for the next piece of its lot."""

    __slots__ = ("began", "error", "expired", "outcome", "overdue", "piece", "run", "took")
    allowed: tuple[type, ...] = (Later,)
    """What a listener may return beside None."""
    claims = False
    """Whether ``claim`` asks for more than that the run goes on."""
    piece: Piece

    def __init__(self, run: InFlight) -> None:
        self.run = run
        self.outcome: Outcome = None
        self.error: BaseException | None = None
        self.began = 0.0
        """When the listener began, by ``clock``."""
        self.took = 0.0
        """Seconds that it took."""
        self.expired = False
        """It took too long, and its messages went back: what it says now does not count any more."""
        self.overdue = -1.0
        """When the listener began that was told to take too long, and is waited for all the same."""

    @property
    def messages(self) -> list[ReceivedMessage]:
        """The messages of the piece."""
        piece = self.piece
        return piece if isinstance(piece, list) else [piece]

    def claim(self) -> bool:
        """Whether the listener may begin; asked once, right before, perhaps in another thread."""
        return not self.run.dropped

    def accept(self, outcome: Any) -> None:
        """Keep what the listener returned."""
        if outcome is not None:
            if type(outcome) in self.allowed:
                self.outcome = outcome
            else:
                names = " or ".join(f"{kind.__name__}{'' if kind is Decision else '()'}" for kind in self.allowed)
                self.fail(UsageError(f"A listener returns None or {names}, not {type(outcome).__name__}."))

    def fail(self, error: BaseException) -> None:
        """Keep what the listener raised."""
        self.error = error
        self.outcome = Later()


class Lot:
    """Pieces of one run that wait for listeners: whoever is free takes the next of ``pieces``, in any thread."""

    __slots__ = ("pieces", "run")

    def __init__(self, run: InFlight, pieces: Sequence[Piece]) -> None:
        self.run = run
        self.pieces: Iterator[Piece] = iter(pieces)

    @property
    def left(self) -> int:
        """How many wait."""
        return length_hint(self.pieces)

    def close(self) -> None:
        """Nobody gets what is left."""
        deque(self.pieces, maxlen=0)

    def work(self, spare: Work | None = None) -> Work:
        """What a listener is at work on, or will be with the next piece; ``spare`` may serve again."""
        if spare is None:
            return Work(self.run)
        spare.run = self.run
        return spare
