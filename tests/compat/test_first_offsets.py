"""The first offsets of new groups, stored at once by Eruca's client: Apache's broker keeps all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from eruca.client import MessageQueue, PullConsumer
from tests.support.apache import ApacheCluster
from tests.support.java import Judge

GROUPS = 30
"""Every fifth of them lost an offset when all were sent side by side."""
QUEUES = 16


async def test_none_is_lost(
    apache: ApacheCluster, judge: Judge, topic: Callable[[Any, Judge, int], str], fresh: Callable[[str], str]
) -> None:
    name = await asyncio.to_thread(topic, apache, judge, QUEUES)
    queues = [MessageQueue(name, "broker-a", number) for number in range(QUEUES)]
    for _ in range(GROUPS):
        async with PullConsumer(fresh("group"), nameserver=apache.address) as consumer:
            await asyncio.gather(*(consumer.update_offset(queue, 7 + queue.queue_id) for queue in queues))
            stored = [await consumer.query_offset(queue) for queue in queues]
        assert stored == list(range(7, 7 + QUEUES))
