"""The delivered offset of each delay level, and ``delayOffset.json`` (ScheduleMessageService in 4.9.7).

Owns the table: by level, the queue offset of the first message that is not delivered yet. Must not know messages or
time. The file may lag behind the table, and is never newer than the table that was staged last.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from eruca.broker.state.state_file import SavedState, Saver
from eruca.protocol import bodies
from eruca.protocol.fastjson import Style


class DelayOffsets(SavedState):
    """Delivered offsets by level; ``path`` is ``…/config/delayOffset.json``."""

    def __init__(self, path: Path) -> None:
        self.table: dict[int, int] = {}
        """The present offset of every level that ever had a message."""
        self._staged: dict[int, int] = {}
        self._borne_out: dict[int, int] = {}
        """What this log bears out."""
        self._saver = Saver(path, self._encode)

    def load(self) -> None:
        """Read ``delayOffset.json``. Raises StateUnreadable."""
        stored = self._stored(bodies.DelayOffsetSerializeWrapper.decode, "offsetTable")
        if stored is not None:
            self.found(stored.offset_table)
            self._staged = dict(self.table)

    def body(self) -> bytes:
        """The table as the answer to 45."""
        return _body(self.table).encode()

    def found(self, table: Mapping[int, int]) -> None:
        """Make ``table``, which this log bears out, the present one; the file changes only by ``stage``."""
        self.table, self._borne_out = dict(table), dict(table)

    def reach(self, least: Mapping[int, int]) -> None:
        """Raise what was loaded to ``least`` at each level: a copy of the file is older, and nobody set it back."""
        self.found({**self.table, **{level: max(least[level], self.table.get(level, 0)) for level in least}})

    def stage(self, table: Mapping[int, int]) -> None:
        """Make ``table``, which may be older than the present one, the content of the next save."""
        self._borne_out = dict(table)
        if table != self._staged:
            self._staged = dict(table)
            self._saver.changed()

    def take_over(self, other: bodies.DelayOffsetSerializeWrapper) -> None:
        """Replace the table by a master's; the file changes only by ``stage``."""
        self.table = other.offset_table

    def settle_back(self) -> None:
        """Let the table be what was found or staged last: what a master has delivered since may not be in this log."""
        self.table = dict(self._borne_out)

    def _encode(self) -> bytes:
        return _body(self._staged).encode(Style.PRETTY)


def _body(table: Mapping[int, int]) -> bodies.DelayOffsetSerializeWrapper:
    return bodies.DelayOffsetSerializeWrapper(offset_table=dict(sorted(table.items())))
