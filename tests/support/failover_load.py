"""Producers and readers of a group that elects its master, and the judge of what they were told and saw.

Owns the load: each producer sends one message after the other to whoever takes it, and looks elsewhere after each
refusal; no message is sent twice. With ``looks`` one producer of each queue keeps to the master that it knows, as
Apache's client does until it asks for the route again. Readers pull from all brokers, whatever their role. Every
sentence of ``faults`` is a promise that was not kept: acknowledged and lost, or changed; promised twice at one offset;
seen, and gone or changed; told as a queue's end, and given to a later message; out of order.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from eruca.protocol.errors import ProtocolError
from eruca.protocol.record import decode_records
from tests.support.history import Found, History, judge
from tests.support.load import QUEUES, TOPIC, pull, send
from tests.support.peers import Peer

PRODUCERS = 2
"""For each queue."""
PATIENCE = 2.0
"""Seconds for an answer."""
MAX_OFFSET = 30
_SHOWN = 20


class Witness:
    """What clients of a group were promised, and what they saw."""

    def __init__(self) -> None:
        self.history = History()
        self.seen: dict[tuple[int, int], bytes] = {}
        self.at_once: list[str] = []
        """What was wrong as soon as it was said or shown."""
        self.ends: dict[int, int] = {}
        """The highest end of each queue that a broker has told."""
        self.acknowledged_ends: dict[int, int] = {}
        """Up to where each queue is acknowledged."""
        self._displaced: list[tuple[tuple[int, int], bytes]] = []

    def promise(self, queue: int, offset: int, body: bytes, end: int = 0) -> None:
        """A broker acknowledged it; ``end`` was told as the queue's before it was sent."""
        if offset < end:
            self.at_once.append(f"end: {end} was told as that of queue {queue} before {body[:40]!r}, at {offset}")
        former = self.history.told.get((queue, offset))
        if former is not None:
            self._displaced.append(((queue, offset), former.body))
            self.at_once.append(f"twice: offset {offset} of queue {queue} is {former.body[:40]!r}, and {body[:40]!r}")
        self.history.promise(queue, offset, body, time.monotonic())
        self.acknowledged_ends[queue] = max(offset + 1, self.acknowledged_ends.get(queue, 0))

    def see(self, queue: int, offset: int, body: bytes) -> None:
        """A broker showed it."""
        former = self.seen.setdefault((queue, offset), body)
        if former != body:
            self.at_once.append(f"changed: offset {offset} of queue {queue} was {former[:40]!r}, is {body[:40]!r}")

    def tell(self, queue: int, end: int) -> None:
        """A broker told where a queue ends."""
        self.ends[queue] = max(end, self.ends.get(queue, 0))

    def faults(self, found: Found) -> list[str]:
        """What is wrong with what all brokers have in the end."""
        there = {(queue, offset): body for queue, messages in found.items() for offset, body in messages}
        gone = [
            f"gone: {body[:40]!r} was seen at offset {place[1]} of queue {place[0]}"
            for place, body in sorted(self.seen.items())
            if there.get(place) != body
        ]
        told = self.history.told
        acknowledged = {
            queue: [each for each in messages if (queue, each[0]) in told] for queue, messages in found.items()
        }
        # what was not acknowledged may come later, from a broker that slept
        return [*self.at_once, *judge(self.history, acknowledged), *gone]

    def counts(self, found: Found) -> Counter[str]:
        """The same in numbers: messages ``lost`` (acknowledged, and nowhere) and ``moved`` (acknowledged, and at
        another offset), offsets that were promised ``twice``, offsets ``gone`` (what was seen there is there no
        more)."""
        there = {(queue, offset): body for queue, messages in found.items() for offset, body in messages}
        kept = {*there.values()}
        promised = [*((place, told.body) for place, told in self.history.told.items()), *self._displaced]
        missed = [body for place, body in promised if there.get(place) != body]
        return Counter(
            lost=sum(body not in kept for body in missed),
            moved=sum(body in kept for body in missed),
            twice=len(self._displaced),
            gone=sum(there.get(place) != body for place, body in self.seen.items()),
        )


class Group(Protocol):
    """Brokers by their number."""

    @property
    def numbers(self) -> range: ...

    def address(self, number: int) -> str:
        """Where clients find a broker."""


class GroupLoad:
    """Producers and readers under way; they begin with broker ``master``. A producer rests so many seconds between two
    sends."""

    def __init__(
        self,
        group: Group,
        witness: Witness,
        dice: random.Random,
        *,
        topic: str = TOPIC,
        master: int = 1,
        looks: float = 0.0,
        rest: float = 0.0,
    ) -> None:
        self.pause = 0.0
        """The longest time without an acknowledgement since ``begin_round``, in seconds."""
        self.failed = 0
        """Sends since then without one, but for those of producers that keep to a master."""
        self._group = group
        self._witness = witness
        self._dice = dice
        self._topic = topic
        self._looks = looks
        self._rest = rest
        self._takes = master
        self._answered = time.monotonic()
        self._over = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for queue in range(QUEUES):
            self._tasks += [asyncio.create_task(self._produce(queue, each)) for each in range(PRODUCERS)]
        self._tasks.append(asyncio.create_task(self._read()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        await asyncio.gather(*self._tasks)

    def begin_round(self) -> None:
        """Measure the pause from now on."""
        self.pause, self.failed, self._answered = 0.0, 0, time.monotonic()

    async def more(self, count: int, within: float = 60.0) -> None:
        """Wait until so many more were acknowledged."""
        history = self._witness.history
        until = history.acknowledged + count
        async with asyncio.timeout(within):
            while history.acknowledged < until:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def _produce(self, queue: int, producer: int) -> None:
        peers: dict[int, Peer] = {}
        keeps = bool(self._looks) and producer == 0
        number, look = self._takes, time.monotonic() + self._dice.uniform(0, self._looks)
        while not self._over:
            if not keeps:
                number = self._takes
            elif time.monotonic() >= look:
                number, look = self._takes, look + self._looks
            body, end = self._witness.history.next_body(queue, producer, 60), self._witness.ends.get(queue, 0)
            offset = await self._took(peers, number, queue, body)
            if offset is None:
                await asyncio.sleep(0.02)
                if not keeps:
                    self.failed += 1
                    if self._takes == number:
                        self._takes = number % len(self._group.numbers) + 1
                continue
            now = time.monotonic()
            self.pause, self._answered = max(self.pause, now - self._answered), now
            self._witness.promise(queue, offset, body, end)
            await asyncio.sleep(self._rest)
        await hang_up(peers)

    async def _took(self, peers: dict[int, Peer], number: int, queue: int, body: bytes) -> int | None:
        try:
            answer = await send(
                await connected(peers, self._group, number), queue, body, topic=self._topic, within=PATIENCE
            )
        except (OSError, EOFError, TimeoutError):
            await hang_up(peers, number)
            return None
        return int(answer.fields["queueOffset"]) if answer.code == 0 else None

    async def _read(self) -> None:
        """Read what is new at any broker, and what was read long ago, and ask where queues end."""
        peers: dict[int, Peer] = {}
        ends = dict.fromkeys(range(QUEUES), 0)
        while not self._over:
            number, queue = self._dice.choice(self._group.numbers), self._dice.randrange(QUEUES)
            offset = ends[queue] if self._dice.random() < 0.8 else self._dice.randrange(ends[queue] + 1)
            try:
                peer = await connected(peers, self._group, number)
                answer = await asyncio.wait_for(pull(peer, queue, offset, topic=self._topic), PATIENCE)
                records = decode_records(answer.body, check=True) if answer.code == 0 else []
                told = await peer.ask(MAX_OFFSET, {"topic": self._topic, "queueId": queue}, within=PATIENCE)
            except (OSError, EOFError, TimeoutError, ProtocolError):
                await hang_up(peers, number)
                continue
            if told.code == 0:
                self._witness.tell(queue, int(told.fields["offset"]))
            for record in records:
                self._witness.see(queue, record.queue_offset, record.body)
                ends[queue] = max(ends[queue], record.queue_offset + 1)
            if not records:
                await asyncio.sleep(0.02)
        await hang_up(peers)


async def connected(peers: dict[int, Peer], group: Group, number: int) -> Peer:
    """The connection to a broker, made if there is none."""
    if number not in peers:
        async with asyncio.timeout(PATIENCE):
            peers[number] = await Peer().connect(group.address(number))
    return peers[number]


async def hang_up(peers: dict[int, Peer], number: int | None = None) -> None:
    """End the connection to one broker, or those to all."""
    for each in [number] if number is not None else [*peers]:
        peer = peers.pop(each, None)
        if peer is not None:
            with suppress(OSError):
                await peer.close()


def shown(faults: list[str]) -> str:
    """How many there are of each kind, and the first of each, for a message of a test."""
    kinds = Counter(fault.split()[0] for fault in faults)
    first = [fault for kind in kinds for fault in [each for each in faults if each.split()[0] == kind][:_SHOWN]]
    return "\n".join([f"{len(faults)} faults: {dict(kinds)}", *first])


def _same(one: bytes, other: bytes) -> int:
    """Up to where both are the same."""
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)


def differences(logs: Mapping[int, bytes]) -> list[str]:
    """Brokers whose log is not that of the first one, and where it begins to differ."""
    first = min(logs)
    return [
        f"the log of broker {number} ({len(log)} bytes) is not that of broker {first} ({len(logs[first])} bytes) "
        f"from {_same(log, logs[first])} on"
        for number, log in logs.items()
        if log != logs[first]
    ]
