"""Which half messages were given up and are so still, as two queues of the log say it.

Owns the table of them, and how it is read: the topic of half messages that were given up, and queue 1 of the op topic,
which names those that are given up no more. To read all takes long where there are many; it is done when it is needed
first, in steps between which the event loop serves others. Writes nothing. Invariants: until all was read, what was
given up and opened again meanwhile counts; a half message is opened only by what comes after it in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator

from eruca.broker.services.half_records import closed_by, given_up_as
from eruca.broker.services.lost_units import whole_queue
from eruca.broker.state.undecided import Identity
from eruca.broker.store import Store
from eruca.protocol import names

GIVEN_UP, OP = names.TRANS_CHECK_MAX_TIME_TOPIC, names.TRANS_OP_HALF_TOPIC
REOPENED = 1
"""The queue of the op topic that names, by their offsets among those that were given up, half messages that are so no
more: they were decided since, or are asked about again. RocketMQ reads queue 0 alone."""
AT_ONCE = 64
"""Records that are read before other tasks get their turn."""
Places = dict[Identity, tuple[int, int]]
"""The newest record of each in the topic of those that were given up: its offset there, and that in the log."""


async def in_steps(work: Iterable[None]) -> None:
    """Do work that stops after each record, and let other tasks have their turn."""
    for number, _ in enumerate(work, start=1):
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)


class GivenUp:
    """The half messages of one broker that were given up, by what their copies have in common."""

    def __init__(self, store: Store, doubtful: Collection[Identity] = ()) -> None:
        self.complete = False
        """Whether the table has all of them; before, only those that this broker gave up itself."""
        self.newest: Places = {}
        """Once it is complete: of the ``doubtful`` those that were ever given up, also those that are so no more."""
        self._store = store
        self._doubtful = doubtful
        self._offsets: dict[Identity, int] = {}
        self._opened: set[int] = set()
        self._reading = asyncio.Lock()

    def __contains__(self, identity: Identity) -> bool:
        return identity in self._offsets

    def offset(self, identity: Identity) -> int | None:
        """Where one stands in its topic, None for one that is not given up."""
        return self._offsets.get(identity)

    def add(self, identity: Identity, offset: int) -> None:
        """One was given up, and stands there."""
        self._offsets[identity] = offset

    def remove(self, identity: Identity) -> None:
        """One is given up no more, and the log says so."""
        offset = self._offsets.pop(identity, None)
        if offset is not None and not self.complete:
            self._opened.add(offset)

    async def read(self) -> None:
        """Find all of them, if that was not done yet; others get their turn meanwhile."""
        async with self._reading:
            if not self.complete:
                await in_steps(self._found())

    def _found(self) -> Iterator[None]:
        """Read one record after the other; the table is complete at the end."""
        found: Places = {}
        opened: dict[int, int] = {}
        for record in whole_queue(self._store, GIVEN_UP):
            if record is not None:
                found[given_up_as(record)] = record.queue_offset, record.physical_offset
            yield
        for record in whole_queue(self._store, OP, REOPENED):
            if record is not None:
                opened.update(dict.fromkeys(closed_by(record), record.physical_offset))
            yield
        for identity, (offset, place) in found.items():
            if offset not in self._opened and opened.get(offset, -1) < place:
                self._offsets.setdefault(identity, offset)
        self._opened.clear()
        self.newest = {identity: found[identity] for identity in self._doubtful if identity in found}
        self.complete = True
