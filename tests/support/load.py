"""Producers that send over sockets until they are stopped, and a reader of whole queues.

Each producer keeps a few sends under way to every queue, and writes into the history what it was promised.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from types import TracebackType
from typing import Any, Self

from eruca.protocol.record import decode_records
from tests.support.history import History, judge
from tests.support.peers import Answered, Peer

TOPIC = "Torture"
QUEUES = 4
PRODUCERS = 4
_FOUND, _NOT_FOUND = 0, 19
_GONE_ON = (20, 21)  # nothing matches, or the offset lies elsewhere: the answer says where to go on


class Load:
    """Producers under way: ``answers`` counts what they were told, by code."""

    def __init__(
        self, address: str, history: History, *, producers: int = PRODUCERS, under_way: int = 4, padding: int = 0
    ) -> None:
        self.answers: Counter[int] = Counter()
        self.refusals: list[str] = []
        """What those were told that were refused; the first hundred."""
        self._address = address
        self._history = history
        self._producers = producers
        self._under_way = under_way
        self._padding = padding
        self._peers: list[Peer] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._news = asyncio.Condition()
        self._ending = False

    async def __aenter__(self) -> Self:
        for producer in range(self._producers):
            peer = await Peer().connect(self._address)
            self._peers.append(peer)
            for queue in range(QUEUES):
                self._tasks += [
                    asyncio.create_task(self._produce(peer, producer, queue)) for _ in range(self._under_way)
                ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for peer in self._peers:
            await peer.close()

    async def until(self, count: int, code: int = 0, *, within: float = 20.0) -> None:
        """Wait until so many sends were answered with ``code``."""
        async with asyncio.timeout(within), self._news:
            await self._news.wait_for(lambda: self.answers[code] >= count)

    async def drained(self, within: float = 10.0) -> None:
        """Send nothing new and wait for the answers that are still to come."""
        self._ending = True
        async with asyncio.timeout(within):
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _produce(self, peer: Peer, producer: int, queue: int) -> None:
        while not self._ending:
            body = self._history.next_body(queue, producer, self._padding)
            answer = await send(peer, queue, body, within=60.0)
            if answer.code == 0:
                self._history.promise(queue, int(answer.fields["queueOffset"]), body, time.monotonic())
            elif len(self.refusals) < 100:
                self.refusals.append(f"{answer.code}: {answer.remark}")
            async with self._news:
                self.answers[answer.code] += 1
                self._news.notify_all()
            if answer.code:
                await asyncio.sleep(0.02)  # what was refused is not asked for again at once


async def send(peer: Peer, queue: int, body: bytes, *, topic: str = TOPIC, within: float = 5.0) -> Answered:
    """Send one message (310)."""
    fields: dict[str, Any] = {"a": "torture", "b": topic, "c": "TBW102", "d": QUEUES, "e": queue, "f": 0, "g": 1}
    fields |= {"h": 0, "i": "TAGS\x01t", "j": 0, "k": "false", "m": "false"}
    return await peer.ask(310, fields, body, within=within)


async def pull(peer: Peer, queue: int, offset: int, *, topic: str = TOPIC, group: str = "readers") -> Answered:
    """Ask once for messages from ``offset`` on (11)."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue, "queueOffset": offset, "maxMsgNums": 32}
    fields |= {"sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*"}
    return await peer.ask(11, fields, within=20.0)


async def read(
    address: str, history: History | None = None, *, check: bool = True, topic: str = TOPIC
) -> dict[int, list[tuple[int, bytes]]]:
    """All messages of the topic by queue, or those that the history has not settled yet.

    Raises ProtocolError at a body that has not its CRC, but with ``check=False``.
    """
    peer = await Peer().connect(address)
    try:
        since = history.settled if history is not None else {}
        return {queue: await _read_queue(peer, queue, since.get(queue, 0), check, topic) for queue in range(QUEUES)}
    finally:
        await peer.close()


async def settled(address: str, history: History) -> None:
    """Read what the history has not settled yet: all that was promised is there, and is the truth from now on."""
    found = await read(address, history)
    faults = judge(history, found)
    assert faults == [], faults
    history.settle(found)


async def _read_queue(peer: Peer, queue: int, offset: int, check: bool, topic: str) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while True:
        answer = await pull(peer, queue, offset, topic=topic)
        if answer.code == _NOT_FOUND:
            return found
        assert answer.code == _FOUND or answer.code in _GONE_ON, answer
        following = int(answer.fields["nextBeginOffset"])
        assert answer.code == _FOUND or following != offset, answer
        found += [(record.queue_offset, record.body) for record in decode_records(answer.body, check=check)]
        offset = following
