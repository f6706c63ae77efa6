"""Bytes that all connections of a daemon hold together: over the budget, the connection that holds most is cut off.

Owns how much each connection was seen to hold. Must not know what the bytes are. Invariant: after ``hold`` the budget
is not exceeded. What a connection has let go without a word is noticed when it matters: before one is cut off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from eruca.remoting.log import log

_SLACK = 64
"""A part of the budget: so much is free after somebody was cut off, that the next look at all is not the next byte."""


class Holder(Protocol):
    """A connection."""

    remote: str

    @property
    def unfinished(self) -> int:
        """Bytes of it that were received and are no whole frame yet, or wait."""

    @property
    def buffered(self) -> int:
        """Bytes that its peer has not read yet."""

    def abort(self) -> None:
        """Close it at once."""


class ByteBudget:
    """At most ``most`` bytes in all; ``measure`` says what a connection holds now, ``event`` is logged with each end.

    ``cut_off`` counts the connections that went.
    """

    def __init__(self, most: int, measure: Callable[[Holder], int], event: str) -> None:
        self.most = most
        self.cut_off = 0
        self._measure = measure
        self._event = event
        self._held: dict[Holder, int] = {}
        self._total = 0

    def hold(self, holder: Holder, size: int) -> None:
        """A connection holds ``size`` bytes now."""
        held = self._held
        self._total += size - held.get(holder, 0)
        held[holder] = size
        if self._total > self.most:
            self._shed()

    def release(self, holder: Holder) -> None:
        """A connection holds nothing any more."""
        self._total -= self._held.pop(holder, 0)

    def total(self) -> int:
        """The bytes that all hold now."""
        self._held = {holder: size for holder in self._held if (size := self._measure(holder))}
        self._total = sum(self._held.values())
        return self._total

    @property
    def largest(self) -> int:
        """The most bytes that one connection holds now."""
        self.total()
        return max(self._held.values(), default=0)

    def _shed(self) -> None:
        if self.total() <= self.most - self.most // _SLACK:
            return
        for holder in sorted(self._held, key=self._held.__getitem__, reverse=True):
            size = self._held[holder]
            self.release(holder)
            self.cut_off += 1
            log.warning(self._event, remote=holder.remote, bytes=size, limit=self.most)
            holder.abort()
            if self._total <= self.most - self.most // _SLACK:
                return


class Budgets(msgspec.Struct, frozen=True):
    """The budgets of a daemon's connections."""

    unfinished: ByteBudget
    unsent: ByteBudget


def budgets(unfinished: int, unsent: int) -> Budgets:
    """Budgets of ``unfinished`` bytes that are no whole frames yet, and of ``unsent`` ones that no peer has read."""
    return Budgets(
        ByteBudget(unfinished, lambda holder: holder.unfinished, "unfinished_frame_dropped"),
        ByteBudget(unsent, lambda holder: holder.buffered, "unread_connection_closed"),
    )
