"""Logs without epochs, as those of a pair that becomes a group: is one the beginning of the other?

Owns how that is found out: by the digest of the last MiB, at its offsets. A record names its offset, its time and its
host, so logs that are the same there are the same before it. Reads files: call it in a thread.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Protocol

import msgspec

MOST = 1 << 20
"""Bytes that are compared, at most."""


class Log(Protocol):
    """A log, as ``store.replicator`` has it."""

    @property
    def begin_offset(self) -> int:
        """Where its oldest byte is."""

    @property
    def safe_offset(self) -> int:
        """Up to where it can be relied on."""

    def take(self, offset: int, most: int, *, wait: bool = False) -> memoryview | bytes | None:
        """Bytes from there on. Raises NotInMemory."""


class Tail(msgspec.Struct, frozen=True):
    """The end of a log."""

    start: int
    end: int
    digest: str


def tail_of(log: Log, end: int) -> Tail | None:
    """The tail of a log that ends at ``end``; None where that is empty. Raises OSError."""
    start = max(log.begin_offset, end - MOST)
    digest = _digest(log, start, end)
    return Tail(start, end, digest) if digest is not None else None


def has(log: Log, tail: Tail) -> bool:
    """Whether this log has the same bytes at the same offsets. Raises OSError."""
    fits = 0 < tail.end - tail.start <= MOST and log.begin_offset <= tail.start and tail.end <= log.safe_offset
    return fits and _digest(log, tail.start, tail.end) == tail.digest


def _digest(log: Log, start: int, end: int) -> str | None:
    found, at = sha256(), start
    while at < end:
        part = log.take(at, end - at, wait=True)
        if not part:
            return None
        found.update(part)
        at += len(part)
    return found.hexdigest() if end > start else None
