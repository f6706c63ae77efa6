"""The port to a coordination service, in four verbs: read, change if unchanged, hold, watch.

Owns what each verb promises; one suite of tests holds every implementation to it. Must not know which service is behind
it. Invariants: a read shows every change that was answered before it began; a change is made whole or not at all, and
only if each key that it names is as its caller saw it; a key that was put with a hold goes when the hold has ended or
was not renewed for its time. Nothing here waits longer than the deadline of its call, but ``watch``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple, Protocol

ABSENT = 0
"""The revision of a key that is not there."""


class Unavailable(Exception):
    """The service did not do what was asked; the text says whom was asked, and what happened."""


class OutcomeUnknown(Unavailable):
    """A change was sent, and no answer came: it may have been made, now or later. Read before the next step."""


class HoldEnded(Exception):
    """The hold is over: it was not renewed in time, or was released. Its keys are gone or go now."""


class Entry(NamedTuple):
    """A key's value; every change of the key raises its revision."""

    value: bytes
    revision: int


class Put(NamedTuple):
    """A key's new value; with a hold it goes when that ends."""

    key: str
    value: bytes
    hold: int | None = None


class Coordinator(Protocol):
    """A coordination service."""

    async def read(self, key: str) -> Entry | None:
        """A key as it is now; None where it is absent. Raises Unavailable."""

    async def read_all(self, prefix: str) -> dict[str, Entry]:
        """All keys that begin so, as they were at one moment, in their order. Raises Unavailable."""

    async def change(self, seen: Mapping[str, int], puts: Sequence[Put], deletes: Sequence[str] = ()) -> int | None:
        """Make all of a change if each key in ``seen`` has this revision (``ABSENT``: is not there).

        The revision that the keys have now; None if nothing was done, since a key has changed. Raises HoldEnded for a
        put with a hold that is over, OutcomeUnknown, Unavailable.
        """

    async def hold(self, seconds: int) -> int:
        """Begin a hold, which ends ``seconds`` after it was renewed last, or a little later; its number.

        Raises Unavailable.
        """

    async def renew(self, hold: int) -> None:
        """Let a hold last for its time from now on. Raises HoldEnded, Unavailable."""

    async def release(self, hold: int) -> None:
        """End a hold and delete its keys; one that is over is no fault. Raises Unavailable."""

    def watch(self, prefix: str) -> AsyncIterator[None]:
        """A turn at first, and then whenever a key that begins so may have changed: read, and look. It never ends.

        Turns may come for nothing, and one stands for any number of changes. While the service is not there it waits
        until it is, and then gives a turn.
        """

    async def close(self) -> None:
        """Close the connections."""
