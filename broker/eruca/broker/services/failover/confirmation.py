"""What a broker of a group that elects its master may show and answer: the log up to the confirm offset.

Owns the confirm offset as readers and waiting sends see it. The rules say where it is. Invariants: nothing behind it is
dispatched; after a start nothing is shown before all that was found in the log is confirmed, since its end may be cut
off; a send is answered with 0 only when its message lies before it, and with 14 when that did not come in time,
or this broker is no master any more: then the message may be stored, and the producer sends it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from eruca.broker.store import Store
from eruca.broker.store.results import Durability
from eruca.broker.store.waiters import OffsetWaiters


class Confirmation:
    """The confirm offset of one broker; ``patience`` is how long a send waits for it, in seconds."""

    def __init__(self, store: Store, patience: Callable[[], float]) -> None:
        self.acknowledged = 0
        self.doubtful = 0
        """Where the log ended at the start, until that is confirmed; 0 then."""
        self._leads = False
        self._store = store
        self._patience = patience
        self._waiters = OffsetWaiters(Durability.NOT_CONFIRMED)

    def begin(self) -> None:
        """The store is open: what it has was dispatched, and may not be confirmed."""
        self.doubtful = self._store.replicator.whole_offset

    def lead(self) -> None:
        """This broker is the master, and all of its log is the truth."""
        self._leads = True
        end = self._store.replicator.end_offset
        self.show(end, end)

    def resign(self) -> None:
        """It is no master any more: nothing is confirmed."""
        self._leads = False
        self._waiters.release_all(Durability.NOT_CONFIRMED)

    def show(self, confirmed: int, acknowledged: int) -> None:
        """The log is confirmed and acknowledged up to here."""
        self.acknowledged = acknowledged
        if self.doubtful and confirmed >= self.doubtful:
            self.doubtful = 0
        self._store.show(confirmed)
        if self._leads:
            self._waiters.release(acknowledged, Durability.DURABLE)

    def durable(self, end_offset: int) -> asyncio.Future[Durability] | None:
        """None if a message that ends there is confirmed; else a future of the outcome."""
        if self._leads and end_offset <= self.acknowledged:
            return None
        return self._waiters.add(end_offset, self._patience()) if self._leads else self._waiters.refused()
