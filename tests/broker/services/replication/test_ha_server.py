"""What a master sends to a slave that reports by hand."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from eruca.broker.config import FlushDiskType
from eruca.broker.services.replication import pump
from eruca.broker.services.replication.slaves import MOST_SLAVES
from tests.broker.services.replication.pairs import FILE, HandSlave, end, filled, log_bytes, make_cold, master_of, until
from tests.support.desk import Desk


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Desk]:
    desk = master_of(tmp_path / "master")
    desk.config.store.ha_transfer_batch_size = 4096
    async with desk:
        yield desk


@pytest.fixture
async def slave(master: Desk) -> AsyncIterator[HandSlave]:
    slave = await HandSlave().connect(master.broker.ha_address)
    yield slave
    await slave.close()


async def test_the_log_goes_out_in_frames_that_know_no_records(master: Desk, slave: HandSlave) -> None:
    filled(master, 20)
    assert end(master) > 5000
    slave.report(0)
    offset, data = await slave.frame()
    assert (offset, len(data)) == (0, 4096)
    offset, more = await slave.frame()
    assert (offset, len(more)) == (4096, end(master) - 4096)
    assert data + more == log_bytes(master)[f"{0:020d}"][: end(master)]


async def test_it_begins_at_the_offset_that_is_reported_be_it_within_a_record(master: Desk, slave: HandSlave) -> None:
    filled(master, 20)
    slave.report(4000)
    offset, data = await slave.frame()
    assert offset == 4000 and data == log_bytes(master)[f"{0:020d}"][4000 : end(master)]


async def test_a_slave_follows_from_its_second_report_on_with_its_first_it_may_compare_logs(
    master: Desk, slave: HandSlave
) -> None:
    filled(master, 3)
    with capture_logs() as said:
        slave.report(end(master) - 100)
        await slave.log_to(end(master))
        assert "slave_follows" not in [line["event"] for line in said]
        slave.report(end(master) - 20)
        await until(lambda: master.broker.slaves.confirmed == end(master) - 20)
        slave.report(end(master))
        await until(lambda: master.broker.slaves.confirmed == end(master))
    follows = [line for line in said if line["event"] == "slave_follows"]
    assert [(line["acknowledged"], line["behind"]) for line in follows] == [(end(master) - 20, 20)]


async def test_what_has_to_come_from_the_disk_is_read_in_a_thread(master: Desk, slave: HandSlave) -> None:
    filled(master, 60)
    master.disk.cold = True
    make_cold(master)
    begin, got = end(master) - end(master) % FILE + 100, b""
    slave.report(begin)
    while begin + len(got) < end(master):
        offset, data = await slave.frame()
        assert offset == begin + len(got) and len(data) <= 4096
        got += data
    assert got == log_bytes(master)[f"{begin - 100:020d}"][100 : end(master) % FILE]
    assert master.disk.readers and threading.main_thread() not in master.disk.readers


async def test_a_slave_hears_no_more_when_the_log_cannot_be_read(master: Desk, slave: HandSlave) -> None:
    filled(master, 20)
    master.disk.cold = master.disk.broken = True
    make_cold(master)
    with capture_logs() as said:
        slave.report(100)
        with pytest.raises(asyncio.IncompleteReadError):
            await slave.frame()
    assert [line["fault"] for line in said if line["event"] == "slave_rejected"] == ["[Errno 5] Input/output error"]


async def test_an_empty_slave_gets_the_newest_file_and_no_frame_crosses_two(master: Desk, slave: HandSlave) -> None:
    filled(master, 70)
    begin = end(master) - end(master) % FILE
    assert begin > 0
    slave.report(0)
    offset, data = await slave.frame()
    assert offset == begin
    filled(master, 150, first=70)
    sizes = []
    at = begin + len(data)
    while at < end(master):
        offset, data = await slave.frame()
        assert offset == at and offset // FILE == (offset + len(data) - 1) // FILE
        at += len(data)
        sizes.append(len(data))
    assert max(sizes) == 4096


async def test_heartbeats_carry_the_offset_that_comes_next(master: Desk, slave: HandSlave) -> None:
    filled(master, 2)
    slave.report(end(master))
    assert await slave.any_frame() == (end(master), b"")


async def test_reports_may_come_in_pieces(master: Desk, slave: HandSlave) -> None:
    filled(master, 1)
    slave.writer.write(bytes(5))
    await slave.writer.drain()
    slave.writer.write(bytes(3))
    assert (await slave.frame())[0] == 0


async def test_a_slave_that_reports_more_than_there_is_is_closed(master: Desk, slave: HandSlave) -> None:
    filled(master, 2)
    slave.report(0)
    await slave.frame()
    slave.report(end(master) + 1)
    assert await slave.closed()
    assert master.broker.slaves.confirmed == 0


async def test_a_slave_that_asks_for_what_was_deleted_is_closed(master: Desk, slave: HandSlave) -> None:
    filled(master, 200)
    for path in (master.folder / "store" / "commitlog").iterdir():
        os.utime(path, (0, 0))
    assert await master.broker.store.clean(by_hand=True)
    assert master.broker.store.replicator.begin_offset > 0
    slave.report(100)
    assert await slave.closed()


async def test_a_slave_that_does_not_read_costs_little_memory(master: Desk, slave: HandSlave) -> None:
    slave.report(0)
    await until(lambda: master.broker.slaves.in_reach)
    body = bytes(10_000)
    slave.pause_reading()
    for _ in range(2000):
        master.store("T", 0, 1, body=body)
    (connection,) = master.broker.slaves.connected
    await until(lambda: connection.paused)
    assert connection.unsent < pump.UNSENT + pump.FRAMES_A_TURN * 4200
    slave.resume_reading()
    await slave.log_to(end(master))


async def test_what_is_no_longer_in_memory_goes_out_too(master: Desk, slave: HandSlave) -> None:
    filled(master, 60)
    assert end(master) < 2 * FILE
    make_cold(master)
    slave.report(1)
    taken = await slave.log_to(end(master))
    files = b"".join(log_bytes(master).values())
    assert taken == files[1 : end(master)]


async def test_under_sync_flush_only_what_is_on_the_disk_goes_out(tmp_path: Path) -> None:
    master = master_of(tmp_path / "flushing")
    master.config.store.flush_disk_type = FlushDiskType.SYNC_FLUSH
    async with master:
        slave = await HandSlave().connect(master.broker.ha_address)
        filled(master, 3)
        replicator = master.broker.store.replicator
        await until(lambda: replicator.safe_offset == replicator.end_offset)
        slave.report(0)
        await slave.log_to(end(master))
        before = end(master)
        filled(master, 1)
        assert (replicator.safe_offset, replicator.take(before, 100)) == (before, None)
        await slave.log_to(end(master))
        assert replicator.safe_offset == end(master)
        await slave.close()


async def test_the_17th_connection_to_the_ha_port_is_turned_away(master: Desk, slave: HandSlave) -> None:
    filled(master, 20)
    others = [await HandSlave().connect(master.broker.ha_address) for _ in range(MOST_SLAVES - 1)]
    host, _, port = master.broker.ha_address.rpartition(":")
    with capture_logs() as lines:
        reader, writer = await asyncio.open_connection(host, int(port))
        async with asyncio.timeout(5):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
    writer.close()
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == ["slave_rejected"]
    slave.report(0)
    await slave.frame()
    for other in others:
        await other.close()
