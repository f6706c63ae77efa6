"""What producers sent and were promised, and the judge of what a broker still has of it.

Knows bodies and places, no sockets and no files. Every sentence of ``judge`` is one fault; none means that all is well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Told(NamedTuple):
    """A promise: this body is at this place, said at ``moment`` (seconds, monotonic)."""

    body: bytes
    moment: float


Found = Mapping[int, Sequence[tuple[int, bytes]]]
"""What was read: by queue, offset and body in the order of reading."""


@dataclass
class History:
    """All sends of one run to one topic. ``settled`` holds by queue how many messages were judged already."""

    sent: set[bytes] = field(default_factory=set)
    told: dict[tuple[int, int], Told] = field(default_factory=dict)
    settled: dict[int, int] = field(default_factory=dict)
    acknowledged: int = 0
    _numbers: dict[tuple[int, int], int] = field(default_factory=dict)

    def next_body(self, queue: int, producer: int, padding: int = 0) -> bytes:
        """The next message of a producer to a queue."""
        number = self._numbers[queue, producer] = self._numbers.get((queue, producer), -1) + 1
        body = b"%d/%d/%d/" % (queue, producer, number) + b"." * padding
        self.sent.add(body)
        return body

    def promise(self, queue: int, offset: int, body: bytes, moment: float = 0.0) -> None:
        """The broker acknowledged it."""
        self.acknowledged += 1
        self.told[queue, offset] = Told(body, moment)

    def settle(self, found: Found) -> None:
        """What was found is the truth from now on; promises about it need no second look."""
        for queue, messages in found.items():
            self.settled[queue] = max((offset + 1 for offset, _ in messages), default=self.settled.get(queue, 0))
        self.told.clear()

    def missing(self, found: Found) -> dict[tuple[int, int], Told]:
        """The promises that were not kept, by queue and offset."""
        there = {(queue, offset): body for queue, messages in found.items() for offset, body in messages}
        return {place: told for place, told in self.told.items() if there.get(place) != told.body}


def judge(history: History, found: Found, may_lose: Callable[[Told], bool] = lambda told: False) -> list[str]:
    """The faults of what was found: what was promised and is gone, strange, twice or out of order."""
    faults = [
        f"lost: {told.body[:40]!r} was acknowledged at offset {place[1]} of queue {place[0]}"
        for place, told in sorted(history.missing(found).items())
        if not may_lose(told)
    ]
    for queue, messages in found.items():
        faults += _order_faults(history, queue, messages)
    return faults


def _order_faults(history: History, queue: int, messages: Sequence[tuple[int, bytes]]) -> list[str]:
    faults = []
    newest: dict[bytes, int] = {}
    before = -1
    for offset, body in messages:
        if offset <= before:
            faults.append(f"offset {offset} comes after {before} in queue {queue}")
        before = offset
        if body not in history.sent:
            faults.append(f"strange: nobody sent {body[:40]!r}, found at offset {offset} of queue {queue}")
            continue
        home, producer, number = body.split(b"/")[:3]
        if int(home) != queue:
            faults.append(f"strange: {body[:40]!r} is in queue {queue}")
        if int(number) <= newest.get(producer, -1):
            faults.append(f"order: {body[:40]!r} comes after number {newest[producer]} of its producer")
        newest[producer] = int(number)
    return faults


def holes(history: History, found: Found) -> list[str]:
    """Lost messages of a queue behind which later acknowledged ones are still there: a loss that is no suffix."""
    kept = {queue: max((offset for offset, _ in messages), default=-1) for queue, messages in found.items()}
    return [
        f"hole: {told.body[:40]!r} is gone from offset {offset} of queue {queue}, and offset {kept[queue]} is there"
        for (queue, offset), told in sorted(history.missing(found).items())
        if offset < kept.get(queue, -1)
    ]
