"""A master is drained before it stops, as docs/operations.md says: no send fails, and nothing waits in it any more."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from eruca.client import ClientSettings
from tests.support.pairs import Pairs
from tests.support.programme import ENOUGH, LONG
from tests.support.traffic import TOPIC, Reader, Traffic

pytestmark = [pytest.mark.processes, pytest.mark.slow, ENOUGH]

MQADMIN = str(Path(sys.executable).parent / "mqadmin")
QUEUES = 4


async def mqadmin(pairs: Pairs, *arguments: str) -> str:
    command = [MQADMIN, *arguments, "-n", pairs.address]
    done = await asyncio.to_thread(partial(subprocess.run, command, capture_output=True, text=True, timeout=60))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def set_permission(pairs: Pairs, name: str, permission: int) -> None:
    address = pairs.broker_address(name)
    said = await mqadmin(pairs, "updateBrokerConfig", "-b", address, "-k", "brokerPermission", "-v", str(permission))
    assert "success" in said


async def figure(pairs: Pairs, name: str, key: str) -> str:
    said = await mqadmin(pairs, "brokerStatus", "-b", pairs.broker_address(name))
    found = re.search(rf"^{key}\s*: *(\S+)", said, re.M)
    assert found is not None, said
    return found[1]


async def lag(pairs: Pairs, name: str) -> int:
    said = await mqadmin(pairs, "brokerConsumeStats", "-b", pairs.broker_address(name))
    return int(said.rpartition("Diff Total: ")[2])


async def drain(pairs: Pairs, name: str) -> None:
    """The recipe."""
    await set_permission(pairs, name, 4)
    before = ""
    while before != (before := await figure(pairs, name, "commitLogMaxOffset")):
        pass
    while await lag(pairs, name):
        pass


async def test_a_drained_master_stops_and_no_send_fails(tmp_path: Path) -> None:
    async with Pairs(tmp_path) as pairs:
        await pairs.create_topic(TOPIC, QUEUES)
        await pairs.followed()
        settings = ClientSettings(nameserver=pairs.address, route_interval=1)
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
