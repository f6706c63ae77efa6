"""The disk answers EIO once: nothing is acknowledged that is not on it, and the broker reads on or ends.

What the kernel could not write it drops, and a second fsync of the same file succeeds; after the error the power fails,
so that only what was truly on the disk is judged.
"""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path

import pytest

from tests.support.disks import LossyDisk, needs_lossy_disk
from tests.support.history import History, judge
from tests.support.load import Load, read, settled
from tests.support.lone import LoneBroker
from tests.support.peers import Peer
from tests.support.processes import NotReady
from tests.support.programme import ENOUGH, amount, chance, rounds

pytestmark = [needs_lossy_disk, ENOUGH]
SYNC = {"flushDiskType": "SYNC_FLUSH"}
CREATE_TOPIC, SERVICE_NOT_AVAILABLE = 17, 14


@pytest.mark.parametrize("operation", ["fsync", "write"])
async def test_the_log_cannot_be_flushed(tmp_path: Path, operation: str) -> None:
    random = chance(f"eio/{operation}")
    history = History()
    with LossyDisk(tmp_path / "disk") as disk:
        store = disk.folder / "store"
        broker = await LoneBroker.start(tmp_path, store, SYNC)
        try:
            for _ in rounds(3, 75, seconds=8):
                async with Load(broker.address, history) as load:
                    await load.until(1)
                    disk.tell("fail", operation, random.randrange(1, 30), "/commitlog/0")
                    await load.until(50, SERVICE_NOT_AVAILABLE)  # what was flushed before is acknowledged meanwhile
                    acknowledged = load.answers[0]
                    await load.until(load.answers[SERVICE_NOT_AVAILABLE] + 50, SERVICE_NOT_AVAILABLE)
                    assert load.answers[0] == acknowledged
                    assert judge(history, await read(broker.address, history)) == []  # it reads on
                    assert "flush_failed" in broker.output
                    disk.tell("off", random.randrange(1 << 30), "drop")
                    await asyncio.to_thread(broker.kill)
                disk.come_back()
                broker = await LoneBroker.start(tmp_path, store, SYNC)
                await settled(broker.address, history)
        finally:
            broker.kill()
    assert history.acknowledged > 0


async def test_what_could_not_be_flushed_is_on_the_disk_when_the_next_start_shows_it(tmp_path: Path) -> None:
    """The power fails only after that start: until then memory shows what the disk has not."""
    random = chance("eio/shown")
    history = History()
    with LossyDisk(tmp_path / "disk") as disk:
        store = disk.folder / "store"
        broker = await LoneBroker.start(tmp_path, store, SYNC)
        try:
            for _ in rounds(2, 50, seconds=8):
                async with Load(broker.address, history, padding=3000) as load:  # a flush covers whole pages
                    await load.until(1)
                    disk.tell("fail", "fsync", random.randrange(1, 30), "/commitlog/0")
                    await load.until(50, SERVICE_NOT_AVAILABLE)
                    await asyncio.to_thread(broker.kill)
                broker = await LoneBroker.start(tmp_path, store, SYNC)
                shown = await read(broker.address, history)
                assert judge(history, shown) == []
                for queue, messages in shown.items():
                    for offset, body in messages:
                        history.promise(queue, offset, body)
                async with Load(broker.address, history, padding=3000) as load:
                    await load.until(50)
                    disk.tell("off", random.randrange(1 << 30), "drop")
                    await asyncio.to_thread(broker.kill)
                disk.come_back()
                broker = await LoneBroker.start(tmp_path, store, SYNC)
                await settled(broker.address, history)
        finally:
            broker.kill()


@pytest.mark.parametrize("part", ["/consumequeue/", "/index/", "/checkpoint", "/eruca.mark"])
async def test_another_file_fails(tmp_path: Path, part: str) -> None:
    random = chance(f"eio/{part}")
    history = History()
    with LossyDisk(tmp_path / "disk") as disk:
        store = disk.folder / "store"
        broker = await LoneBroker.start(tmp_path, store, SYNC)
        try:
            for number in rounds(2, 20, seconds=4):
                async with Load(broker.address, history) as load:
                    await load.until(50)
                    disk.tell("fail", ("write", "fsync")[number % 2], random.randrange(1, 4), part)
                    await load.until(load.answers[0] + amount(200, 1000))
                    disk.tell("off", random.randrange(1 << 30), "drop")
                    await asyncio.to_thread(broker.kill)
                    assert set(load.answers) <= {0, SERVICE_NOT_AVAILABLE}
                disk.come_back()
                broker = await LoneBroker.start(tmp_path, store, SYNC)
                await settled(broker.address, history)
        finally:
            broker.kill()


async def test_a_topic_that_cannot_be_saved_is_not_acknowledged(tmp_path: Path) -> None:
    with LossyDisk(tmp_path / "disk") as disk:
        broker = await LoneBroker.start(tmp_path, disk.folder / "store", SYNC)
        peer = await Peer().connect(broker.address)
        fields = {"topic": "New", "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
        fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
        try:
            for operation in ("fsync", "write"):
                disk.tell("fail", operation, 1, "/topics.json")
                answer = await peer.ask(CREATE_TOPIC, fields)
                assert answer.code == 1 and answer.remark is not None
                assert re.search(r"Input/output error", answer.remark), answer.remark
            assert (await peer.ask(CREATE_TOPIC, fields)).code == 0
        finally:
            await peer.close()
            broker.kill()


async def test_the_log_cannot_be_read_at_the_start(tmp_path: Path) -> None:
    random = chance("eio/read")
    history = History()
    with LossyDisk(tmp_path / "disk") as disk:
        store = disk.folder / "store"
        broker = await LoneBroker.start(tmp_path, store, SYNC)
        try:
            for number in rounds(2, 20, seconds=8):
                async with Load(broker.address, history) as load:
                    await load.until(100)
                    disk.tell("off", number, "drop")
                    await asyncio.to_thread(broker.kill)
                disk.come_back()
                disk.tell("fail", "read", random.randrange(1, 6), "/commitlog/0")
                try:
                    broker = await LoneBroker.start(tmp_path, store, SYNC)
                except NotReady as ended:
                    assert re.search(rf"ended with (1|-{signal.SIGBUS:d})\.", str(ended)), ended
                    broker = await LoneBroker.start(tmp_path, store, SYNC)
                await settled(broker.address, history)
        finally:
            broker.kill()


SWALLOWED = """
import os
real = os.fdatasync
def fdatasync(fd):
    try:
        real(fd)
    except OSError:
        pass
os.fdatasync = fdatasync
"""


async def test_a_broker_that_passes_over_errors_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: a flush that failed counts as one."""
    (tmp_path / "sitecustomize.py").write_text(SWALLOWED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    history = History()
    with LossyDisk(tmp_path / "disk") as disk:
        broker = await LoneBroker.start(tmp_path, disk.folder / "store", SYNC)
        try:
            async with Load(broker.address, history, padding=3000) as load:  # a flush covers whole pages
                await load.until(20)
                disk.tell("fail", "fsync", 1, "/commitlog/0")
                await load.until(load.answers[0] + 100)
                assert load.answers[SERVICE_NOT_AVAILABLE] == 0
                disk.tell("off", 1, "drop")
                await asyncio.to_thread(broker.kill)
            disk.come_back()
            broker = await LoneBroker.start(tmp_path, disk.folder / "store", SYNC)
            assert any("lost: " in fault for fault in judge(history, await read(broker.address)))
        finally:
            broker.kill()
