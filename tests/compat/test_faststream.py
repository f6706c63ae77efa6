"""FastStream's broker at Apache's: values, batches, order, retries and answers, and what Java's client reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from faststream.exceptions import NackMessage

from eruca.faststream import RocketMQBroker, RocketMQMessage
from tests.compat.clients import JavaClients, drain
from tests.compat.conftest import Cluster
from tests.support.java import Judge


async def test_a_service_at_apaches_broker(
    apache: Cluster, judge: Judge, topic: Callable[[Any, Judge, int], str], fresh: Callable[[str], str]
) -> None:
    orders, bills, steps = (topic(apache, judge, 4) for _ in range(3))
    broker = RocketMQBroker(apache.address, group=fresh("shop"), logger=None)
    seen: list[Any] = []
    news = asyncio.Event()

    async def reaches(count: int) -> None:
        async with asyncio.timeout(60):
            while len(seen) < count:
                news.clear()
                await news.wait()

    @broker.subscriber(orders, expression="new || paid")
    @broker.publisher(bills, tags="bill")
    async def cook(number: int, message: RocketMQMessage) -> dict[str, int]:
        if message.raw_message.reconsume_times == 0:
            raise NackMessage(delay_level=1)
        seen.append(number)
        news.set()
        return {"bill": number}

    @broker.subscriber(steps, orderly=True, max_workers=4)
    async def take(step: list[int]) -> list[int]:
        seen.append(step)
        news.set()
        return step

    async with broker:
        await broker.start()
        await broker.publish(7, orders, tags="new", headers={"table": "3"})
        await broker.publish(8, orders, tags="old")
        await reaches(1)
        await broker.publish_batch([1, 1], [1, 2], [1, 3], topic=steps, ordered_by="one")
        await reaches(4)
        answer = await broker.request([2, 1], steps, timeout=30)
        assert await answer.decode() == [2, 1]
    assert seen == [7, [1, 1], [1, 2], [1, 3], [2, 1]]

    with JavaClients(judge).puller(fresh("readers"), apache.address) as puller:
        [bill] = await asyncio.to_thread(drain, puller, bills)
    assert (bill.body, bill.tags) == (b'{"bill":7}', "bill")
    assert bill.properties["contentType"] == "application/json"
