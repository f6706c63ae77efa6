"""The committed offsets of consumer groups, and ``consumerOffset.json`` (ConsumerOffsetManager in 4.9.7).

Owns the table. Must not know messages, requests or who is online. An offset counts the messages of a queue; -1 means
none. Commits reach the disk with the next save (every 5 s, and at the stop).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from eruca.broker.state.parts import Part, chosen, gone, unheard
from eruca.broker.state.state_file import SavedState, Saver
from eruca.protocol import names
from eruca.protocol.bodies import ConsumerOffsets
from eruca.protocol.fastjson import Style

MOST_OFFSETS: Final = 1_000_000
"""Committed offsets of all groups and queues. Whoever commits chooses their names, and they are kept."""
_SEPARATOR: Final = "@"


class Offsets(SavedState):
    """Committed offsets by group, topic and queue; ``path`` is ``…/config/consumerOffset.json``."""

    def __init__(self, path: Path) -> None:
        self._table: dict[str, dict[int, int]] = {}
        self._topics: dict[str, set[str]] = {}
        """The topics of each group, and the groups of each topic: a search of the table would take too long."""
        self._groups: dict[str, set[str]] = {}
        self.on_change: Callable[[str], object] = unheard
        self.count = 0
        """The offsets that there are."""
        self.most = MOST_OFFSETS
        """Those that there may be."""
        self._saver = Saver(path, self.encode)

    # ------------------------------------------------------------------ reading

    @property
    def table(self) -> Mapping[str, Mapping[int, int]]:
        """All offsets by ``topic@group`` and queue id."""
        return self._table

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The committed offset, -1 if there is none."""
        queues = self._table.get(f"{topic}@{group}")
        return -1 if queues is None else queues.get(queue_id, -1)

    def of(self, group: str, topic: str) -> dict[int, int]:
        """The committed offsets of a group in a topic by queue id; a copy, empty if there are none."""
        return dict(self._table.get(f"{topic}@{group}", {}))

    def topics_of(self, group: str) -> set[str]:
        """The topics in which a group has committed offsets."""
        return set(self._topics.get(group, ()))

    def groups_of(self, topic: str) -> set[str]:
        """The groups that have committed offsets in a topic."""
        return set(self._groups.get(topic, ()))

    def least(self, topic: str, without: Collection[str] = ()) -> dict[int, int]:
        """The least committed offset of each queue over all groups but those in ``without``."""
        least: dict[int, int] = {}
        for group in self._groups.get(topic, ()):
            if group not in without:
                for queue_id, offset in self._table[f"{topic}@{group}"].items():
                    least[queue_id] = min(offset, least.get(queue_id, offset))
        return least

    def encode(self) -> bytes:
        """The whole table as ``consumerOffset.json`` holds it."""
        return self.body().encode(Style.PRETTY)

    def body(self) -> ConsumerOffsets:
        """The whole table, which changes with it: the answer to 43."""
        return ConsumerOffsets(offset_table=self._table)

    # ------------------------------------------------------------------ changing

    def load(self) -> None:
        """Read ``consumerOffset.json``. Raises StateUnreadable."""
        stored = self._stored(ConsumerOffsets.decode, "offsetTable")
        if stored is not None:
            for key, queues in stored.offset_table.items():
                self._put(_SEPARATOR.join(_split(key)), queues)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commit an offset, which may be lower than before."""
        key = f"{topic}@{group}"
        queues = self._table.get(key)
        if queues is None:
            queues = self._put(key, {})
        if queue_id not in queues:
            self.count += 1
        queues[queue_id] = offset
        self._change(key)

    def take_over(self, other: ConsumerOffsets) -> None:
        """Add the offsets of a master's table; groups and topics that it does not have stay."""
        for key, queues in other.offset_table.items():
            topic, group = _split(key)
            legal = names.topic_fault(topic) is None and names.group_fault(group) is None
            if legal and self._table.get(key) != queues:
                self._put(key, queues)
                self._saver.changed()

    def fit(self, end_of: Callable[[str, int], int], without: str, topic: str | None = None) -> int:
        """Lower each offset to the end of its queue, but those of the group ``without``; how many were beyond it.

        With ``topic`` only those in it.
        """
        lowered = 0
        keys = self._table if topic is None else [f"{topic}@{group}" for group in self._groups.get(topic, ())]
        for key in keys:
            name, group = _split(key)
            if group == without:
                continue
            queues = self._table[key]
            for queue_id, offset in queues.items():
                if offset > (end := end_of(name, queue_id)):
                    queues[queue_id] = end
                    lowered += 1
                    self._change(key)
        return lowered

    def part(self, keys: Iterable[str] | None) -> Part:
        """As in ``parts.Table``; the keys are ``topic@group``."""
        entries = ConsumerOffsets(offset_table=chosen(keys, self._table)).encode()
        return Part(keys is None, entries, gone(keys, self._table))

    def take_part(self, part: Part) -> None:
        """As in ``parts.Table``."""
        other = ConsumerOffsets.decode(part.entries).offset_table
        there = part.gone if not part.whole else [key for key in self._table if key not in other]
        self._remove([key for key in there if key in self._table])
        for key, queues in other.items():
            self._put(key, queues)
        self._saver.changed()

    def clone(self, source: str, target: str, topic: str) -> None:
        """Copy the offsets of group ``source`` in a topic to group ``target``."""
        offsets = self._table.get(f"{topic}@{source}")
        if offsets is not None:
            key = f"{topic}@{target}"
            self._put(key, dict(offsets))
            self._change(key)

    def remove_group(self, group: str) -> None:
        """Delete all offsets of a group."""
        self._remove([f"{topic}@{group}" for topic in self.topics_of(group)])

    def remove_topic(self, topic: str) -> None:
        """Delete all offsets in a topic."""
        self._remove([f"{topic}@{group}" for group in self.groups_of(topic)])

    def remove(self, group: str, topic: str) -> None:
        """Delete the offsets of a group in a topic."""
        self._remove([key for key in (f"{topic}@{group}",) if key in self._table])

    def has_room(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether an offset may be committed: that of another queue may not if there are as many as may be."""
        return self.count < self.most or self.query(group, topic, queue_id) >= 0

    def _put(self, key: str, queues: dict[int, int]) -> dict[int, int]:
        self.count += len(queues) - len(self._table.get(key, ()))
        self._table[key] = queues
        topic, group = _split(key)
        self._topics.setdefault(group, set()).add(topic)
        self._groups.setdefault(topic, set()).add(group)
        return queues

    def _remove(self, keys: list[str]) -> None:
        for key in keys:
            self.count -= len(self._table.pop(key))
            topic, group = _split(key)
            _discard(self._topics, group, topic)
            _discard(self._groups, topic, group)
            self._change(key)

    def _change(self, key: str) -> None:
        self._saver.changed()
        self.on_change(key)


def _split(key: str) -> tuple[str, str]:
    topic, _, group = key.partition(_SEPARATOR)
    return topic, group


def _discard(sets: dict[str, set[str]], key: str, member: str) -> None:
    sets[key].discard(member)
    if not sets[key]:
        del sets[key]
