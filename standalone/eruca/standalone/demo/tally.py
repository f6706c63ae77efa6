"""Compares the reports of the demonstration's consumer with what was sent.

Pure: lines of text in, counts out. A report is ``queue offset digest file``, one for each consumed message.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple


class Place(NamedTuple):
    """The place of a message: queue and queue offset."""

    queue: int
    offset: int


class Sent(NamedTuple):
    """The expected content of a message."""

    digest: str
    file: str


def digest(body: bytes) -> str:
    """A short digest of a body."""
    return hashlib.blake2b(body, digest_size=12).hexdigest()


def report(place: Place, body: bytes, file: str) -> str:
    """The line that the consumer prints for a message."""
    return f"{place.queue} {place.offset} {digest(body)} {file}"


class Tally:
    """Counts consumed messages and collects those that differ from what was sent."""

    def __init__(self) -> None:
        self.expected: dict[Place, Sent] = {}
        self.times: Counter[Place] = Counter()
        self.total = 0
        self.wrong: list[str] = []

    def sent(self, place: Place, body: bytes, file: str) -> None:
        """Record an acknowledged message."""
        self.expected[place] = Sent(digest(body), file)

    def consumed(self, line: str) -> None:
        """Record a report of the consumer."""
        queue, offset, seen, file = line.split(" ", 3)
        place = Place(int(queue), int(offset))
        self.total += 1
        self.times[place] += 1
        if self.expected.get(place) != Sent(seen, file):
            self.wrong.append(line)

    def from_offsets(self, starts: Mapping[int, int]) -> list[Place]:
        """The messages that are consumed again after a rewind to these offsets (by queue)."""
        return [place for place in self.expected if place.offset >= starts[place.queue]]

    def differences(self, times: Mapping[Place, int]) -> list[str]:
        """One sentence for each message that was not consumed as often as expected."""
        found = [f"the message {line!r} differs from what was sent" for line in self.wrong]
        for place in self.expected.keys() | self.times.keys():
            if self.times[place] != times.get(place, 0):
                found.append(f"the message at {place} came {self.times[place]} times, expected {times.get(place, 0)}")
        return found
