"""The fast path of commits: messages are written one by one, their op messages together at the end of a turn.

Owns the commit of a half message that is undecided, at the named offsets, and in memory. ``halves`` does every other
end of a transaction, after it has settled what is under way here. Knows no requests: a caller passes a callback.
Invariants: what is stored is, byte for byte, what ``halves`` would have stored, except for the order of the records of
a turn; a real message comes before its op message, and no callback is called before that one is in the log.
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
"""The most op messages that are written in one batch."""
_PLACES = 4096
_REAL_TOPIC = b"\x02%b\x01" % names.REAL_TOPIC.encode()
_AT_THE_END = re.compile(_REAL_TOPIC + b"[^\x01\x02]+\x02%b\x01[^\x01\x02]+" % names.REAL_QUEUE_ID.encode())


class Commits:
    """The commits of one broker in this turn of the loop."""

    def __init__(self, halves: Halves, store: Store) -> None:
        self._halves = halves
        self._store = store
        self._done: dict[int, Callable[[], None] | None] = {}
        self._places: Memo[bytes, tuple[str, int]] = Memo(_PLACES)
        halves.settle = self.settle

    def commit(self, offset: int, physical_offset: int, group: str, on_done: Callable[[], None] | None) -> bool:
        """Commit a half message of the producer group ``group``, by its offsets in the half queue and in the log.

        ``on_done`` is called as soon as the op message is stored, too. Returns False, with nothing done, for a commit
        that ``Halves.decide`` has to do.
        """
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
        self._done[offset] = on_done
        return True

    def settle(self) -> None:
        """Write the op messages of this turn's commits, then call back."""
        if not self._done:
            return
        done, self._done = self._done, {}
        offsets = list(done)
        for first in range(0, len(offsets), TOGETHER):
            self._write_ops(offsets[first : first + TOGETHER])
        for on_done in done.values():
            if on_done is not None:
                on_done()

    def _write_ops(self, offsets: list[int]) -> None:
        put = self._store.appender.put_batch(
            OP, 0, encode_batch([(0, b"%d" % offset, OP_PROPERTIES) for offset in offsets]), **self._halves.op_fields()
        )
        if put.status:  # there may be room for some of them
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
        """The real topic and queue id in a half message's properties; None where the message may have to wait."""
        if b"TIMER_D" in text:
            return None
        end = text[text.rfind(_REAL_TOPIC) :]  # this broker writes both at the end
        found = self._places.get(end)
        if found is None and _AT_THE_END.fullmatch(end):
            values = decode_properties(end)
            name, number = values[names.REAL_TOPIC], values[names.REAL_QUEUE_ID]
            if names.topic_fault(name) is not None or not number.isdecimal() or len(number) > 9:
                return None
            found = self._places.remember(end, (name, int(number)))
        return found
