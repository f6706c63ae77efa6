"""Parts of the broker's tables: the form in which one broker sends another what has changed in a table.

Owns the form of a part, and what a table offers that is kept equal on several brokers. A key names one entry of a table
(a topic, a group, the offsets of a group in a topic); a part has the present values of some keys. Must not know when
parts are made, nor for whom. Invariant: a table that takes the part of all its keys is equal to the one that gave it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Protocol, TypeVar

import msgspec

V = TypeVar("V")


class Part(msgspec.Struct, array_like=True, frozen=True):
    """Some entries of a table, or all of it."""

    whole: bool
    """Whether entries that are not here are to go."""
    entries: bytes
    """In the form of the table's file."""
    gone: list[str]
    """Keys that are not in the table any more."""


class Table(Protocol):
    """A table of which parts can be made."""

    on_change: Callable[[str], object]
    """Called with the key of each entry that this broker has changed."""

    def part(self, keys: Iterable[str] | None) -> Part:
        """The present entries of these keys; None for all."""

    def take_part(self, part: Part) -> None:
        """Be equal to the table that gave the part, as far as the part goes. Raises ProtocolError."""

    async def saved(self) -> None:
        """Wait until every change so far is on the disk, where the table has a file. Raises OSError."""


def unheard(key: str) -> None:
    """What ``on_change`` is where nobody asks for changes."""


def chosen(keys: Iterable[str] | None, table: Mapping[str, V]) -> dict[str, V]:
    """The entries of these keys that are there; None for all."""
    return dict(table) if keys is None else {key: table[key] for key in keys if key in table}


def gone(keys: Iterable[str] | None, table: Container[str]) -> list[str]:
    """The keys without an entry."""
    return [key for key in keys or () if key not in table]
