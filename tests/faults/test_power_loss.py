"""The power fails under load: with SYNC_FLUSH nothing acknowledged is lost, with ASYNC_FLUSH the last flush interval.

The disk below the broker loses what was not synced, or keeps a random half of its sectors ("torn"). What an
operator was told to be done is never lost.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.disks import LossyDisk, needs_lossy_disk
from tests.support.history import History, Told, holes, judge
from tests.support.load import QUEUES, TOPIC, Load, read, settled
from tests.support.lone import LoneBroker
from tests.support.peers import Peer
from tests.support.programme import ENOUGH, chance, rounds

pytestmark = [needs_lossy_disk, ENOUGH]
CREATE_TOPIC, ALL_TOPICS, CREATE_GROUP, ALL_GROUPS, COMMIT, OFFSETS, CLONE, MAX_OFFSET, OFFSET = (
    17,
    21,
    200,
    201,
    15,
    43,
    314,
    30,
    14,
)
ASYNC = {"flushDiskType": "ASYNC_FLUSH", "flushIntervalCommitLog": "100", "flushCommitLogLeastPages": "0"}
ASYNC |= {"mappedFileSizeCommitLog": str(16 << 20)}
"""One file holds the whole log, so that each flush is one fsync, whose beginning the disk tells."""


class Operator:
    """Who creates a topic, a group and offsets each round, and remembers what was acknowledged."""

    def __init__(self) -> None:
        self.done: set[str] = set()

    async def work(self, address: str, number: int) -> None:
        """Each of these answers promises that it is on disk."""
        peer = await Peer().connect(address)
        topic, group = f"topic-{number}", f"group-{number}"
        fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
        fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
        assert (await peer.ask(CREATE_TOPIC, fields)).code == 0
        self.done.add(f"topic {topic}")
        body = json.dumps({"groupName": group, "retryMaxTimes": number}).encode()
        assert (await peer.ask(CREATE_GROUP, {}, body)).code == 0
        self.done.add(f"group {group} {number}")
        place = {"consumerGroup": "source", "topic": TOPIC, "queueId": 0, "commitOffset": number}
        assert (await peer.ask(COMMIT, place)).code == 0
        clone = {"srcGroup": "source", "destGroup": group, "topic": TOPIC, "offline": "false"}
        assert (await peer.ask(CLONE, clone)).code == 0
        self.done.add(f"offset {group} {number}")
        await peer.close()

    async def missing(self, address: str) -> set[str]:
        """What was acknowledged and is not there."""
        peer = await Peer().connect(address)
        topics = json.loads((await peer.ask(ALL_TOPICS)).body)["topicConfigTable"]
        groups = json.loads((await peer.ask(ALL_GROUPS)).body)["subscriptionGroupTable"]
        offsets = json.loads(_quoted((await peer.ask(OFFSETS)).body))["offsetTable"]
        await peer.close()
        there = {f"topic {name}" for name in topics}
        there |= {f"group {name} {group['retryMaxTimes']}" for name, group in groups.items()}
        there |= {
            f"offset {key.partition('@')[2]} {offset}" for key, queues in offsets.items() for offset in queues.values()
        }
        return self.done - there


def _quoted(body: bytes) -> bytes:
    """fastjson writes numbers as keys without quotes."""
    return body.replace(b"{0:", b'{"0":')


@pytest.mark.parametrize("how", ["drop", "torn"])
async def test_nothing_is_lost_with_sync_flush(tmp_path: Path, how: str) -> None:
    random = chance(f"power/sync/{how}")
    history, operator = History(), Operator()
    with LossyDisk(tmp_path / "disk") as disk:
        store = disk.folder / "store"
        broker = await LoneBroker.start(tmp_path, store, {"flushDiskType": "SYNC_FLUSH"})
        try:
            for number in rounds(10, 100, seconds=12):
                async with Load(broker.address, history, padding=random.randrange(300)) as load:
                    await operator.work(broker.address, number)
                    await load.until(random.randrange(1, 250))
                    disk.tell("off", random.randrange(1 << 30), how)
                    await asyncio.to_thread(broker.kill)
                disk.come_back()
                broker = await LoneBroker.start(tmp_path, store, {"flushDiskType": "SYNC_FLUSH"})
                found = await read(broker.address, history)
                assert judge(history, found) == []
                assert await operator.missing(broker.address) == set()
                history.settle(found)
            print(f"{how}: {history.acknowledged} acknowledged, 0 lost")
            operator.done.add("topic never-made")
            assert await operator.missing(broker.address) == {"topic never-made"}
        finally:
            broker.kill()
    assert history.acknowledged > 0


async def test_nothing_is_lost_when_the_power_fails_soon_after_a_kill(tmp_path: Path) -> None:
    """What the killed process had written, the next one finds in memory, and perhaps the disk has not got it."""
    random = chance("power/after a kill")
    history = History()
    sync = {"flushDiskType": "SYNC_FLUSH", "mappedFileSizeCommitLog": str(1 << 16), "maxMessageSize": "4096"}
    sync |= {"flushIntervalConsumeQueue": "20", "mappedFileSizeConsumeQueue": "6000"}
    with LossyDisk(tmp_path / "disk") as disk:
        store = disk.folder / "store"
        broker = await LoneBroker.start(tmp_path, store, sync)
        try:
            for _ in rounds(5, 50, seconds=12):
                async with Load(broker.address, history, padding=random.randrange(300)) as load:
                    await load.until(random.randrange(100, 500))
                    await asyncio.to_thread(broker.kill)
                broker = await LoneBroker.start(tmp_path, store, sync)
                async with Load(broker.address, history) as load:
                    await load.until(random.randrange(1, 20))
                    disk.tell("off", random.randrange(1 << 30), "torn")
                    await asyncio.to_thread(broker.kill)
                disk.come_back()
                broker = await LoneBroker.start(tmp_path, store, sync)
                await settled(broker.address, history)
        finally:
            broker.kill()
    assert history.acknowledged > 0


async def test_a_broker_that_does_not_flush_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: fdatasync does nothing, and every send is acknowledged as durable."""
    (tmp_path / "sitecustomize.py").write_text("import os\nos.fdatasync = lambda fd: None\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    history = History()
    with LossyDisk(tmp_path / "disk") as disk:
        store = disk.folder / "store"
        broker = await LoneBroker.start(tmp_path, store, {"flushDiskType": "SYNC_FLUSH"})
        try:
            async with Load(broker.address, history) as load:
                await load.until(200)
                disk.tell("off", 1, "drop")
                await asyncio.to_thread(broker.kill)
            disk.come_back()
            broker = await LoneBroker.start(tmp_path, store, {"flushDiskType": "SYNC_FLUSH"})
            peer = await Peer().connect(broker.address)
            assert (await peer.ask(MAX_OFFSET, {"topic": TOPIC, "queueId": 0})).fields["offset"] == "0"
            await peer.close()
            assert len(judge(history, {queue: [] for queue in range(QUEUES)})) == history.acknowledged >= 200
        finally:
            broker.kill()


@pytest.mark.parametrize("how", ["drop", "torn"])
async def test_only_the_last_interval_is_lost_with_async_flush(tmp_path: Path, how: str) -> None:
    random = chance(f"power/async/{how}")
    history, operator = History(), Operator()
    lost = middle = 0
    with LossyDisk(tmp_path / "disk") as disk:
        store = disk.folder / "store"
        broker = await LoneBroker.start(tmp_path, store, ASYNC)
        try:
            for number in rounds(5, 25, seconds=8):
                async with Load(broker.address, history, padding=random.randrange(300)) as load:
                    await operator.work(broker.address, number)
                    await load.until(random.randrange(500, 1000))
                    while len(disk.tell("syncs", "/commitlog/0").split()) < 2:
                        await load.until(load.answers[0] + 50)
                    disk.tell("off", random.randrange(1 << 30), how)
                    synced = [float(word) for word in disk.tell("syncs", "/commitlog/0").split()]
                    await asyncio.to_thread(broker.kill)
                disk.come_back()
                broker = await LoneBroker.start(tmp_path, store, ASYNC)
                found = await read(broker.address, history)

                def lately(told: Told, since: float = min(synced)) -> bool:
                    """A flush that began before the newest one began holds all that was there at its beginning."""
                    return told.moment >= since

                assert judge(history, found, lately) == []
                assert await operator.missing(broker.address) == set()
                lost += len(judge(history, found))
                gone = holes(history, found)
                middle += len(gone)
                assert how == "torn" or gone == []
                assert not gone or "store_damaged" in broker.output
                history.settle(found)
            print(f"{how}: {history.acknowledged} acknowledged, {lost} of the last interval lost, {middle} as holes")
        finally:
            broker.kill()
    assert history.acknowledged > lost > 0


async def test_what_comes_where_consumed_messages_were_lost_is_consumed(tmp_path: Path) -> None:
    """A committed offset is saved by itself: it may outlive the messages before it, whose offsets are given again."""
    never = dict.fromkeys(("flushIntervalCommitLog", "flushConsumeQueueThoroughInterval"), "3600000")
    history, place = History(), {"consumerGroup": "readers", "topic": TOPIC, "queueId": 0}
    with LossyDisk(tmp_path / "disk") as disk:
        store = disk.folder / "store"
        broker = await LoneBroker.start(tmp_path, store, ASYNC | never)
        try:
            async with Load(broker.address, history) as load:
                await load.until(100)
            peer = await Peer().connect(broker.address)
            end = int((await peer.ask(MAX_OFFSET, place)).fields["offset"])
            assert end > 0 and (await peer.ask(COMMIT, place | {"commitOffset": end})).code == 0
            await peer.close()
            await saved(store / "config" / "consumerOffset.json", f"0:{end}")
            disk.tell("off", 1, "drop")
            await asyncio.to_thread(broker.kill)
            disk.come_back()
            broker = await LoneBroker.start(tmp_path, store, ASYNC | never)
            peer = await Peer().connect(broker.address)
            assert (await peer.ask(MAX_OFFSET, place)).fields["offset"] == "0"
            assert (await peer.ask(OFFSET, place)).fields["offset"] == "0"
            await peer.close()
            assert "offsets_lowered" in broker.output
        finally:
            broker.kill()


async def saved(path: Path, what: str) -> None:
    """Wait until a file says that."""
    async with asyncio.timeout(20):
        while not path.exists() or what not in path.read_text():  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.02)
