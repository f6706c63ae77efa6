"""Epochs of a log: in which epoch each part of it was written, and up to where two logs are the same.

Owns lists of epochs (EpochFileCache and EpochEntry in RocketMQ 5), as values. Invariants of each list: epochs and
starts rise strictly, so every entry but the last has a byte. A part of a log is the same in two logs when both have an
entry with its epoch and its start: in one epoch only one broker writes, and it never writes an offset twice.
"""

from __future__ import annotations

from typing import NamedTuple


class Epoch(NamedTuple):
    """From commit log offset ``start`` on, the log was written in ``epoch``."""

    epoch: int
    start: int


Epochs = tuple[Epoch, ...]


def begin(epochs: Epochs, epoch: int, start: int) -> Epochs:
    """The list with one more epoch, which begins at the log's end. An epoch without a byte is replaced by it.

    Raises:
        ValueError: the list has this epoch with another start, or a later one.
    """
    if epochs and epochs[-1] == (epoch, start):
        return epochs
    if epochs and (epochs[-1].epoch >= epoch or epochs[-1].start > start):
        raise ValueError(
            f"epoch {epoch} from {start} on cannot follow epoch {epochs[-1].epoch} from {epochs[-1].start} on"
        )
    kept = epochs[:-1] if epochs and epochs[-1].start == start else epochs
    return (*kept, Epoch(epoch, start))


FOUNDED = 1
"""The epoch of a group that was founded and has elected nobody yet: nobody writes in it."""


def adopted(end: int) -> Epochs:
    """The list of a log that was written before its group was founded, and ends at ``end``."""
    return (Epoch(FOUNDED, 0),) if end else ()


def cut(epochs: Epochs, end: int) -> Epochs:
    """The list of a log that is cut off at ``end``: entries without a byte before it go."""
    return tuple(entry for entry in epochs if entry.start < end)


def forget(epochs: Epochs, begin_offset: int) -> Epochs:
    """The list of a log whose oldest files were deleted: entries without a byte from ``begin_offset`` on go."""
    later = (entry.start for entry in epochs[1:])
    return tuple(
        entry for entry, stop in zip(epochs, (*later, None), strict=True) if stop is None or stop > begin_offset
    )


def at(epochs: Epochs, offset: int) -> Epoch | None:
    """The entry in whose part of the log ``offset`` lies; None before the first."""
    for entry in reversed(epochs):
        if entry.start <= offset:
            return entry
    return None


def cut_point(mine: Epochs, my_end: int, theirs: Epochs, their_end: int) -> int | None:
    """Up to where two logs are the same: the smaller end of the newest entry that both have.

    None when they have none: nothing says that they share a byte.
    """
    ends = {entry: stop for entry, stop in zip(theirs, _stops(theirs, their_end), strict=True)}
    for entry, stop in zip(reversed(mine), reversed(_stops(mine, my_end)), strict=True):
        if entry in ends:
            return min(stop, ends[entry])
    return None


def _stops(epochs: Epochs, end: int) -> tuple[int, ...]:
    """Where the part of each entry ends."""
    return (*(entry.start for entry in epochs[1:]), end) if epochs else ()
