"""Topics that are made side by side at our broker, at Apache's nameserver: each has its route when that is answered."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.apache import ApacheNameServer
from tests.support.desk import Desk
from tests.support.peers import Peer

CREATE, ROUTE, SEND = 17, 105, 310
COUNT = 300


async def test_each_of_three_hundred_topics_has_a_route_at_apaches_nameserver(tmp_path: Path) -> None:
    server = await asyncio.to_thread(ApacheNameServer, "4.9.7", tmp_path / "names")
    names = await Peer().connect(server.address)
    desk = Desk(tmp_path / "broker")
    desk.config.namesrv_addr = server.address
    try:
        async with desk:

            async def known(topic: str) -> bool:
                return (await names.ask(ROUTE, {"topic": topic})).code == 0

            async def make(topic: str) -> bool:
                counts = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
                fields = {"topic": topic, "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", **counts}
                assert (await desk.ask(CREATE, fields)).code == 0
                return await known(topic)

            made = await asyncio.gather(*(make(f"Made{number}") for number in range(COUNT)))
            assert made.count(False) == 0

            async def send(topic: str) -> int:
                fields = dict(zip("abcdefgh", ("pg", topic, "TBW102", 4, 0, 0, desk.now, 0), strict=True))
                return (await desk.ask(SEND, fields, b"x")).code

            assert set(await asyncio.gather(*(send(f"Sent{number}") for number in range(COUNT)))) == {0}
            await desk.broker.registration.register_changed()
            sent = [await known(f"Sent{number}") for number in range(COUNT)]
            assert sent.count(False) == 0
            assert await known("Made7") and await known("TBW102")
    finally:
        await names.close()
        await asyncio.to_thread(server.stop)
