"""One broker process that is master and slave by turns: nothing of the changes is left in the end.

Three hundred changes, a thousand with ERUCA_TORTURE=1.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.broker.services.replication.pairs import HandSlave
from tests.support import half_messages
from tests.support.lone import LoneBroker
from tests.support.pages import page
from tests.support.peers import Peer
from tests.support.ports import free_port
from tests.support.programme import LONG
from tests.support.sends import message

pytestmark = [pytest.mark.processes, pytest.mark.slow]

CHANGES, WARM = 1000 if LONG else 300, 100
CHANGE, SEND, STATUS = 25, 310, 907
MEBIBYTE = 1 << 20


@pytest.fixture
def master(tmp_path: Path) -> Iterator[LoneBroker]:
    with LoneBroker(tmp_path / "a", tmp_path / "a" / "store", {"flushDiskType": "SYNC_FLUSH"}) as broker:
        yield broker


def ha_address(broker: LoneBroker) -> str:
    host, _, port = broker.address.rpartition(":")
    return f"{host}:{int(port) + 1}"


def sockets_of(pid: int) -> int:
    """How many sockets a process has open; what it closes meanwhile does not count."""
    count = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            count += os.readlink(descriptor).startswith("socket:")
    return count


class Turning:
    """The broker under test: it follows the other one, or is a master with a slave by hand."""

    def __init__(self, broker: LoneBroker, metrics: int, end: int) -> None:
        self.broker = broker
        self.metrics = metrics
        self.peer = Peer()
        self._end = end

    async def become(self, role: str) -> None:
        answer = await self.peer.ask(CHANGE, {}, f"brokerRole={role}".encode())
        assert answer.code == 0, answer.remark

    async def following(self) -> None:
        """Wait until it follows its master."""
        async with asyncio.timeout(20):
            while b'"activated":true' not in (await self.peer.ask(STATUS)).body:
                pass

    async def change_twice(self) -> None:
        await self.become("SYNC_MASTER")
        hand = await HandSlave().connect(ha_address(self.broker))
        hand.report(self._end)
        await hand.any_frame()
        await self.become("SLAVE")
        assert await hand.closed()
        await hand.close()
        await self.following()

    async def left(self) -> tuple[int, int]:
        """The tasks and the sockets of the broker."""
        found = re.search(r"(?m)^eruca_tasks(?:\{[^}]*\})? (\d+)", (await page(self.metrics, "/metrics")).text)
        assert found is not None
        return int(found.group(1)), sockets_of(self.broker.pid)


async def test_changes_of_role_leave_no_task_connection_or_megabyte(
    tmp_path: Path, master: LoneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = await Peer().connect(master.address)
    for number in range(50):
        assert (await peer.ask(SEND, half_messages.half(f"H{number}"), b"half")).code == 0
        answer = await peer.ask(SEND, message(i=f"DELAY\x0118\x02UNIQ_KEY\x01D{number}"), b"in two hours")
        assert answer.code == 0
    end = json.loads((await peer.ask(STATUS)).body)["masterCommitLogMaxOffset"]
    metrics = free_port()
    monkeypatch.setenv("ERUCA_METRICS_PORT", str(metrics))
    settings = {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": ha_address(master)}
    settings |= {"haSendHeartbeatInterval": "50", "slaveTimeout": "1000"}
    with LoneBroker(tmp_path / "b", tmp_path / "b" / "store", settings) as broker:
        turning = Turning(broker, metrics, end)
        await turning.peer.connect(broker.address)
        await turning.following()
        for _ in range(WARM // 2):
            await turning.change_twice()
        before, memory = await turning.left(), broker.memory()["anonymous"]
        for _ in range((CHANGES - WARM) // 2):
            await turning.change_twice()
        async with asyncio.timeout(10):  # a connection that only compared logs may just be ending
            while await turning.left() > before:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert broker.memory()["anonymous"] - memory < MEBIBYTE
        await turning.peer.close()
        assert "copy_refused" not in (tmp_path / "b" / "broker.out").read_text()
    await peer.close()
