"""What the consumer of the demonstration reports, held against what was sent.

Pure: lines of text in, counts out. A report is ``queue offset digest file``, one a consumed message.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple


class Place(NamedTuple):
    """Where a message is: its queue and its offset in it."""

    queue: int
    offset: int


class Sent(NamedTuple):
    """What a message should be when it arrives."""

    digest: str
    file: str


def digest(body: bytes) -> str:
    """A short fingerprint of a body."""
    return hashlib.blake2b(body, digest_size=12).hexdigest()


def report(place: Place, body: bytes, file: str) -> str:
    """The line that the consumer prints for a message."""
    return f"{place.queue} {place.offset} {digest(body)} {file}"


class Tally:
    """Counts consumed messages and keeps those that differ from what was sent."""

    def __init__(self) -> None:
        self.expected: dict[Place, Sent] = {}
        self.times: Counter[Place] = Counter()
        self.total = 0
        self.wrong: list[str] = []

    def sent(self, place: Place, body: bytes, file: str) -> None:
        """Note a message that was acknowledged."""
        self.expected[place] = Sent(digest(body), file)

    def consumed(self, line: str) -> None:
        """Note a report of the consumer."""
        queue, offset, seen, file = line.split(" ", 3)
        place = Place(int(queue), int(offset))
        self.total += 1
        self.times[place] += 1
        if self.expected.get(place) != Sent(seen, file):
            self.wrong.append(line)

    def from_offsets(self, starts: Mapping[int, int]) -> list[Place]:
        """The messages that a rewind to these offsets (by queue) brings again."""
        return [place for place in self.expected if place.offset >= starts[place.queue]]

    def differences(self, times: Mapping[Place, int]) -> list[str]:
        """One sentence for each message that did not come exactly as often as it should have."""
        found = [f"the message {line!r} is not what was sent" for line in self.wrong]
        for place in self.expected.keys() | self.times.keys():
            if self.times[place] != times.get(place, 0):
                found.append(
                    f"the message at {place} came {self.times[place]} times, {times.get(place, 0)} were expected"
                )
        return found
