"""A master is drained before it stops, as docs/operations.md says: no send fails, and nothing waits in it any more."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from eruca.client import ClientSettings
from tests.support.mqadmin_calls import mqadmin
from tests.support.pairs import Pairs
from tests.support.programme import ENOUGH, LONG
from tests.support.traffic import TOPIC, Reader, Traffic

pytestmark = [pytest.mark.processes, pytest.mark.slow, ENOUGH]

QUEUES = 4
ROUTE_INTERVAL = 1.0
"""Seconds until producers look whether a broker may be written; 30 by default."""


async def operator(pairs: Pairs, *arguments: str) -> str:
    status, said = await mqadmin(arguments, {"NAMESRV_ADDR": pairs.address})
    assert status == 0, said
    return said


async def set_permission(pairs: Pairs, name: str, permission: int) -> None:
    address = pairs.broker_address(name)
    said = await operator(pairs, "updateBrokerConfig", "-b", address, "-k", "brokerPermission", "-v", str(permission))
    assert "success" in said


async def figure(pairs: Pairs, name: str, key: str) -> str:
    said = await operator(pairs, "brokerStatus", "-b", pairs.broker_address(name))
    found = re.search(rf"^{key}\s*: *(\S+)", said, re.M)
    assert found is not None, said
    return found[1]


async def lag(pairs: Pairs, name: str) -> int:
    said = await operator(pairs, "brokerConsumeStats", "-b", pairs.broker_address(name))
    return int(said.rpartition("Diff Total: ")[2])


async def drain(pairs: Pairs, name: str) -> None:
    """The recipe."""
    await set_permission(pairs, name, 4)
    before = ""
    while before != (before := await figure(pairs, name, "commitLogMaxOffset")):  # noqa: ASYNC110
        await asyncio.sleep(2 * ROUTE_INTERVAL)  # what the recipe waits for: until then producers may come
    while await lag(pairs, name):  # noqa: ASYNC110
        await asyncio.sleep(0.1)


async def test_a_drained_master_stops_and_no_send_fails(tmp_path: Path) -> None:
    async with Pairs(tmp_path) as pairs:
        await pairs.create_topic(TOPIC, QUEUES)
        await pairs.followed()
        settings = ClientSettings(nameserver=pairs.address, route_interval=ROUTE_INTERVAL)
        async with Reader(pairs.address, "readers") as reader, Traffic(pairs.address, settings=settings) as traffic:
            for name in ("a", "b") if LONG else ("a",):
                await traffic.more(100)
                await drain(pairs, name)
                end = await figure(pairs, name, "commitLogMaxOffset")
                stored = {body for body, home in traffic.acknowledged.items() if home == f"broker-{name}"}
                assert stored and stored <= reader.got
                await traffic.more(100)
                assert await figure(pairs, name, "commitLogMaxOffset") == end, "nothing came any more"
                await pairs.stop(name)
                await traffic.more(100)
                assert "brokerPermission=4" in (tmp_path / name / "broker.conf").read_text(), "it stays so"
                await pairs.start(name, {"brokerPermission": "4"})
                await set_permission(pairs, name, 6)
                at = sum(home == f"broker-{name}" for home in traffic.acknowledged.values())
                while sum(home == f"broker-{name}" for home in traffic.acknowledged.values()) < at + 50:
                    await traffic.more(10)
                await pairs.followed()
            await reader.has(set(traffic.acknowledged))
    assert traffic.failures == []
    print(f"{len(traffic.acknowledged)} acknowledged, all consumed, 0 failed, slowest send {traffic.slowest:.2f} s")
