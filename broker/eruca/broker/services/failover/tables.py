"""The tables that a group keeps equal on all its brokers: topics, groups, filters, offsets, locks.

Owns the numbered changes. A change at the master gets a number; to each replica go the present values of what has
changed since it got some last, in the stream of the log, before any message that is written later. So a message is
confirmed only where its topic is. Offsets and locks get a number when somebody waits for them; else they go along after
a moment. Must not know who is in the set: the rules say up to which number all of it have the changes. Invariants: a
replica begins with all of each table; what is answered is there before; operators' changes are on its disk before it
reports them; a change is confirmed in the epoch in which it was made, or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from eruca.broker.services.failover.ports import TableFrame
from eruca.broker.state.parts import Part, Table
from eruca.broker.store.results import Durability
from eruca.broker.store.waiters import OffsetWaiters
from eruca.protocol.errors import ProtocolError


class Pending:
    """What one replica has not got."""

    def __init__(self) -> None:
        self.number = 0
        """The number that was sent to it last; 0 before the first time."""
        self.on_disk = False
        self.keys: dict[str, dict[str, None]] = {}


class Tables:
    """The tables of one broker, by their names in the stream.

    Changes of ``prompt`` tables go out at once, and are always saved; ``gathered`` ones change often, or are large.
    ``patience`` is how long a change waits to be confirmed, in seconds.
    """

    def __init__(
        self, prompt: Mapping[str, Table], gathered: Mapping[str, Table], patience: Callable[[], float]
    ) -> None:
        self.on_number: Callable[[int], object] = bool
        """Called with the number of each change."""
        self.number = 0
        """Of the last change."""
        self.epoch = 0
        """In which this broker is the master of the group; 0 while it is not."""
        self._tables = {**prompt, **gathered}
        self._prompt = prompt
        self._patience = patience
        self._pending: list[Pending] = []
        self._unnumbered = False
        """Whether something has changed since the last number."""
        self._confirmed = 0
        self._waiters = OffsetWaiters(Durability.NOT_CONFIRMED)
        for name, table in self._tables.items():
            table.on_change = self._changed_in(name)

    # ------------------------------------------------------------------ at the master

    def lead(self, epoch: int) -> None:
        """These tables are the group's."""
        self.epoch, self.number, self._confirmed, self._unnumbered = epoch, 0, 1, False  # number 1 is the beginning
        self._count()

    def resign(self) -> None:
        """This broker is no master any more: nothing is confirmed."""
        self.epoch = 0
        self._waiters.release_all(Durability.NOT_CONFIRMED)

    def _changed_in(self, name: str) -> Callable[[str], None]:
        prompt = name in self._prompt

        def changed(key: str) -> None:
            if self.epoch:
                for pending in self._pending:
                    pending.keys.setdefault(name, {})[key] = None
                self._unnumbered = True
                if prompt:
                    self._count()

        return changed

    def _count(self) -> None:
        self._unnumbered = False
        self.number += 1
        self.on_number(self.number)

    def gather(self) -> None:
        """Let what has changed without a number go out."""
        if self.epoch and self._unnumbered:
            self._count()

    def show(self, number: int) -> None:
        """All of the set have the changes up to here."""
        self._confirmed = number
        self._waiters.release(number, Durability.DURABLE)

    def confirmed(self, epoch: int, *, on_disk: bool = False) -> asyncio.Future[Durability] | None:
        """None if all that was changed so far is on all of the set, else a future of that; ``on_disk`` of offsets: on
        the disks there.

        The changes were made in ``epoch``. If this broker does not lead in it any more, they may be lost.
        """
        if not epoch or epoch != self.epoch:
            return self._waiters.refused()
        if on_disk:
            for pending in self._pending:
                pending.on_disk = True
        if self._unnumbered or on_disk:
            self._count()
        return None if self.number <= self._confirmed else self._waiters.add(self.number, self._patience())

    # ------------------------------------------------------------------ to a replica

    def replica(self) -> Pending:
        """Begin to note what another replica has to get."""
        pending = Pending()
        self._pending.append(pending)
        return pending

    def forget(self, pending: Pending) -> None:
        """End that."""
        self._pending.remove(pending)

    def message(self, pending: Pending) -> bytes:
        """What that replica has to get now, as a message's body; it counts as sent."""
        if pending.number:
            parts = {name: self._tables[name].part(keys) for name, keys in pending.keys.items()}
        else:
            parts = {name: table.part(None) for name, table in self._tables.items()}
        on_disk = pending.on_disk or not pending.number
        pending.number, pending.on_disk, pending.keys = self.number, False, {}
        return msgspec.msgpack.encode((on_disk, parts))

    # ------------------------------------------------------------------ at a replica

    async def take(self, frame: TableFrame) -> None:
        """Be equal to the master's tables, which are on the disk here before this returns.

        Raises ProtocolError, OSError.
        """
        try:
            on_disk, parts = msgspec.msgpack.decode(frame.body, type=tuple[bool, dict[str, Part]])
        except msgspec.MsgspecError as fault:
            raise ProtocolError(f"no tables of a master: {fault}") from None
        for name, part in parts.items():
            if (table := self._tables.get(name)) is not None:
                table.take_part(part)
        for table in (self._tables if on_disk else self._prompt).values():
            await table.saved()
