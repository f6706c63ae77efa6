"""A slave's log equals its master's: byte by byte, whatever happens in between."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from eruca.broker.services.replication.transfer import frame_head, report
from tests.broker.services.replication.pairs import (
    caught_up,
    end,
    filled,
    followed,
    log_bytes,
    master_of,
    slave_of,
    until,
)
from tests.support.desk import Desk
from tests.support.ports import free_broker_port
from tests.support.proxy import Proxy
from tests.support.stores import bodies, index_contents, queue_units


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Desk]:
    async with master_of(tmp_path / "master") as desk:
        yield desk


@pytest.fixture
async def proxy(master: Desk) -> AsyncIterator[Proxy]:
    proxy = await Proxy(master.broker.ha_address).start()
    yield proxy
    await proxy.stop()


async def test_the_slave_has_the_same_log_queues_and_index(tmp_path: Path, master: Desk) -> None:
    filled(master, 30)
    slave = slave_of(tmp_path / "slave", master.broker.ha_address)
    await slave.start()
    await followed(master)
    assert end(master) < 2 * (16 << 10)
    filled(master, 300, first=30)
    await caught_up(master, slave)
    assert bodies(slave.broker.store, "T", 0) == bodies(master.broker.store, "T", 0)
    assert [len(slave.broker.store.query("T", f"k{number}", 9, 0, 2**62).records) for number in (0, 329)] == [1, 1]
    await slave.stop()
    assert log_bytes(slave) == log_bytes(master) and len(log_bytes(master)) > 8
    master.broker.store.persist()
    assert queue_units(tmp_path / "slave" / "store") == queue_units(tmp_path / "master" / "store")
    assert index_contents(tmp_path / "slave" / "store") == index_contents(tmp_path / "master" / "store")


WRONG = ["127.0.0.1:99999", "nonsense", "a\0b:10912", "\ud800:1", f"{'x' * 300}:1", f"h:{'9' * 5000}", "h:-1", ":1"]


@pytest.mark.parametrize("wrong", WRONG, ids=range(len(WRONG)))
async def test_a_slave_that_is_given_a_wrong_address_goes_on_with_the_next(
    tmp_path: Path, master: Desk, wrong: str
) -> None:
    """A nameserver passes on what somebody registered as the master."""
    filled(master, 3)
    master.commit("G", "T", 6)
    async with slave_of(tmp_path / "slave", "") as slave:
        with capture_logs() as said:
            slave.broker.ha_client.follow(wrong, wrong)
            slave.broker.table_sync.follow(wrong)
            await until(lambda: {"master_unreachable", "table_not_fetched"} <= {line["event"] for line in said})
        slave.broker.ha_client.follow(master.broker.ha_address, master.app.address)
        await caught_up(master, slave)
        await until(lambda: slave.broker.offsets.query("G", "T", 0) == 6)
        assert slave.broker.readiness.ready


async def test_a_slave_follows_an_ipv6_address_in_brackets(tmp_path: Path) -> None:
    """As operators write haMasterAddress; brokers advertise theirs without brackets."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    master = master_of(tmp_path / "master")
    master.config.server.bind_address = master.config.broker_ip1 = "::1"
    async with master:
        filled(master, 3)
        async with slave_of(tmp_path / "slave", f"[::1]:{master.broker.ha_address.rpartition(':')[2]}") as slave:
            await caught_up(master, slave)


@pytest.mark.parametrize("cut_after", [1, 11, 12, 13, 700, 1012, 5000, 20_000, 40_000])
async def test_a_cut_in_the_middle_of_a_frame_loses_and_doubles_nothing(
    tmp_path: Path, master: Desk, proxy: Proxy, cut_after: int
) -> None:
    slave = slave_of(tmp_path / "slave", proxy.address)
    await slave.start()
    filled(master, 1)
    await caught_up(master, slave)
    proxy.cut_after, proxy.piece = proxy.forwarded + cut_after, 611
    filled(master, 120, first=1)
    await caught_up(master, slave)
    assert proxy.connections == 3, "one of them only compares the logs"
    assert bodies(slave.broker.store, "T", 1) == bodies(master.broker.store, "T", 1)
    await slave.stop()
    assert log_bytes(slave) == log_bytes(master)


async def test_an_empty_slave_begins_with_the_masters_newest_file(tmp_path: Path, master: Desk) -> None:
    filled(master, 120)
    async with slave_of(tmp_path / "slave", master.broker.ha_address) as slave:
        await caught_up(master, slave)
        newest = max(log_bytes(master))
        assert list(log_bytes(slave)) == [newest] and int(newest) > 0
        store = slave.broker.store
        first = store.min_offset("T", 0)
        assert first > 0 and store.max_offset("T", 0) == master.broker.store.max_offset("T", 0)
        assert bodies(store, "T", 0) == bodies(master.broker.store, "T", 0)[first:]
        await slave.restart()
        assert slave.broker.store.min_offset("T", 0) == first and slave.broker.store.recovery.damages == []
        filled(master, 60, first=120)
        await caught_up(master, slave)
        assert bodies(slave.broker.store, "T", 0) == bodies(master.broker.store, "T", 0)[first:]


@pytest.mark.parametrize("lost", [0, 1, 50, 3000])
async def test_a_slave_that_was_killed_goes_on_where_its_sound_records_end(
    tmp_path: Path, master: Desk, lost: int
) -> None:
    """The tail of its log did not reach the disk, and its queues and index are those of an earlier time."""
    slave = slave_of(tmp_path / "slave", master.broker.ha_address)
    await slave.start()
    await followed(master)
    filled(master, 200)
    await caught_up(master, slave)
    at = end(slave)
    await slave.stop()
    (tmp_path / "slave" / "store" / "abort").touch()
    newest = tmp_path / "slave" / "store" / "commitlog" / max(log_bytes(slave))
    with newest.open("r+b") as file:
        file.seek(max(at - int(newest.name) - lost, 0))
        file.write(bytes(lost))
    filled(master, 50, first=200)
    await slave.start()
    await caught_up(master, slave)
    assert bodies(slave.broker.store, "T", 1) == bodies(master.broker.store, "T", 1)
    await slave.stop()
    assert log_bytes(slave) == log_bytes(master)


async def test_a_master_that_restarts_is_followed_again(tmp_path: Path) -> None:
    master = master_of(tmp_path / "master")
    master.config.server.listen_port = free_broker_port()
    await master.start()
    slave = slave_of(tmp_path / "slave", master.broker.ha_address)
    await slave.start()
    filled(master, 20)
    await caught_up(master, slave)
    await master.restart()
    filled(master, 20, first=20)
    await caught_up(master, slave)
    await slave.stop()
    await master.stop()
    assert log_bytes(slave) == log_bytes(master)


async def test_heartbeats_keep_an_idle_connection_and_silence_ends_it(
    tmp_path: Path, master: Desk, proxy: Proxy
) -> None:
    master.config.store.ha_housekeeping_interval = 600
    slave = slave_of(tmp_path / "slave", proxy.address)
    slave.config.store.ha_housekeeping_interval = 600
    async with slave:
        filled(master, 1)
        await caught_up(master, slave)
        before = proxy.forwarded
        await until(lambda: proxy.forwarded >= before + 5 * 12)  # five heartbeats take longer than the silence allowed
        assert proxy.connections == 1
        proxy.delay = 2.0
        await until(lambda: proxy.connections == 2)
        proxy.delay = 0.0
        filled(master, 1, first=1)
        await caught_up(master, slave)


async def test_a_slave_that_is_ahead_of_its_master_is_turned_away(tmp_path: Path, master: Desk) -> None:
    other = slave_of(tmp_path / "slave", master.broker.ha_address)
    await other.start()
    filled(master, 20)
    await caught_up(master, other)
    await other.stop()
    async with master_of(tmp_path / "young") as young:
        filled(young, 2)
        with capture_logs() as said:
            async with slave_of(tmp_path / "slave", young.broker.ha_address) as slave:
                await until(lambda: any(line["event"] == "slave_rejected" for line in said))
                assert young.broker.slaves.confirmed == 0 and log_bytes(slave) == log_bytes(master)


@pytest.mark.parametrize("size", [4 << 10, 8 << 10, 32 << 10])
async def test_files_of_another_size_are_refused(tmp_path: Path, master: Desk, size: int) -> None:
    slave = slave_of(tmp_path / "slave", master.broker.ha_address, file_size=size)
    with capture_logs() as said:
        await slave.start()
        await followed(master)
        filled(master, 120)
        await until(lambda: any("set the same mappedFileSizeCommitLog" in line.get("reason", "") for line in said))
    assert slave.broker.store.figures().damaged_records == 0
    await slave.stop()


async def test_a_heartbeat_for_another_place_than_the_logs_end_is_refused(tmp_path: Path, master: Desk) -> None:
    """As Apache's slave: the master's next bytes could not be put here."""
    filled(master, 3)
    slave = slave_of(tmp_path / "slave", master.broker.ha_address)
    await slave.start()
    await caught_up(master, slave)
    await slave.stop()
    reports: asyncio.Queue[bytes] = asyncio.Queue()
    held = log_bytes(master)[f"{0:020d}"][: end(master)]

    async def misplaced(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readexactly(8)
        start = int.from_bytes(asked, "big")
        if start < end(master):  # it compares
            writer.write(frame_head(start, end(master) - start) + held[start:])
        else:
            reports.put_nowait(asked)
            writer.write(frame_head(end(master) + 1, 0))
            reports.put_nowait(await reader.read(8))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(misplaced, "127.0.0.1", 0)
    slave.config.store.ha_master_address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    await slave.start()
    async with asyncio.timeout(5):
        assert await reports.get() == report(end(master))
        assert await reports.get() == b""  # closed
        assert await reports.get() == report(end(master))  # and here again
    await slave.stop()
    server.close()
