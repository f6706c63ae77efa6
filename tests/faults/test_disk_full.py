"""A disk that is full: sends get the right code, reads go on, nothing dies, and it works again when there is room."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.disks import SmallDisk
from tests.support.history import History, judge
from tests.support.load import Load, read, settled
from tests.support.lone import LoneBroker
from tests.support.programme import ENOUGH, amount, chance, rounds

pytestmark = [pytest.mark.processes, ENOUGH]
SERVICE_NOT_AVAILABLE = 14
SIZE = amount(16, 64) << 20
KEEP_ALL = {"diskMaxUsedSpaceRatio": "90", "cleanFileForciblyEnable": "false", "cleanResourceInterval": "100"}


@pytest.mark.parametrize("mark", ["0.90", "1.0"], ids=["at the mark", "no room at all"])
async def test_a_full_disk(tmp_path: Path, mark: str) -> None:
    random = chance(f"full/{mark}")
    history = History()
    settings = {**KEEP_ALL, "diskSpaceWarningLevelRatio": mark, "diskSpaceCleanForciblyRatio": mark}
    with SmallDisk(tmp_path / "disk", SIZE) as disk:
        ballast = disk.folder / "ballast"
        broker = await LoneBroker.start(tmp_path, disk.folder / "store", settings)
        try:
            for number in rounds(2, 20, seconds=12):
                async with Load(broker.address, history, padding=200) as load:
                    await load.until(random.randrange(1, 300))
                    fill(disk.folder, ballast)
                    await load.until(100, SERVICE_NOT_AVAILABLE)
                    assert judge(history, await read(broker.address, history)) == []
                    if number % 2:
                        broker.kill()
                        broker = await LoneBroker.start(tmp_path, disk.folder / "store", settings)
                        assert judge(history, await read(broker.address, history)) == []
                        ballast.unlink()
                    else:
                        ballast.unlink()
                        await load.until(load.answers[0] + 100)
                async with Load(broker.address, history) as load:
                    await load.until(100)
                    await load.drained()
                assert broker.running, broker.output
                await settled(broker.address, history)
            assert broker.stop() == 0, broker.output
        finally:
            broker.kill()
    print(f"{history.acknowledged} acknowledged, 0 lost")


def fill(folder: Path, ballast: Path) -> None:
    """Take all the room that is left."""
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while os.statvfs(folder).f_bfree:
            file.write(bytes(4096))


def _oldest(log: Path) -> int:
    return min(int(path.name) for path in log.iterdir())


async def test_old_files_make_room(tmp_path: Path) -> None:
    """Past the mark of 85 % the oldest files go, and sends are refused at most for a moment."""
    history = History()
    settings = {"diskSpaceWarningLevelRatio": "0.90", "diskSpaceCleanForciblyRatio": "0.85", **{"deleteWhen": "04"}}
    settings |= {"cleanResourceInterval": "50", "mappedFileSizeConsumeQueue": "2000", "diskMaxUsedSpaceRatio": "80"}
    with SmallDisk(tmp_path / "disk", SIZE) as disk:
        broker = await LoneBroker.start(tmp_path, disk.folder / "store", settings)
        try:
            async with Load(broker.address, history, padding=16_000) as load:
                async with asyncio.timeout(60):
                    while history.acknowledged < amount(1500, 6000):  # 16 kB each: more than the disk holds
                        await load.until(load.answers[0] + 100)
                await load.drained()
            assert broker.running, broker.output
            log = disk.folder / "store" / "commitlog"
            oldest = found = None
            while oldest is None or oldest != _oldest(log):  # no file went while it was read
                oldest = _oldest(log)
                found = await read(broker.address)
            assert oldest > 0 and found is not None
            first = {queue: messages[0][0] for queue, messages in found.items()}
            for place in [place for place in history.told if place[1] < first[place[0]]]:
                del history.told[place]  # retention's, not lost
            assert judge(history, found) == []
            assert len(history.told) > 100
        finally:
            broker.kill()
