"""What a group answered of topics, groups, offsets, locks, delayed messages and transactions, and the judge of that.

Knows no sockets. A change counts from when it is asked for: until it is answered, it may be done or not. What is
answered holds, until the next change is asked for. Every sentence of ``faults`` is a promise that was not kept: a
topic, a group or an offset that is none of those that it may be; a lock that two hold at once, or that was taken from
its holder; a message that was acknowledged and is nowhere, or is there twice, or was rolled back and is there.

Offsets by consumers and locks are in memory only. At a moment at which no broker ran (``all_down``), a lock that was
granted before is gone, and an offset that was committed before is what it was up to ``SAVED`` seconds earlier, but not
before its last reset. Moments are seconds of the monotonic clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import NamedTuple

LEASE = 60.0
"""Seconds for which a granted lock holds without being renewed (RebalanceLockManager in 4.9.7)."""
SAVED = 10.0
"""Seconds after which a committed offset is on the disks: ``flushConsumerOffsetInterval``, and as long again."""


class TopicState(NamedTuple):
    """What an operator set of a topic."""

    read_queues: int
    write_queues: int
    perm: int
    filter_type: str


Value = tuple[object, ...] | int | None
"""Of a topic, a group or an offset; None where it is not there."""


class Answer(NamedTuple):
    """It is ``value``, by what was asked for, for the last time, at one moment and answered at another."""

    value: Value
    asked: float
    answered: float


@dataclass
class Register:
    """A thing that changes, and all that it may be."""

    _answers: list[Answer] = field(default_factory=lambda: [Answer(None, -inf, -inf)])
    """Since it last was on the disks for sure."""
    _asked: set[Value] = field(default_factory=set)
    """What was not answered yet."""

    @property
    def answered(self) -> Value:
        """What it is by the last answer."""
        return self._answers[-1].value

    def ask(self, value: Value) -> None:
        """It may be this from now on."""
        self._asked.add(value)

    def answer(self, value: Value, asked: float, now: float, *, on_disk: bool) -> None:
        """It is this."""
        if on_disk:
            self._answers.clear()
        self._answers.append(Answer(value, asked, now))
        self._asked.clear()

    def possible(self, all_down: Collection[float]) -> set[Value]:
        """All that it may be, if no broker ran at these moments."""
        found = {self.answered, *self._asked}
        for moment in all_down:
            if self._answers[-1].asked <= moment:
                found |= {each.value for each, later in pairwise(self._answers) if later.answered > moment - SAVED}
        return found


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

    def faults(self, all_down: Collection[float]) -> list[str]:
        """Locks that were not kept, but for those that were granted before a moment at which no broker ran."""
        return [
            each.fault for each in self._disputed if not any(each.granted <= moment <= each.end for moment in all_down)
        ]


class BrokerTables(NamedTuple):
    """What one broker has: topics by name, offsets by ``topic@group/queue``, groups of consumers by name."""

    topics: Mapping[str, TopicState]
    offsets: Mapping[str, int]
    groups: Mapping[str, tuple[object, ...]]


class Promises:
    """All that was asked for and answered in one run."""

    def __init__(self) -> None:
        self.topics: dict[str, Register] = {}
        self.groups: dict[str, Register] = {}
        self.offsets: dict[str, Register] = {}
        self.holds = Holds()
        self.answers: Counter[str] = Counter()
        """What was answered, by its kind."""
        self.owed: set[bytes] = set()
        """Bodies of delayed messages and committed transactions that were acknowledged."""
        self.rolled_back: set[bytes] = set()

    def missing(self, bodies: Collection[bytes]) -> set[bytes]:
        """What was acknowledged, and is not there yet."""
        return self.owed.difference(bodies)

    def faults(
        self, brokers: Mapping[int, BrokerTables], bodies: Collection[bytes], all_down: Collection[float] = ()
    ) -> list[str]:
        """What is wrong with the tables of each broker, and with all bodies of the topic of messages that wait, if no
        broker ran at these moments."""
        faults = self.holds.faults(all_down)
        for number, tables in brokers.items():
            faults += _changed("topic", number, self.topics, tables.topics, all_down)
            faults += _changed("group", number, self.groups, tables.groups, all_down)
            faults += _changed("offset", number, self.offsets, tables.offsets, all_down)
        counts = Counter(bodies)
        faults += [f"missing: {body!r} was acknowledged" for body in sorted(self.missing(bodies))]
        faults += [f"again: {body!r} is there {count} times" for body, count in sorted(counts.items()) if count > 1]
        faults += [f"undone: {body!r} was rolled back, and is there" for body in sorted(self.rolled_back & {*bodies})]
        return [*faults, *table_differences(brokers)]


def _changed(
    kind: str,
    number: int,
    registers: Mapping[str, Register],
    there: Mapping[str, Value],
    all_down: Collection[float],
) -> list[str]:
    return [
        f"{kind}: {name} is {there.get(name)} at broker {number}, and was answered as {register.answered}"
        for name, register in sorted(registers.items())
        if there.get(name) not in register.possible(all_down)
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
