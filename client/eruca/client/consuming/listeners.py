"""What a listener gets and what it may say: pieces of work, lots of them, and outcomes.

Owns the outcomes and their checks: a wrong one is an error of the listener, raised where it is made or returned. What
runs listeners is in ``runners``.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from operator import length_hint
from typing import Any

from eruca.client.consuming.process_queue import ProcessQueue
from eruca.client.errors import UsageError
from eruca.client.message import ReceivedMessage
from eruca.client.outcomes import Decision, Later, Outcome

clock = time.monotonic
"""Seconds that never go back, asked anew each time: the time of an event loop may be that of its last round."""


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

    def __init__(self, run: ProcessQueue) -> None:
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

    def __init__(self, run: ProcessQueue, pieces: Sequence[Piece]) -> None:
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
