"""Producers and readers of a group that elects its master, and the judge of what they were told and saw.

Owns the load: each producer sends one message after the other to whoever takes it, and looks elsewhere after each
refusal; no message is sent twice. Readers pull from all brokers, whatever their role. Every sentence of ``faults`` is a
promise that was not kept: acknowledged and lost, or changed; promised twice at one offset; seen, and gone or changed;
out of order.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from eruca.protocol.errors import ProtocolError
from eruca.protocol.record import decode_records
from tests.support.failover_cluster import FailoverCluster
from tests.support.history import Found, History, judge
from tests.support.load import QUEUES, pull, send
from tests.support.peers import Peer

PRODUCERS = 2
"""For each queue."""
PATIENCE = 2.0
"""Seconds for an answer."""
_SHOWN = 20


class Witness:
    """What clients of a group were promised, and what they saw."""

    def __init__(self) -> None:
        self.history = History()
        self.seen: dict[tuple[int, int], bytes] = {}
        self.at_once: list[str] = []
        """What was wrong as soon as it was said or shown."""

    def promise(self, queue: int, offset: int, body: bytes) -> None:
        """A broker acknowledged it."""
        former = self.history.told.get((queue, offset))
        if former is not None:
            self.at_once.append(f"twice: offset {offset} of queue {queue} is {former.body[:40]!r}, and {body[:40]!r}")
        self.history.promise(queue, offset, body, time.monotonic())

    def see(self, queue: int, offset: int, body: bytes) -> None:
        """A broker showed it."""
        former = self.seen.setdefault((queue, offset), body)
        if former != body:
            self.at_once.append(f"changed: offset {offset} of queue {queue} was {former[:40]!r}, is {body[:40]!r}")

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


class GroupLoad:
    """Producers and readers under way; a producer rests so many seconds between two sends."""

    def __init__(self, group: FailoverCluster, witness: Witness, dice: random.Random, rest: float = 0.0) -> None:
        self.pause = 0.0
        """The longest time without an acknowledgement since ``begin_round``, in seconds."""
        self._group = group
        self._witness = witness
        self._dice = dice
        self._rest = rest
        self._takes = 1
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
        self.pause, self._answered = 0.0, time.monotonic()

    async def more(self, count: int, within: float = 60.0) -> None:
        """Wait until so many more were acknowledged."""
        history = self._witness.history
        until = history.acknowledged + count
        async with asyncio.timeout(within):
            while history.acknowledged < until:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def _produce(self, queue: int, producer: int) -> None:
        peers: dict[int, Peer] = {}
        while not self._over:
            number = self._takes
            body = self._witness.history.next_body(queue, producer, 60)
            offset = await self._took(peers, number, queue, body)
            if offset is None:
                await asyncio.sleep(0.02)
                if self._takes == number:
                    self._takes = number % len(self._group.numbers) + 1
                continue
            now = time.monotonic()
            self.pause, self._answered = max(self.pause, now - self._answered), now
            self._witness.promise(queue, offset, body)
            await asyncio.sleep(self._rest)
        await _hang_up(peers)

    async def _took(self, peers: dict[int, Peer], number: int, queue: int, body: bytes) -> int | None:
        try:
            answer = await send(await self._peer(peers, number), queue, body, within=PATIENCE)
        except (OSError, EOFError, TimeoutError):
            await _hang_up(peers, number)
            return None
        return int(answer.fields["queueOffset"]) if answer.code == 0 else None

    async def _peer(self, peers: dict[int, Peer], number: int) -> Peer:
        if number not in peers:
            async with asyncio.timeout(PATIENCE):
                peers[number] = await Peer().connect(self._group.address(number))
        return peers[number]

    async def _read(self) -> None:
        """Read what is new at any broker, and what was read long ago."""
        peers: dict[int, Peer] = {}
        ends = dict.fromkeys(range(QUEUES), 0)
        while not self._over:
            number, queue = self._dice.choice(self._group.numbers), self._dice.randrange(QUEUES)
            offset = ends[queue] if self._dice.random() < 0.8 else self._dice.randrange(ends[queue] + 1)
            try:
                answer = await asyncio.wait_for(pull(await self._peer(peers, number), queue, offset), PATIENCE)
                records = decode_records(answer.body, check=True) if answer.code == 0 else []
            except (OSError, EOFError, TimeoutError, ProtocolError):
                await _hang_up(peers, number)
                continue
            for record in records:
                self._witness.see(queue, record.queue_offset, record.body)
                ends[queue] = max(ends[queue], record.queue_offset + 1)
            if not records:
                await asyncio.sleep(0.02)
        await _hang_up(peers)


async def _hang_up(peers: dict[int, Peer], number: int | None = None) -> None:
    for each in [number] if number is not None else [*peers]:
        peer = peers.pop(each, None)
        if peer is not None:
            with suppress(OSError):
                await peer.close()


def shown(faults: list[str]) -> str:
    """The first of them, for a message of a test."""
    return "\n".join([f"{len(faults)} faults:", *faults[:_SHOWN]])


def differences(logs: Mapping[int, bytes]) -> list[str]:
    """Brokers whose log is not that of the first one."""
    first = min(logs)
    return [
        f"the log of broker {number} ({len(log)} bytes) is not that of broker {first} ({len(logs[first])} bytes)"
        for number, log in logs.items()
        if log != logs[first]
    ]
