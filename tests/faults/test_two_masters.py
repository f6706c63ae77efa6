"""Two masters with a slave each and two nameservers, under load: any of them may go and come back.

Every acknowledged message is consumed, and no send fails: a producer tries the other master. While a master is away
its slave gives out what it left behind.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.support.pairs import BROKERS, MASTERS, Pairs, eventually
from tests.support.programme import ENOUGH, chance, rounds
from tests.support.traffic import TOPIC, Reader, Traffic

pytestmark = pytest.mark.slow

QUEUES = 4


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
