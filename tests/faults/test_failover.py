"""Masters of a group are killed: the next one goes on within seconds, and has all that was acknowledged."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.support.etcd import needs_etcd
from tests.support.failover_cluster import FailoverCluster, bodies

pytestmark = [needs_etcd, pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(300)]


def judged(group: FailoverCluster, logs: dict[int, bytes]) -> None:
    """All logs are equal, and hold each acknowledged message, in the order in which they were acknowledged."""
    assert len(set(logs.values())) == 1
    found = bodies(logs[1])
    places = {body: place for place, body in enumerate(found)}  # the last one, of those that were sent again
    assert [body for body in group.acknowledged if body not in places] == []
    order = [places[body] for body in group.acknowledged]
    assert order == sorted(order)


async def test_killed_masters_are_replaced_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    pauses = []
    async with FailoverCluster(tmp_path) as group:
        await group.send()
        await group.all_in_set()
        for _ in range(4):
            for _ in range(200):
                master = await group.send()
            group.kill(master)
            begun = time.monotonic()
            await group.send()
            pauses.append(time.monotonic() - begun)
            await group.start(master)
            await group.all_in_set()
        judged(group, await group.logs())
    print(f"{len(group.acknowledged):,} messages; pauses of {', '.join(f'{each:.2f}' for each in pauses)} s")


async def test_a_master_that_slept_has_acknowledged_nothing_that_the_next_one_lacks(tmp_path: Path) -> None:
    async with FailoverCluster(tmp_path) as group:
        await group.send()
        await group.all_in_set()
        for _ in range(50):
            master = await group.send()
        group.brokers[master].signal(signal.SIGSTOP)
        begun = time.monotonic()
        assert await group.send() != master
        pause = time.monotonic() - begun
        for _ in range(50):
            await group.send()
        group.brokers[master].signal(signal.SIGCONT)
        await group.all_in_set()
        output = group.brokers[master].output
        assert "rejoining" in output and "log_cut" in output  # the send that came while it slept
        judged(group, await group.logs())
    print(f"a pause of {pause:.2f} s")
