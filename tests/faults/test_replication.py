"""Cuts, partitions, slow lines and kills between a SYNC_MASTER and its slave: every 0 is on the slave."""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path
from random import Random

import pytest

from tests.support.history import History, judge
from tests.support.load import Load, read, send
from tests.support.lone import LoneBroker
from tests.support.peers import Peer
from tests.support.programme import ENOUGH, chance, rounds
from tests.support.proxy import Proxy

pytestmark = pytest.mark.processes

RESUMED_WITHIN = 10.0
"""Seconds from the end of a fault until a send is confirmed by the slave again."""
SETTINGS = {"haSendHeartbeatInterval": "500", "haHousekeepingInterval": "3000", "slaveTimeout": "1000"}
MASTER = {**SETTINGS, "brokerRole": "SYNC_MASTER"}


def slave_settings(proxy: Proxy) -> dict[str, str]:
    return {**SETTINGS, "brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": proxy.address}


async def confirmed_again(address: str, history: History) -> None:
    """Wait until a send is answered with 0."""
    peer = await Peer().connect(address)
    try:
        async with asyncio.timeout(RESUMED_WITHIN):
            while True:
                body = history.next_body(0, 50)
                answer = await send(peer, 0, body)
                if answer.code == 0:
                    history.promise(0, int(answer.fields["queueOffset"]), body)
                    return
                await asyncio.sleep(0.02)
    finally:
        await peer.close()


async def suffer(proxy: Proxy, random: Random) -> str:
    """One fault of the line, under load; ended when this returns."""
    kind = random.choice(["cut", "partition", "slow", "stall", "pieces"])
    match kind:
        case "cut":
            for _ in range(5):
                proxy.cut_after = proxy.forwarded + random.randrange(1, 40_000)
                await asyncio.sleep(random.random() * 0.2)
        case "partition":
            proxy.blocked = True
            proxy.cut()
            await asyncio.sleep(random.random())
            proxy.blocked = False
        case "slow":  # 1 Mbit/s
            proxy.piece, proxy.delay = 1250, 0.01
            await asyncio.sleep(0.5)
        case "stall":  # what losing packets comes to above TCP
            proxy.delay = random.uniform(0.2, 1.2)
            await asyncio.sleep(1.0)
        case "pieces":
            proxy.piece, proxy.delay = random.choice([1, 7, 100]), 0.0
            await asyncio.sleep(0.3)
    proxy.piece, proxy.delay, proxy.cut_after = None, 0.0, None
    return kind


@ENOUGH
async def test_what_a_sync_master_acknowledged_is_on_its_slave(tmp_path: Path) -> None:
    random = chance("replication")
    history = History()
    master = await LoneBroker.start(tmp_path / "master", tmp_path / "master" / "store", MASTER)
    host, _, port = master.address.rpartition(":")
    proxy = await Proxy(f"{host}:{int(port) + 1}").start()
    slave = await LoneBroker.start(tmp_path / "slave", tmp_path / "slave" / "store", slave_settings(proxy))
    suffered = []
    try:
        await confirmed_again(master.address, history)
        for number in rounds(6, 60, seconds=25):
            load = Load(master.address, history, producers=2, padding=random.randrange(400))
            async with load:
                await load.until(random.randrange(50, 400))
                suffered.append(await suffer(proxy, random))
                if number % 3 == 1:
                    slave.signal(signal.SIGSTOP)
                    await asyncio.sleep(0.3)
                    slave.signal(signal.SIGCONT)
                if number % 2:
                    slave.kill()
                    slave = await LoneBroker.start(
                        tmp_path / "slave", tmp_path / "slave" / "store", slave_settings(proxy)
                    )
                await confirmed_again(master.address, history)
                await load.until(load.answers[0] + 50)
            slave.kill()
            assert judge(history, await what_it_has(tmp_path, history)) == []
            slave = await LoneBroker.start(tmp_path / "slave", tmp_path / "slave" / "store", slave_settings(proxy))
            await confirmed_again(master.address, history)
        print(f"{history.acknowledged} acknowledged, all on the slave after {', '.join(suffered)}")
        assert len(suffered) >= 2 and history.acknowledged > 200
    finally:
        slave.kill()
        master.kill()
        await proxy.stop()


async def test_a_master_that_waits_for_nobody_is_found_out(tmp_path: Path) -> None:
    """The planted fault: an ASYNC_MASTER, behind a line that is cut."""
    history = History()
    settings = {**MASTER, "brokerRole": "ASYNC_MASTER"}
    master = await LoneBroker.start(tmp_path / "master", tmp_path / "master" / "store", settings)
    host, _, port = master.address.rpartition(":")
    proxy = await Proxy(f"{host}:{int(port) + 1}").start()
    slave = await LoneBroker.start(tmp_path / "slave", tmp_path / "slave" / "store", slave_settings(proxy))
    try:
        proxy.blocked = True
        proxy.cut()
        async with Load(master.address, history, producers=1) as load:
            await load.until(50)
        slave.kill()
        faults = judge(history, await what_it_has(tmp_path, history))
        assert sum("lost: " in fault for fault in faults) >= 50
    finally:
        slave.kill()
        master.kill()
        await proxy.stop()


async def what_it_has(tmp_path: Path, history: History) -> dict[int, list[tuple[int, bytes]]]:
    """All messages of a copy of the slave's store, opened as a master's."""
    shutil.rmtree(tmp_path / "copy", ignore_errors=True)
    shutil.copytree(tmp_path / "slave" / "store", tmp_path / "copy" / "store")
    alone = await LoneBroker.start(tmp_path / "copy", tmp_path / "copy" / "store")
    try:
        peer = await Peer().connect(alone.address)
        assert (await send(peer, 0, history.next_body(0, 99))).code == 0  # makes the topic, which it has not fetched
        await peer.close()
        return await read(alone.address)
    finally:
        alone.kill()
