"""Commits of transactions that come together: messages one by one, their op messages in one go at the end of a turn.

Owns the short way of a commit whose half message is undecided, at the place that is named, and in memory; every other
end takes the way of ``halves``, before which what is under way here is settled. Knows no requests: whoever wants to be
told of the end gives a function. Invariants: what is stored is, byte for byte, what ``halves`` would have stored, but
for the order of the records of a turn; a real message comes before its op message, and nobody is told before that is
in the log.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from eruca.broker.services.halves import HALF, OP, OP_PROPERTIES, Halves
from eruca.broker.state.undecided import Half
from eruca.broker.store import Store
from eruca.protocol import names
from eruca.protocol.errors import ProtocolError
from eruca.protocol.memo import Memo
from eruca.protocol.message import decode_properties
from eruca.protocol.record import Record, decode_record, encode_batch

TOGETHER = 1024
"""How many op messages are written at once at most."""
_PLACES = 4096
_REAL_TOPIC = b"\x02%b\x01" % names.REAL_TOPIC.encode()
_AT_THE_END = re.compile(_REAL_TOPIC + b"[^\x01\x02]+\x02%b\x01[^\x01\x02]+" % names.REAL_QUEUE_ID.encode())


class Commits:
    """The commits of one broker that are under way in this turn of the loop."""

    def __init__(self, halves: Halves, store: Store) -> None:
        self._halves = halves
        self._store = store
        self._done: dict[int, Callable[[], None] | None] = {}
        self._places: Memo[bytes, tuple[str, int]] = Memo(_PLACES)
        halves.settle = self.settle

    def commit(self, offset: int, physical_offset: int, group: str, told: Callable[[], None] | None) -> bool:
        """Commit the half message at this offset of the half queue and this one of the log, sent by a member of
        ``group``; ``told`` is called once its op message is there, too. False for what has to take the other way."""
        half = self._halves.undecided.get(offset)
        if half is None or half.physical_offset != physical_offset or half.group != group or not group:
            return False
        record = self._read(half) if offset not in self._done else None
        place = None if record is None else self._place(record.properties_text)
        if record is None or place is None or self._halves.deliver(record, *place, record.properties_text).status:
            return False
        self._halves.decided(half.identity)
        if not self._done:
            asyncio.get_running_loop().call_soon(self.settle)
        self._done[offset] = told
        return True

    def settle(self) -> None:
        """Write the op messages of what was committed, and tell."""
        if not self._done:
            return
        done, self._done = self._done, {}
        offsets = list(done)
        for first in range(0, len(offsets), TOGETHER):
            self._write_ops(offsets[first : first + TOGETHER])
        for told in done.values():
            if told is not None:
                told()

    def _write_ops(self, offsets: list[int]) -> None:
        put = self._store.put_batch(
            OP, 0, encode_batch([(0, b"%d" % offset, OP_PROPERTIES) for offset in offsets]), **self._halves.op_fields()
        )
        if put.status:  # perhaps there is room for some of them
            for offset in offsets:
                self._halves.close(offset)
            return
        for number, offset in enumerate(offsets, put.queue_offset):
            self._halves.undecided.op(number, offset)

    def _read(self, half: Half) -> Record | None:
        data = self._store.hot(half.physical_offset, half.size)
        try:
            record = None if data is None else decode_record(data, check=True)
        except ProtocolError:
            return None
        return record if record is not None and record.topic == HALF else None

    def _place(self, text: bytes) -> tuple[str, int] | None:
        """Topic and queue id that a half message with these properties is meant for; None where it may have to wait."""
        if b"TIMER_D" in text:
            return None
        end = text[text.rfind(_REAL_TOPIC) :]  # as this broker writes them: both stand there, and nothing after them
        found = self._places.get(end)
        if found is None and _AT_THE_END.fullmatch(end):
            values = decode_properties(end)
            name, number = values[names.REAL_TOPIC], values[names.REAL_QUEUE_ID]
            if names.topic_fault(name) is not None or not number.isdecimal() or len(number) > 9:
                return None
            found = self._places.remember(end, (name, int(number)))
        return found
