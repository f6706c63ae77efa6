"""What a group answered of topics, offsets, locks, delayed messages and transactions, and the judge of what it has.

Knows no sockets. A change counts from when it is asked for: until it is answered, it may be done or not. What is
answered holds, until the next change is asked for. Every sentence of ``faults`` is a promise that was not kept: a topic
or an offset that is none of those that it may be; a lock that two hold at once, or that was taken from its holder; a
message that was acknowledged and is nowhere, or is there twice, or was rolled back and is there.

Offsets by consumers and locks are in memory only: where all brokers were down at once (``forgot``), an offset may be
what it was before, back to the last reset, and a lock may be gone. Moments are seconds of the monotonic clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

LEASE = 60.0
"""Seconds for which a granted lock holds without being renewed (RebalanceLockManager in 4.9.7)."""


class TopicState(NamedTuple):
    """What an operator set of a topic."""

    read_queues: int
    write_queues: int
    perm: int
    filter_type: str


Value = TopicState | int | None
"""Of a topic or an offset; None where it is not there."""


@dataclass
class Register:
    """A thing that changes, and all that it may be now."""

    possible: set[Value] = field(default_factory=lambda: {None})
    answered: Value = None
    _in_memory: set[Value] = field(default_factory=lambda: {None})
    """What it was since it last was on the disks for sure, and then."""

    def ask(self, value: Value) -> None:
        """It may be this from now on."""
        self.possible.add(value)

    def answer(self, value: Value, *, on_disk: bool) -> None:
        """It is this."""
        self.possible, self.answered = {value}, value
        self._in_memory = {value} if on_disk else {*self._in_memory, value}

    def forget(self) -> None:
        """What was in memory only may be lost."""
        self.possible |= self._in_memory


class Hold(NamedTuple):
    """A client has a queue: its lock was asked for, for the last time, at ``asked``."""

    client: str
    asked: float


class Disputed(NamedTuple):
    """A lock that was not kept, if it was kept in memory from its last grant to the end."""

    granted: float
    end: float
    fault: str


class Holds:
    """The locks of queues, by what clients were answered."""

    def __init__(self) -> None:
        self.granted_locks = 0
        self._holds: dict[str, Hold] = {}
        self._disputed: list[Disputed] = []

    def granted(self, queue: str, client: str, asked: float, now: float) -> None:
        """A client asked for a queue, and was answered at ``now`` that it has it."""
        self.granted_locks += 1
        held = self._of_another(queue, client, now)
        if held is not None:
            self._dispute(held, now, f"locked: {queue} by {client}, while {held.client} held it")
        self._holds[queue] = Hold(client, asked)

    def refused(self, queue: str, client: str, now: float) -> None:
        """A client was answered that it has not got a queue."""
        held = self._holds.get(queue)
        if held is not None and held.client == client:
            if now < held.asked + LEASE:
                self._dispute(held, now, f"taken: {queue} from {client}, which held it")
            del self._holds[queue]

    def gives_up(self, queue: str, client: str) -> None:
        """A client is about to release a queue, and does not use it any more."""
        held = self._holds.get(queue)
        if held is not None and held.client == client:
            del self._holds[queue]

    def _of_another(self, queue: str, client: str, now: float) -> Hold | None:
        held = self._holds.get(queue)
        return held if held is not None and held.client != client and now < held.asked + LEASE else None

    def _dispute(self, held: Hold, now: float, fault: str) -> None:
        self._disputed.append(Disputed(held.asked, now, fault))

    def faults(self, forgotten: Collection[tuple[float, float]]) -> list[str]:
        """Locks that were not kept, but for those of the times when all that was in memory may have been lost."""
        return [
            each.fault
            for each in self._disputed
            if not any(since <= each.end and each.granted <= until for since, until in forgotten)
        ]


class BrokerTables(NamedTuple):
    """What one broker has: topics by name, offsets by ``topic@group/queue``, groups of consumers by name."""

    topics: Mapping[str, TopicState]
    offsets: Mapping[str, int]
    groups: Mapping[str, object]


class Promises:
    """All that was asked for and answered in one run."""

    def __init__(self) -> None:
        self.topics: dict[str, Register] = {}
        self.offsets: dict[str, Register] = {}
        self.holds = Holds()
        self.answers: Counter[str] = Counter()
        """What was answered, by its kind."""
        self.owed: set[bytes] = set()
        """Bodies of delayed messages and committed transactions that were acknowledged."""
        self.rolled_back: set[bytes] = set()
        self._forgotten: list[tuple[float, float]] = []

    def forgot(self, since: float, until: float) -> None:
        """All brokers were down at once, at some time within these moments."""
        self._forgotten.append((since, until))
        for register in self.offsets.values():
            register.forget()

    def missing(self, bodies: Collection[bytes]) -> set[bytes]:
        """What was acknowledged, and is not there yet."""
        return self.owed.difference(bodies)

    def faults(self, brokers: Mapping[int, BrokerTables], bodies: Collection[bytes]) -> list[str]:
        """What is wrong with the tables of each broker, and with all bodies of the topic of messages that wait."""
        faults = self.holds.faults(self._forgotten)
        for number, tables in brokers.items():
            faults += _changed("topic", number, self.topics, tables.topics)
            faults += _changed("offset", number, self.offsets, tables.offsets)
        counts = Counter(bodies)
        faults += [f"missing: {body!r} was acknowledged" for body in sorted(self.missing(bodies))]
        faults += [f"again: {body!r} is there {count} times" for body, count in sorted(counts.items()) if count > 1]
        faults += [f"undone: {body!r} was rolled back, and is there" for body in sorted(self.rolled_back & {*bodies})]
        return [*faults, *table_differences(brokers)]


def _changed(kind: str, number: int, registers: Mapping[str, Register], there: Mapping[str, Value]) -> list[str]:
    return [
        f"{kind}: {name} is {there.get(name)} at broker {number}, and was answered as {register.answered}"
        for name, register in sorted(registers.items())
        if there.get(name) not in register.possible
    ]


def table_differences(brokers: Mapping[int, BrokerTables]) -> list[str]:
    """Brokers whose tables are not those of the first one, and in what."""
    first = min(brokers)
    faults = []
    for number, tables in brokers.items():
        for kind, mine, others in zip(BrokerTables._fields, tables, brokers[first], strict=True):
            names = sorted(name for name in {*mine, *others} if mine.get(name) != others.get(name))
            if names:
                faults.append(f"tables: {kind} of broker {number} are not those of broker {first}: {names[:5]}")
    return faults
