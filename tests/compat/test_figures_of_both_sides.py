"""The broker's counters (315) after a known load: the numbers that went through, on Apache's broker and on Eruca's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from eruca.protocol.record import decode_records
from tests.compat.asked import pull, sent
from tests.compat.conftest import Cluster
from tests.support.apache import ApacheCluster
from tests.support.eruca import ErucaCluster
from tests.support.java import Judge
from tests.support.peers import Peer

LOAD, BODY = 40, b"b" * 100
"""Messages, half of them in each of two queues; one is sent back."""
MakeTopic = Callable[[Cluster, Judge, int], str]


class Counters:
    """What one broker counts of a topic."""

    def __init__(self, peer: Peer, topic: str) -> None:
        self.peer, self.topic = peer, topic
        self.group = f"getters-of-{topic}"

    async def load(self) -> int:
        """Send, let the group get it, and send one message back; the size of a record."""
        for number in range(LOAD):
            assert (await self.peer.ask(310, sent(7, b=self.topic, e=number % 2), BODY)).code == 0
        for queue in (0, 1):
            got = 0
            async with asyncio.timeout(30):
                while got < LOAD // 2:
                    where = pull(consumerGroup=self.group, topic=self.topic, queueId=queue, queueOffset=got)
                    records = decode_records((await self.peer.ask(11, where)).body)
                    got += len(records)
        back = {"offset": records[0].physical_offset, "group": self.group, "delayLevel": 18}
        assert (await self.peer.ask(36, {**back, "originTopic": self.topic})).code == 0
        return records[0].size

    async def minute(self, name: str, key: str, count: int) -> dict[str, Any]:
        """A counter's last minute, once a sample of it shows as much as went through."""
        async with asyncio.timeout(60):
            while True:
                answer = await self.peer.ask(315, {"statsName": name, "statsKey": key})
                assert answer.code == 0, answer.remark
                found: dict[str, Any] = json.loads(answer.body)["statsMinute"]
                if found["sum"] >= count:
                    return found
                await asyncio.sleep(0.2)


async def _counted(cluster: Cluster, topic: str) -> None:
    peer = await Peer().connect(cluster.broker.address)
    try:
        counters = Counters(peer, topic)
        size = await counters.load()
        group, half = counters.group, LOAD // 2
        counted = [
            ("TOPIC_PUT_NUMS", topic, LOAD),
            ("TOPIC_PUT_SIZE", topic, LOAD * size),
            ("GROUP_GET_NUMS", f"{topic}@{group}", LOAD),
            ("GROUP_GET_SIZE", f"{topic}@{group}", LOAD * size),
            ("SNDBCK_PUT_NUMS", f"{topic}@{group}", 1),
        ]
        if cluster.name == "eruca":  # by queue 4.9.7 counts the delay levels only
            counted += [
                ("QUEUE_PUT_NUMS", f"{topic}@1", half),
                ("QUEUE_PUT_SIZE", f"{topic}@1", half * size),
                ("QUEUE_GET_NUMS", f"{topic}@0@{group}", half),
                ("QUEUE_GET_SIZE", f"{topic}@0@{group}", half * size),
            ]
        for name, key, count in counted:
            minute = await counters.minute(name, key, count)
            assert minute["sum"] == count, name
            assert 9 < minute["sum"] / minute["tps"] < 70, f"{name}: seconds of the window"
            if name == "TOPIC_PUT_SIZE":
                assert minute["avgpt"] == size
    finally:
        await peer.close()


def test_counters_are_true(apache: ApacheCluster, eruca: ErucaCluster, judge: Judge, topic: MakeTopic) -> None:
    names = [topic(cluster, judge, 2) for cluster in (apache, eruca)]

    async def both() -> None:
        await asyncio.gather(_counted(apache, names[0]), _counted(eruca, names[1]))

    asyncio.run(both())
