"""What the members of an ordered group did, and the judge of whether each queue kept its order.

Events in, sentences out. Each sentence of ``judge`` is one fault; none means that all is well. Moments are
seconds of one monotonic clock of the machine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.support.processes import whole_lines

NEVER = float("inf")


class Event(NamedTuple):
    """A listener began (or ended) with a message."""

    moment: float
    begun: bool
    member: str
    queue: int
    offset: int
    body: str


@dataclass
class Fates:
    """What was done to members: when they were killed, and from when to when they were stopped and went on."""

    killed: dict[str, float] = field(default_factory=dict)
    slept: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    def broke_off(self, member: str, since: float, until: float) -> float | None:
        """When a member was killed or put to sleep in that time, None when it was not."""
        moments = [start for start, _ in self.slept[member]] + [self.killed.get(member, NEVER)]
        return min((moment for moment in moments if since <= moment <= until), default=None)


class Piece(NamedTuple):
    """One message that a listener had, from when to when; one that never ended ends NEVER."""

    begin: float
    end: float
    member: str
    offset: int
    body: str


def events_in(book: Path) -> list[Event]:
    """All that listeners wrote down so far: a line each, of moment, begin or end, member, queue, offset, body."""
    events = []
    for line in whole_lines(book.read_text()).splitlines():
        moment, kind, member, queue, offset, body = line.split()
        events.append(Event(float(moment), kind == "begin", member, int(queue), int(offset), body))
    return events


def first_of(events: Sequence[Event]) -> list[str]:
    """Each message once, in the order in which they were consumed first."""
    return list(dict.fromkeys(event.body for event in sorted(events) if event.begun))


def pieces_of(events: Sequence[Event]) -> dict[int, list[Piece]]:
    """By queue, what its listeners had, in the order in which they began."""
    ends: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    for event in sorted(events):
        if not event.begun:
            ends[event.member, event.queue, event.offset].append(event.moment)
    found: dict[int, list[Piece]] = defaultdict(list)
    for event in sorted(events):
        if event.begun:
            ended = [each for each in ends[event.member, event.queue, event.offset] if each >= event.moment]
            end = min(ended, default=NEVER)
            found[event.queue].append(Piece(event.moment, end, event.member, event.offset, event.body))
    return found


def judge(events: Sequence[Event], fates: Fates) -> list[str]:
    """The faults: two members at one queue, a message before its predecessor, one again that had no reason to come.

    A message may come again when the member that had it was killed or slept: then the queue goes on from somewhere
    within what that member had.
    """
    faults = []
    for queue, pieces in sorted(pieces_of(events).items()):
        faults += [f"queue {queue}: {fault}" for fault in (*_overlaps(pieces, fates), *_leaps(pieces, fates))]
    return faults


def _overlaps(pieces: Sequence[Piece], fates: Fates) -> Iterator[str]:
    busy: Piece | None = None
    until = 0.0
    for piece in pieces:
        if busy is not None and piece.begin < until:
            yield f"{piece.member} begins {piece.offset} while {busy.member} is at work on {busy.offset}"
        broke_off = fates.broke_off(piece.member, piece.begin, piece.end)
        end = piece.end if broke_off is None else broke_off
        if end >= until:
            busy, until = piece, end


def _leaps(pieces: Sequence[Piece], fates: Fates) -> Iterator[str]:
    ends: dict[int, float] = {}
    for piece in pieces:
        ends[piece.offset] = min(piece.end, ends.get(piece.offset, NEVER))
    consumed = 0
    """All before it are consumed."""
    owner, since, first, last = "", 0.0, 0, -1
    for piece in pieces:
        while ends.get(consumed, NEVER) <= piece.begin:
            consumed += 1
        broke_off = owner and fates.broke_off(owner, since, piece.begin) is not None
        same = piece.member == owner
        expected = last + 1 if same else consumed
        if piece.offset > consumed:
            yield f"{piece.member} begins {piece.offset} before {consumed} is consumed"
        elif piece.offset != expected and not broke_off:
            yield f"{piece.member} begins {piece.offset}, {expected} is next after {owner or 'nobody'}"
        elif piece.offset < first:
            yield f"{piece.member} begins {piece.offset}, but {owner} began at {first}"
        if not same or piece.offset != last + 1:
            owner, since, first = piece.member, piece.begin, piece.offset
        last = piece.offset


def seen(events: Sequence[Event]) -> set[str]:
    """The bodies of all messages that were consumed to their end."""
    return {event.body for event in events if not event.begun}
