"""A scrape of very many topics, and what the clients of the broker feel of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter

import pytest

from tests.support.eruca import ErucaBroker, ErucaNameServer
from tests.support.pages import Scrape, scrape
from tests.support.peers import Peer
from tests.support.ports import free_port

pytestmark = [pytest.mark.processes, pytest.mark.slow]

TOPICS = 5000
AT_ONCE = 100
MOST_SERIES = 2000
LONGEST = 0.020
"""Seconds of the probe, in 99 of 100 cases."""
ROUNDS = 5
"""Rounds of scrapes; a busy machine disturbs some of them."""


async def use(peer: Peer, number: int) -> None:
    """Let a topic have a message and a group an offset in it."""
    topic, queue = f"T{number}", str(number % 8)
    send = {
        "producerGroup": "pg",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "8",
        "queueId": queue,
        "sysFlag": "0",
        "bornTimestamp": "1",
        "flag": "0",
    }
    assert (await peer.ask(10, send, bytes(100))).code == 0
    commit = {"consumerGroup": "kitchen", "topic": topic, "queueId": queue, "commitOffset": "0"}
    assert (await peer.ask(15, commit)).code == 0


async def probed(peer: Peer, work: Callable[[], Awaitable[Scrape]]) -> tuple[Scrape, float]:
    """What ``work`` returns, and the 99 % quantile of what small requests took meanwhile."""
    task = asyncio.ensure_future(work())
    took = []
    while not task.done():
        begin = perf_counter()
        assert (await peer.ask(30, {"topic": "T1", "queueId": "1"})).code == 0
        took.append(perf_counter() - begin)
        await asyncio.sleep(0.001)
    return await task, sorted(took)[int(len(took) * 0.99)]


async def test_clients_do_not_feel_a_scrape_of_5000_topics(tmp_path: Path) -> None:
    nameserver = await asyncio.to_thread(ErucaNameServer, tmp_path)
    port = free_port()
    broker = await asyncio.to_thread(ErucaBroker, tmp_path, nameserver.address, {"metricsPort": str(port)})
    peer = await Peer("JAVA", 407, None).connect(broker.address)
    try:
        for first in range(0, TOPICS, AT_ONCE):
            await asyncio.gather(*(use(peer, number) for number in range(first, first + AT_ONCE)))

        rounds = [await probed(peer, lambda: scrape(port)) for _ in range(ROUNDS)]
    finally:
        await peer.close()
        await asyncio.to_thread(broker.stop)
        await asyncio.to_thread(nameserver.stop)

    found = rounds[-1][0]
    for name in ("rocketmq_messages_in_total", "rocketmq_consumer_lag_messages", "rocketmq_consumer_lag_latency"):
        assert len(found.all(name)) == MOST_SERIES + 1
        assert len(found.all(name, topic="_other")) == 1
    assert sum(found.all("rocketmq_messages_in_total").values()) == TOPICS
    assert sum(found.all("rocketmq_consumer_lag_messages").values()) == TOPICS
    assert sum(found.all("rocketmq_message_size_count").values()) == TOPICS
    assert min(quantile for _, quantile in rounds) <= LONGEST
