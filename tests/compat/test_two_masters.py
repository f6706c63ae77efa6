"""Java's producer and consumer while masters stop, are killed and come back: no send fails, nothing is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from tests.compat.clients import JavaClients, Letter
from tests.support.java import Judge
from tests.support.pairs import BROKERS, MASTERS, Pairs

TOPIC, PATIENCE = "Traffic", 90.0
STORED = {"SEND_OK", "SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT"}


async def test_java_goes_on_whichever_master_is_away(tmp_path: Path, judge: Judge, fresh: Callable[[str], str]) -> None:
    java = JavaClients(judge)
    homes: dict[bytes, str] = {}
    got: set[bytes] = set()
    async with Pairs(tmp_path) as pairs:
        await pairs.create_topic(TOPIC, 4)
        await pairs.followed()
        with (
            java.producer(fresh("producers"), pairs.address) as producer,
            java.member(fresh("group"), pairs.address, {TOPIC: "*"}) as member,
        ):

            def send(count: int) -> set[str]:
                """So many messages, one after the other; which brokers took them."""
                took = set()
                for _ in range(count):
                    body = b"%d" % len(homes)
                    [sent] = producer.send([Letter(TOPIC, body)])
                    assert sent.status in STORED
                    homes[body] = sent.queue.broker
                    took.add(sent.queue.broker)
                return took

            assert await asyncio.to_thread(send, 40) == {"broker-a", "broker-b"}
            await pairs.stop("a")
            assert await asyncio.to_thread(send, 40) == {"broker-b"}
            await pairs.start("a")
            await uses(send, "broker-a")
            pairs.kill("b")
            assert await asyncio.to_thread(send, 40) == {"broker-a"}
            await pairs.start("b")
            await uses(send, "broker-b")
            for number in range(2):
                await pairs.restart_nameserver(number)
                await asyncio.to_thread(send, 20)
            for name in reversed(BROKERS):
                await pairs.stop(name)
                await asyncio.to_thread(send, 20)
                await pairs.start(name)
                if name in MASTERS:
                    await uses(send, f"broker-{name}")
            deadline = time.monotonic() + PATIENCE
            while not homes.keys() <= got and time.monotonic() < deadline:
                got.update(each.body for each in await asyncio.to_thread(member.received, 1, 5))
    assert homes.keys() == got


async def uses(send: Callable[[int], set[str]], broker: str) -> None:
    """Send until the producer uses a broker again that was away; Java asks for routes every 30 s."""
    async with asyncio.timeout(PATIENCE):
        while broker not in await asyncio.to_thread(send, 4):  # noqa: ASYNC110 (the route is Java's)
            await asyncio.sleep(0.5)
