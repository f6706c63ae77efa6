"""A slave that stays connected and confirms no more: after haStuckAfter nobody waits for it until it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from eruca.broker.config import BrokerRole, FlushDiskType
from eruca.protocol.bodies import HARuntimeInfo
from tests.broker.services.replication.pairs import (
    HandSlave,
    caught_up,
    end,
    filled,
    master_of,
    send_fields,
    slave_of,
    until,
)
from tests.support.desk import Desk
from tests.support.peers import Answered
from tests.support.stores import bodies

OK, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT = 0, 11, 12
STUCK_AFTER = 0.3
NOT_IN_THIS_TEST = 60_000
HA_STATUS = 907


@asynccontextmanager
async def started(folder: Path, change: Callable[[Desk], object] = bool) -> AsyncIterator[Desk]:
    """A SYNC_MASTER whose sends wait for long, and for a stuck slave shortly."""
    desk = master_of(folder / "master", BrokerRole.SYNC_MASTER)
    desk.config.store.ha_stuck_after = int(STUCK_AFTER * 1000)
    desk.config.store.slave_timeout = NOT_IN_THIS_TEST
    change(desk)
    async with desk:
        desk.topic("T")
        await desk.broker.topics.saved()
        yield desk


@asynccontextmanager
async def following(master: Desk) -> AsyncIterator[HandSlave]:
    """A slave that is in reach."""
    connected = len(master.broker.slaves.connected)
    slave = await HandSlave().connect(master.broker.ha_address)
    slave.report(end(master))
    await until(lambda: len(master.broker.slaves.connected) > connected and master.broker.slaves.in_reach)
    try:
        yield slave
    finally:
        await slave.close()


@asynccontextmanager
async def repeating(slave: HandSlave, offset: int) -> AsyncIterator[None]:
    """The slave reports one offset again and again."""

    async def repeat() -> None:
        while True:
            slave.report(offset)
            await asyncio.sleep(STUCK_AFTER / 10)  # a slave that is stuck is not silent

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def sending(master: Desk, number: int, properties: str = "") -> asyncio.Task[Answered]:
    return asyncio.create_task(master.ask(310, send_fields(number, properties=properties), b"m%d" % number))


def readable(master: Desk) -> int:
    return master.broker.store.max_offset("T", 0)


def lines(said: list[EventDict], *names: str) -> list[str]:
    return [line["event"] for line in said if line["event"] in (names or ("slave_stuck", "slave_progresses"))]


async def test_it_holds_consumers_for_ha_stuck_after_and_then_sends_get_11_at_once(tmp_path: Path) -> None:
    with capture_logs() as said:
        async with started(tmp_path) as master, following(master) as slave, repeating(slave, end(master)):
            begun = asyncio.get_running_loop().time()
            assert (await sending(master, 0, "WAIT\x01false")).code == OK
            assert readable(master) == 0
            await until(lambda: readable(master) == 1)
            assert asyncio.get_running_loop().time() - begun >= STUCK_AFTER

            answers = [await sending(master, number) for number in (1, 2)]

            assert [answer.code for answer in answers] == [SLAVE_NOT_AVAILABLE] * 2
            assert bodies(master.broker.store, "T", 0) == [b"m0", b"m1", b"m2"]
            assert master.broker.slaves.confirmed == 0
    (line,) = [line for line in said if line["event"] == "slave_stuck"]
    assert (line["acknowledged"], line["log_level"]) == (0, "warning")
    assert line["behind"] > 0 and line["remote"].startswith("127.0.0.1:")


async def test_a_slave_whose_disk_hangs_is_stuck_until_the_disk_goes_on(tmp_path: Path) -> None:
    with capture_logs() as said:
        async with (
            started(tmp_path) as master,
            slave_of(tmp_path / "slave", master.broker.ha_address, sync_flush=True) as slave,
        ):
            await until(lambda: master.broker.slaves.in_reach)
            assert (await sending(master, 0)).code == OK
            slave.disk.hold()
            assert (await sending(master, 1, "WAIT\x01false")).code == OK
            await until(lambda: readable(master) == 2)
            assert (await sending(master, 2)).code == SLAVE_NOT_AVAILABLE

            slave.disk.release()

            await until(lambda: master.broker.slaves.in_reach)
            assert (await sending(master, 3)).code == OK
            await caught_up(master, slave)
            assert bodies(slave.broker.store, "T", 0) == [b"m0", b"m1", b"m2", b"m3"]
    assert lines(said) == ["slave_stuck", "slave_progresses"]


async def test_what_waits_when_it_gets_stuck_is_answered_as_without_a_slave_or_in_time(tmp_path: Path) -> None:
    """The send began while the slave was in reach: its wait ends by slaveTimeout, or with the slave's report."""
    async with started(tmp_path) as master, following(master) as slave:
        task = sending(master, 0)
        await until(lambda: readable(master) == 1)
        assert not task.done()
        slave.report(end(master))
        assert (await task).code == OK


async def test_it_counts_again_when_it_goes_on_and_readers_stay_behind_it_again(tmp_path: Path) -> None:
    with capture_logs() as said:
        async with started(tmp_path) as master, following(master) as slave:
            await sending(master, 0, "WAIT\x01false")
            await until(lambda: not master.broker.slaves.in_reach)
            assert lines(said) == ["slave_stuck"]

            slave.report(end(master))
            await until(lambda: master.broker.slaves.in_reach)

            assert lines(said) == ["slave_stuck", "slave_progresses"]
            task = sending(master, 1)
            await until(lambda: end(master) > master.broker.slaves.confirmed)
            assert not task.done() and readable(master) == 1
            slave.report(end(master))
            assert (await task).code == OK
            assert readable(master) == 2


async def test_a_little_progress_counts_and_it_may_get_stuck_again(tmp_path: Path) -> None:
    with capture_logs() as said:
        async with started(tmp_path) as master, following(master) as slave:
            await sending(master, 0, "WAIT\x01false")
            await until(lambda: lines(said) == ["slave_stuck"])
            slave.report(end(master) - 1)
            await until(lambda: lines(said) == ["slave_stuck", "slave_progresses"])
            await sending(master, 1, "WAIT\x01false")
            assert readable(master) == 1
            await until(lambda: readable(master) == 2)
            assert lines(said) == ["slave_stuck", "slave_progresses", "slave_stuck"]


async def test_who_has_all_or_makes_progress_is_not_stuck(tmp_path: Path) -> None:
    with capture_logs() as said:
        async with started(tmp_path) as master, following(master) as slave:
            for _ in range(4):  # one heartbeat each 0.2 s: longer than haStuckAfter
                assert (await slave.any_frame())[1] == b""
            await sending(master, 0, "WAIT\x01false")
            for offset in range(9):
                await asyncio.sleep(STUCK_AFTER / 6)  # so much time passes between two reports
                slave.report(offset)
            assert master.broker.slaves.in_reach and readable(master) == 0
            slave.report(end(master))
            await until(lambda: readable(master) == 1)
            for _ in range(4):
                await slave.any_frame()
            assert master.broker.slaves.in_reach
    assert lines(said) == []


async def test_an_empty_slave_that_has_got_nothing_yet_is_not_stuck(tmp_path: Path) -> None:
    """It reports 0, and what it gets begins with the newest file."""

    def filling(desk: Desk) -> None:
        desk.config.store.broker_role = BrokerRole.ASYNC_MASTER

    async with started(tmp_path, filling) as master:
        filled(master, 200)
        newest = end(master) - end(master) % master.config.store.mapped_file_size_commit_log
        assert newest > 0
        with capture_logs() as said:
            empty = await HandSlave().connect(master.broker.ha_address)
            empty.report(0)
            await empty.log_to(end(master))
            empty.report(end(master))
            for _ in range(4):
                await empty.any_frame()
            await empty.close()
        assert lines(said) == []


async def test_another_slave_in_reach_is_enough(tmp_path: Path) -> None:
    with capture_logs() as said:
        async with started(tmp_path) as master, following(master), following(master) as sound:
            for number in range(3):
                task = sending(master, number)
                await sound.frame()
                sound.report(end(master))
                assert (await task).code == OK
                if not number:
                    await until(lambda: lines(said) == ["slave_stuck"])
            status = HARuntimeInfo.decode((await master.ask(HA_STATUS)).body)
            assert [slave.in_sync for slave in sorted(status.ha_connection_info, key=lambda each: each.diff)] == [
                True,
                False,
            ]
            assert status.in_sync_slave_nums == 1


async def test_under_sync_flush_what_is_not_on_the_disk_is_read_by_nobody(tmp_path: Path) -> None:
    def safe(desk: Desk) -> None:
        desk.config.store.flush_disk_type = FlushDiskType.SYNC_FLUSH

    async with started(tmp_path, safe) as master, following(master):
        await sending(master, 0, "WAIT\x01false")
        await until(lambda: readable(master) == 1)
        master.disk.hold()
        task = sending(master, 1)
        await asyncio.to_thread(master.disk.flushing.wait, 10)
        assert not task.done() and readable(master) == 1
        master.disk.release()
        assert (await task).code == SLAVE_NOT_AVAILABLE
        assert readable(master) == 2


async def test_a_stop_does_not_wait_for_it(tmp_path: Path) -> None:
    async with started(tmp_path) as master, following(master):
        await sending(master, 0, "WAIT\x01false")
        await until(lambda: not master.broker.slaves.in_reach)
        await asyncio.wait_for(master.app.stop(), NOT_IN_THIS_TEST / 3000)


async def test_at_an_async_master_there_is_a_line_and_nobody_waits_as_before(tmp_path: Path) -> None:
    def without_waiting(desk: Desk) -> None:
        desk.config.store.broker_role = BrokerRole.ASYNC_MASTER

    with capture_logs() as said:
        async with started(tmp_path, without_waiting) as master, following(master):
            assert (await sending(master, 0)).code == OK
            await until(lambda: lines(said) == ["slave_stuck"])
            assert (await sending(master, 1)).code == OK
            assert readable(master) == 2


async def test_a_slave_that_is_gone_is_not_called_stuck(tmp_path: Path) -> None:
    with capture_logs() as said:
        async with started(tmp_path) as master:
            async with following(master):
                await sending(master, 0, "WAIT\x01false")
            await until(lambda: not master.broker.slaves.connected)
            async with following(master) as other:
                for _ in range(4):
                    await other.any_frame()
    assert lines(said) == []


@pytest.mark.parametrize("reports", [1, 5])
async def test_what_is_answered_with_0_is_on_the_slave_whatever_happens_before(tmp_path: Path, reports: int) -> None:
    """Stuck and going on by turns: each 0 is at or before what the slave has reported."""
    async with started(tmp_path) as master, following(master) as slave:
        for number in range(4):
            task = sending(master, number)
            await until(lambda: end(master) > master.broker.slaves.confirmed)
            if number % 2:
                await until(lambda: not master.broker.slaves.in_reach)
                assert not task.done()
                assert (await sending(master, 100 + number)).code == SLAVE_NOT_AVAILABLE
            target = end(master)
            for part in range(1, reports + 1):
                slave.report(target - reports + part)
            assert (await task).code == OK
            assert master.broker.slaves.confirmed >= target - reports + 1
