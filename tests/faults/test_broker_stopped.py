"""SIGTERM and SIGSTOP under load: a stop in order loses nothing and needs no recovery, a pause is survived."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.support.history import History, judge
from tests.support.load import Load, read, settled
from tests.support.lone import LoneBroker
from tests.support.programme import ENOUGH, LONG, chance, rounds
from tests.support.stopwatch import Stopwatch

pytestmark = [pytest.mark.processes, ENOUGH]


def needs_no_recovery(broker: LoneBroker) -> bool:
    """Whether it found its store as an orderly stop leaves it."""
    opened = next(line for line in broker.output.splitlines() if "store_opened" in line)
    return "clean=True" in opened and not any(word in broker.output for word in ("store_recovery", "store_damaged"))


async def test_a_kill_is_no_orderly_stop(tmp_path: Path) -> None:
    """The planted fault: the broker ends at once."""
    broker = await LoneBroker.start(tmp_path, tmp_path / "store")
    try:
        async with Load(broker.address, History()) as load:
            await load.until(10)
            assert broker.kill() != 0
        broker = await LoneBroker.start(tmp_path, tmp_path / "store")
        assert not needs_no_recovery(broker)
    finally:
        broker.kill()


async def test_an_orderly_stop_under_load(tmp_path: Path) -> None:
    random = chance("sigterm")
    history = History()
    store = tmp_path / "store"
    slowest = 0.0
    broker = await LoneBroker.start(tmp_path, store)
    try:
        for _ in rounds(4, 50, seconds=15):
            async with Load(broker.address, history, padding=random.randrange(400)) as load:
                await load.until(random.randrange(1, 1500 if LONG else 700))
                with Stopwatch() as watch:
                    broker.signal(signal.SIGTERM)
                    assert await asyncio.to_thread(broker.wait) == 0, broker.output
                slowest = max(slowest, watch.seconds)
            assert not (store / "abort").exists()
            broker = await LoneBroker.start(tmp_path, store)
            assert needs_no_recovery(broker)
            await settled(broker.address, history)
    finally:
        broker.kill()
    print(f"{history.acknowledged} acknowledged, 0 lost, slowest stop {slowest:.2f} s")
    assert history.acknowledged > 0
    assert slowest <= 5


async def test_a_broker_that_is_told_to_reload_again_and_again(tmp_path: Path) -> None:
    history = History()
    broker = await LoneBroker.start(tmp_path, tmp_path / "store")
    conf = tmp_path / "broker.conf"
    text = conf.read_text()
    reloads = 0
    try:
        async with Load(broker.address, history) as load:
            await load.until(20)
            before = open_outside(broker.pid, tmp_path / "store")
            for number in rounds(20, 100, seconds=15, least=10):
                await load.until(load.answers[0] + 20)
                conf.write_text(f"{text}defaultTopicQueueNums={1 + number % 2}\n")
                broker.signal(signal.SIGHUP)
                await asyncio.to_thread(broker.wait_until, partial(reloaded, broker, number + 1), "a reload")
                reloads = number + 1
            await load.drained()
            # What a reload, or anything else, has open for a moment is closed again.
            no_more = partial(closed_to, broker.pid, tmp_path / "store", before)
            await asyncio.to_thread(broker.wait_until, no_more, "end of what reloads have opened")
        assert set(load.answers) == {0}
        assert judge(history, await read(broker.address)) == []
    finally:
        assert broker.stop() == 0
    assert broker.output.count("defaultTopicQueueNums: ") == reloads
    assert "reload_failed" not in broker.output and "Traceback" not in broker.output
    print(f"{reloads} reloads, {history.acknowledged} acknowledged, {before} descriptors")


def open_outside(pid: int, store: Path) -> int:
    """The descriptors of a process but those of the store, which grows."""
    count = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            count += not os.readlink(entry).startswith(str(store))
    return count


def closed_to(pid: int, store: Path, count: int) -> bool:
    return open_outside(pid, store) <= count


def reloaded(broker: LoneBroker, times: int) -> bool:
    return broker.output.count(" reloaded ") >= times


async def test_a_broker_that_is_paused(tmp_path: Path) -> None:
    random = chance("sigstop")
    history = History()
    broker = await LoneBroker.start(tmp_path, tmp_path / "store", {"flushDiskType": "SYNC_FLUSH"})
    slowest = 0.0
    try:
        async with Load(broker.address, history) as load:
            for _ in rounds(3, 50, seconds=12):
                await load.until(load.answers[0] + random.randrange(1, 200))
                broker.signal(signal.SIGSTOP)
                await asyncio.sleep(random.uniform(0.3, 1.5))  # the fault itself: for so long it stands
                before = load.answers[0]
                with Stopwatch() as watch:
                    broker.signal(signal.SIGCONT)
                    await load.until(before + 100)
                slowest = max(slowest, watch.seconds)
            await load.drained()
        assert set(load.answers) == {0}
        found = await read(broker.address)
        assert judge(history, found) == []
        assert sum(map(len, found.values())) == history.acknowledged
    finally:
        broker.signal(signal.SIGCONT)
        broker.kill()
    print(f"{history.acknowledged} acknowledged, 0 lost, works again within {slowest:.2f} s")
    assert slowest <= 5
