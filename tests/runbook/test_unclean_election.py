"""The power of all brokers of a group fails with ASYNC_FLUSH: the recipe of the runbook (no-master) brings it back.

etcd and the brokers are processes; what a power failure takes is made here: the machines are booted again, and the ends
of the logs are zeros. The lines of the page run as they stand, but for that of etcdctl, whose keys are deleted by our
own client.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from eruca.broker.coordination.etcd import Etcd
from tests.house.tree import ROOT
from tests.support.etcd import needs_etcd
from tests.support.failover_cluster import FailoverCluster, bodies
from tests.support.sends import message

pytestmark = [needs_etcd, pytest.mark.processes, pytest.mark.slow]
BIN = Path(sys.executable).parent
SEND = 310
_PAGE = (ROOT / "docs" / "runbook.md").read_text()
_RECIPE = re.search(r"(?m)^    etcdctl \S+ del --prefix (\S+)\n    (mqadmin .*)\n    (mqadmin .*)\n", _PAGE)


def fail_power(group: FailoverCluster, lost: dict[int, int]) -> None:
    """Of all machines at once; the log of each broker is lost from this message on."""
    for number in group.numbers:
        group.kill(number)
    for number, first in lost.items():
        (log,) = (group.store(number) / "commitlog").iterdir()
        data = log.read_bytes()
        torn = data.index(b"message %d" % first)
        with log.open("r+b") as file:
            file.seek(torn)
            file.write(bytes(len(data) - torn))
        clock = group.machines[number].clock
        assert clock is not None
        clock.boot()


async def delete(group: FailoverCluster, prefix: str) -> None:
    """``etcdctl del --prefix``."""
    etcd = Etcd(group.etcd.urls)
    try:
        keys = [*await etcd.read_all(prefix)]
        assert keys, "it is the prefix of the group"
        assert await etcd.change({}, [], keys) is not None
    finally:
        await etcd.close()


async def run(group: FailoverCluster, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of the page."""
    environment = os.environ | {"NAMESRV": group.names.address, "PATH": f"{BIN}:{os.environ['PATH']}"}
    return await asyncio.to_thread(
        subprocess.run, ["bash", "-c", line], env=environment, capture_output=True, text=True, check=False
    )


async def figures(group: FailoverCluster, name: str, wanted: str) -> None:
    """Wait until all brokers show it in their ``brokerStatus``."""
    async with asyncio.timeout(30):
        while {await group.figure(number, name) for number in group.numbers} != {wanted}:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_the_recipe_brings_back_a_group_all_of_whose_members_may_have_lost_their_ends(tmp_path: Path) -> None:
    assert _RECIPE is not None
    prefix, asks, takes = _RECIPE.groups()
    async with FailoverCluster(tmp_path, 2, machines=True) as group:
        if group.machines[1].clock is None:
            pytest.skip("needs gcc: the machines of the brokers are booted again")
        for _ in range(100):
            await group.send()
        await group.all_in_set()
        for number in group.numbers:
            await group.hang_up(number)
        fail_power(group, {1: 60, 2: 80})
        await asyncio.gather(*(group.start(number) for number in group.numbers))
        await figures(group, "masterSure", "false")
        assert all("store_id_lost" in broker.output for broker in group.brokers.values())
        for number in group.numbers:
            assert (await group.ask(number, SEND, message(), b"nobody leads")).code == 14

        await delete(group, prefix)
        await figures(group, "groupForgotten", "true")
        asked = await run(group, asks)
        assert asked.returncode == 1 and "name the master (-b 2) to take that loss" in asked.stderr, asked
        assert "broker 2" in asked.stderr
        taken = await run(group, takes)
        assert taken.returncode == 0, taken
        await group.all_in_set()
        assert await group.master() == 2
        group.acknowledged = group.acknowledged[:80]
        for _ in range(10):
            await group.send()
        logs = await group.logs()
    assert logs[1] == logs[2]
    assert [body for body in bodies(logs[2]) if body] == group.acknowledged
