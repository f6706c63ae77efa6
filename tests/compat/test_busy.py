"""Bursts of RocketMQ 5's Java client, which tries a send three times without a pause, at a busy broker of Eruca's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from tests.bench.overload import held_up
from tests.bench.restart import LARGE_FILES
from tests.compat.clients import JavaClients, Letter
from tests.support.eruca import ErucaCluster
from tests.support.java import Judge


async def test_no_send_of_a_burst_is_lost_to_a_broker_that_is_held_up(
    tmp_path: Path, judge5: Judge, fresh: Callable[[str], str]
) -> None:
    topic = fresh("Bursts")
    with (
        ErucaCluster(tmp_path, {**LARGE_FILES, "brokerFastFailureEnable": "true"}) as cluster,
        JavaClients(judge5).producer(fresh("producers"), cluster.address, timeoutMs=3000) as producer,
    ):
        producer.send([Letter(topic, b"first")])
        for running, stopped in ((1.0, 0.0), (0.1, 0.3)):
            async with held_up(cluster.broker.process, running, stopped):
                for count in (512, 2048, 8192):
                    letters = [Letter(topic, f"订单 {n}".encode(), keys=f"键{n}") for n in range(count)]
                    sent = await asyncio.to_thread(producer.send, letters, "async")  # fails where one fails
                    assert len(sent) == count
