"""Retention under load: what is due goes while it is written and read, nothing else does, and consumers go on."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from tests.support.history import History, judge
from tests.support.load import QUEUES, TOPIC, Load, pull, read
from tests.support.lone import LoneBroker
from tests.support.peers import Peer
from tests.support.programme import amount, rounds

pytestmark = pytest.mark.processes

OFFSET_MOVED, FOUND, MIN_OFFSET = 21, 0, 31
UNIT = 20
"""Bytes of a consume queue's unit; the first eight are the record's place in the log."""
ANY_HOUR = ";".join(f"{hour:02d}" for hour in range(24))
SETTINGS = {
    "deleteWhen": ANY_HOUR,
    "fileReservedTime": "72",
    "cleanResourceInterval": "50",
    "mappedFileSizeCommitLog": str(1 << 18),
    "mappedFileSizeConsumeQueue": "1000",
    "cleanFileForciblyEnable": "false",
}
LONG_AGO = time.time() - 80 * 3600


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


async def first_offset(peer: Peer, queue: int) -> int:
    return int((await peer.ask(MIN_OFFSET, {"topic": TOPIC, "queueId": queue})).fields["offset"])


async def beginning(peer: Peer, store: Path, queue: int) -> int:
    """Where a queue begins once it knows what went last: queues learn of it after the log's files are gone."""
    oldest = int(files(store / "commitlog")[0].name)
    async with asyncio.timeout(30):
        while True:
            first = await first_offset(peer, queue)
            for path in files(store / "consumequeue" / TOPIC / str(queue)):
                within = first * UNIT - int(path.name)
                if 0 <= within < path.stat().st_size:
                    unit = path.read_bytes()[within : within + UNIT]
                    if int.from_bytes(unit[:8]) >= oldest:
                        return first


async def expire(load: Load, log: Path, keep: int) -> list[Path]:
    """Make all but the newest files old, and wait until they are gone; those that were to stay."""
    old, young = files(log)[:-keep], files(log)[-keep:]
    for path in old:
        os.utime(path, (LONG_AGO, LONG_AGO))
    async with asyncio.timeout(30):
        while any(path.exists() for path in old):
            await load.until(load.answers[0] + 1)
    return young


async def grown(load: Load, log: Path, count: int) -> None:
    """Wait until the log has so many files."""
    while len(files(log)) < count:
        await load.until(load.answers[0] + 50)


@pytest.mark.slow
async def test_old_files_go_while_they_are_written_and_read(tmp_path: Path) -> None:
    store = tmp_path / "store"
    history = History()
    broker = await LoneBroker.start(tmp_path, store, SETTINGS)
    try:
        peer = await Peer().connect(broker.address)
        async with Load(broker.address, history, producers=2, padding=2000) as load:
            await load.until(10)
            for _ in rounds(2, 40, seconds=10):
                await grown(load, store / "commitlog", 8)
                reading = asyncio.ensure_future(read(broker.address))
                young = await expire(load, store / "commitlog", keep=4)
                assert all(path.exists() for path in young), "nothing goes before its time"
                await reading
                for queue in range(QUEUES):
                    await went_on(peer, queue)
            await load.drained()
        assert set(load.answers) == {FOUND}, load.refusals
        firsts = [await beginning(peer, store, queue) for queue in range(QUEUES)]
        await judged(broker, history, firsts)
        for queue, first in enumerate(firsts):
            begins = [int(path.name) // UNIT for path in files(store / "consumequeue" / TOPIC / str(queue))]
            assert begins[0] <= first < begins[1] if len(begins) > 1 else begins[0] <= first
            assert begins[0] > 0, "the queue's own files went too"
        await peer.close()
        assert broker.stop() == 0, broker.output
        broker = await LoneBroker.start(tmp_path, store, SETTINGS)
        peer = await Peer().connect(broker.address)
        assert [await first_offset(peer, queue) for queue in range(QUEUES)] == firsts
        await judged(broker, history, firsts)
        await peer.close()
        print(f"{amount(2, 40)} rounds, {history.acknowledged} acknowledged, queues begin at {firsts}")
    finally:
        broker.kill()


async def went_on(peer: Peer, queue: int) -> None:
    """A consumer at the beginning is told where the queue begins now, and finds messages there."""
    async with asyncio.timeout(20):
        while (moved := await pull(peer, queue, 0)).code != OFFSET_MOVED:
            assert moved.code in (FOUND, 20), moved  # the queue's turn has not come yet
        following = int(moved.fields["nextBeginOffset"])
        assert following == int(moved.fields["minOffset"]) > 0
        assert (await pull(peer, queue, following)).code == FOUND


async def judged(broker: LoneBroker, history: History, firsts: list[int]) -> None:
    """All that was acknowledged and not deleted is there."""
    found = await read(broker.address)
    assert {queue: messages[0][0] for queue, messages in found.items()} == dict(enumerate(firsts))
    for place in [place for place in history.told if place[1] < firsts[place[0]]]:
        del history.told[place]
    assert judge(history, found) == []
