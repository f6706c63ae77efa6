"""Two masters with a slave each and two nameservers, under load: any of them may go and come back.

Every acknowledged message is consumed, and no send fails: a producer tries the other master. While a master is away
its slave gives out what it left behind.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

import pytest

from eruca.client import ClientSettings, Message, Producer, PushConsumer, ReceivedMessage, SendStatus
from eruca.client.errors import ClientError
from tests.support.pairs import BROKERS, MASTERS, Pairs, eventually
from tests.support.programme import ENOUGH, chance, rounds

pytestmark = pytest.mark.slow

TOPIC, QUEUES, PATIENCE = "Traffic", 4, 60.0


class Traffic:
    """Producers that send as fast as they are answered, and what became of each message."""

    def __init__(self, address: str, senders: int = 3) -> None:
        self.acknowledged: dict[bytes, str] = {}
        """Body and broker of each message that was stored."""
        self.confirmed: set[bytes] = set()
        """Those of them with SEND_OK."""
        self.failures: list[str] = []
        self.slowest = 0.0
        """Seconds of the slowest send."""
        self.pause = 0.0
        """Longest time in seconds in which no send was answered."""
        self._last = 0.0
        self._producer = Producer("traffic", nameserver=address)
        self._senders = senders
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self._producer.start()
        self._last = time.monotonic()
        self._tasks = [asyncio.create_task(self._send(number)) for number in range(self._senders)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._producer.stop()

    async def _send(self, sender: int) -> None:
        for number in range(1_000_000):
            body = b"%d/%d" % (sender, number)
            begin = time.monotonic()
            try:
                result = await self._producer.send(Message(TOPIC, body))
            except ClientError as error:
                self.failures.append(f"{body!r}: {error}")
            else:
                self.acknowledged[body] = result.queue.broker_name
                if result.status is SendStatus.SEND_OK:
                    self.confirmed.add(body)
            now = time.monotonic()
            self.slowest = max(self.slowest, now - begin)
            self.pause, self._last = max(self.pause, now - self._last), now
            await asyncio.sleep(0.01)

    async def more(self, count: int) -> None:
        """Wait until so many more were acknowledged."""
        target = len(self.acknowledged) + count
        async with asyncio.timeout(PATIENCE):
            while len(self.acknowledged) < target:  # noqa: ASYNC110 (tasks of this test count)
                await asyncio.sleep(0.01)


class Reader:
    """A member of a group, and the bodies that it got."""

    def __init__(self, address: str, group: str) -> None:
        self.got: set[bytes] = set()
        settings = ClientSettings(nameserver=address, instance_name=f"{group}-reader")
        self._consumer = PushConsumer(group, self._take, start_from="first", settings=settings).subscribe(TOPIC)

    async def _take(self, message: ReceivedMessage) -> None:
        self.got.add(message.body)

    async def __aenter__(self) -> Self:
        await self._consumer.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._consumer.stop()

    async def has(self, wanted: set[bytes]) -> float:
        """Wait until all of these came; how many seconds that took."""
        begin = time.monotonic()
        await eventually(lambda: wanted <= self.got)
        return time.monotonic() - begin


class Story:
    """What befalls the cluster, one thing after the other, each under load."""

    def __init__(self, pairs: Pairs, traffic: Traffic, random: Random) -> None:
        self.pairs = pairs
        self.traffic = traffic
        self._random = random
        self.pauses: dict[str, float] = {}
        self._readers = 0

    async def tell(self, name: str) -> None:
        """One thing, and how long no send was answered in it."""
        await self.traffic.more(50)
        self.traffic.pause = 0.0
        await getattr(self, name)()
        await self.traffic.more(50)
        self.pauses[name] = max(self.pauses.get(name, 0.0), self.traffic.pause)

    async def stop_a_master(self) -> None:
        """It leaves both nameservers; its slave gives out all that it acknowledged."""
        name = self._random.choice(MASTERS)
        await self.pairs.stop(name)
        assert self.pairs.known(name) == [False, False]
        await self.traffic.more(100)
        await self._read_from_slave(name, set(self.traffic.acknowledged))
        await self._back(name)

    async def kill_a_master(self) -> None:
        """A SYNC_MASTER: its slave gives out all that was confirmed with SEND_OK."""
        self.pairs.kill("b")
        await self.traffic.more(100)
        await self._read_from_slave("b", self.traffic.confirmed)
        await self._back("b")

    async def restart_the_slaves(self) -> None:
        """One after the other."""
        for name in MASTERS:
            await self.pairs.stop(f"{name}-slave")
            await self.traffic.more(30)
            await self._back(f"{name}-slave")

    async def restart_the_nameservers(self) -> None:
        """One after the other."""
        for number in range(2):
            await self.pairs.restart_nameserver(number)
            await self.traffic.more(30)

    async def restart_all_brokers(self) -> None:
        """One after the other: slaves first."""
        for name in reversed(BROKERS):
            await self.pairs.stop(name)
            await self._back(name)

    async def _back(self, name: str) -> None:
        await self.pairs.start(name)
        await eventually(lambda: "replicating" in self.pairs.brokers[f"{name[0]}-slave"].output)

    async def _read_from_slave(self, name: str, wanted: set[bytes]) -> None:
        """A group that begins now gets these messages of a broker whose master is away."""
        self._readers += 1
        acknowledged = self.traffic.acknowledged.items()
        left = {body for body, home in acknowledged if home == f"broker-{name}" and body in wanted}
        assert left
        async with Reader(self.pairs.address, f"late-{self._readers}") as late:
            await late.has(left)


STORY = ("stop_a_master", "kill_a_master", "restart_the_slaves", "restart_the_nameservers", "restart_all_brokers")


@ENOUGH
async def test_any_part_may_go_and_come_back(tmp_path: Path) -> None:
    random = chance("two masters")
    async with Pairs(tmp_path) as pairs:
        await pairs.create_topic(TOPIC, QUEUES)
        await pairs.followed()
        async with Reader(pairs.address, "readers") as reader:
            async with Traffic(pairs.address) as traffic:
                story = Story(pairs, traffic, random)
                for number in rounds(1, 12, seconds=20, least=1):
                    for name in random.sample(STORY, len(STORY)) if number else STORY:
                        await story.tell(name)
                        await pairs.followed()
            behind = await reader.has(set(traffic.acknowledged))
    assert traffic.failures == []
    pauses = ", ".join(f"{name.replace('_', ' ')} {pause:.2f} s" for name, pause in story.pauses.items())
    print(f"{len(traffic.acknowledged)} acknowledged ({len(traffic.confirmed)} SEND_OK), all consumed")
    print(
        f"longest without an answer: {pauses}; slowest send {traffic.slowest:.2f} s; last consumed after {behind:.2f} s"
    )
