"""kill -9 again and again while four producers send to four queues: nothing acknowledged is lost, order is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.history import History, judge
from tests.support.load import Load, read, settled
from tests.support.lone import LoneBroker
from tests.support.programme import ENOUGH, LONG, chance, rounds

pytestmark = pytest.mark.processes


@ENOUGH
@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_killed_under_load(tmp_path: Path, mode: str) -> None:
    random = chance(f"killed/{mode}")
    history = History()
    slowest = 0.0
    broker = await LoneBroker.start(tmp_path, tmp_path / "store", {"flushDiskType": mode})
    try:
        for _ in rounds(10, 150, seconds=12):
            load = Load(broker.address, history, padding=random.randrange(400))
            async with load:
                await load.until(random.randrange(1, 3000 if LONG else 900))
                broker.kill()
            broker = await LoneBroker.start(tmp_path, tmp_path / "store", {"flushDiskType": mode})
            slowest = max(slowest, broker.startup)
            await settled(broker.address, history)
        history.settled.clear()
        everything = await read(broker.address)
        assert judge(history, everything) == []
        assert sum(map(len, everything.values())) >= history.acknowledged > 0
        print(f"{mode}: {history.acknowledged} acknowledged, 0 lost, slowest start {slowest:.1f} s")
        busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        assert slowest <= 5 * busy  # seconds, with the processors for itself
    finally:
        broker.kill()
