"""The topics that a master has deleted, and where its log ended then; ``deletedTopics.json``.

Owns the table. The log keeps the messages of a deleted topic: when queues are built again from it, those come back, and
are to go before anybody is served, also where the topic was made again. In a group that elects its master all have the
table: a broker that follows keeps the queues of a topic that the master deletes, since the group may not agree to that;
when it is elected itself, they go. Must not know the queues. Invariants: a message behind an offset here is of a later
topic of that name; no offset is above the end of the log of the master that has the table. Apache's broker has no such
file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import nsmallest
from pathlib import Path

import msgspec

from eruca.broker.state.parts import Part, chosen, gone, unheard
from eruca.broker.state.state_file import SavedState, Saver
from eruca.protocol.errors import ProtocolError
from eruca.remoting.files import backup_of

MOST = 10_000
"""Topics that are noted although this broker's log has nothing from before their deletion any more: the logs of others
may reach further back."""
_KEY = "deletedTopics"


class Deletions(SavedState):
    """The deleted topics of one broker; ``path`` is ``…/config/deletedTopics.json``. Of those from before the beginning
    of its log no more are kept than make ``most`` together with the others."""

    def __init__(self, path: Path, most: int = MOST) -> None:
        self._most = most
        self.on_change: Callable[[str], object] = unheard
        self._ends: dict[str, int] = {}
        self._saver = Saver(path, lambda: _encode(self._ends))

    @property
    def ends(self) -> Mapping[str, int]:
        """The commit log offset before which all messages of a topic are of a deleted one, by its name."""
        return self._ends

    def load(self) -> None:
        """Read ``deletedTopics.json``. Raises StateUnreadable."""
        self._ends = self._stored(_decode, _KEY) or {}

    def forget(self) -> None:
        """Know of none from now on: another broker deletes topics, and the log follows that one's."""
        self._ends = {}
        self._saver.changed()

    def leave(self) -> None:
        """As ``forget``, at the start: have no file, either."""
        self._ends = {}
        for path in (self.path, backup_of(self.path)):
            path.unlink(missing_ok=True)

    def note(self, topic: str, least: int, end: int) -> None:
        """A topic is deleted; the log has the offsets from ``least`` to ``end``."""
        self._ends[topic] = end
        self._change(topic)
        if len(self._ends) > self._most:
            self._forget_oldest(least)

    def settle(self, least: int, end: int) -> None:
        """The log has the offsets from ``least`` to ``end``: what comes there later is of no deleted topic."""
        for topic in [topic for topic, offset in self._ends.items() if offset > end]:
            self._ends[topic] = end
            self._change(topic)
        self._forget_oldest(least)

    def _forget_oldest(self, least: int) -> None:
        surplus = len(self._ends) - self._most
        for topic in nsmallest(surplus, self._ends, key=lambda name: self._ends[name]):
            if self._ends[topic] <= least:
                del self._ends[topic]
                self._change(topic)

    def _change(self, topic: str) -> None:
        self._saver.changed()
        self.on_change(topic)

    # ------------------------------------------------------------------ parts

    def part(self, keys: Iterable[str] | None) -> Part:
        """As in ``parts.Table``; the keys are names of topics."""
        return Part(keys is None, _encode(chosen(keys, self._ends)), gone(keys, self._ends))

    def take_part(self, part: Part) -> None:
        """As in ``parts.Table``."""
        other = _decode(part.entries)
        if part.whole:
            self._ends = {}
        self._ends |= other
        for topic in part.gone:
            self._ends.pop(topic, None)
        self._saver.changed()


def _encode(ends: Mapping[str, int]) -> bytes:
    return msgspec.json.encode({_KEY: ends})


def _decode(data: bytes) -> dict[str, int]:
    try:
        return msgspec.json.decode(data, type=dict[str, dict[str, int]])[_KEY]
    except (msgspec.MsgspecError, KeyError) as fault:
        raise ProtocolError(f"no deleted topics: {fault}") from None
