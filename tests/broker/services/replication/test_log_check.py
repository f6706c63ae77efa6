"""A slave follows only a master that has its log: it compares before it takes anything."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from eruca.broker.services.replication.transfer import frame_head
from eruca.protocol.bodies import SubscriptionGroupConfig
from tests.broker.services.replication.pairs import caught_up, end, filled, log_bytes, master_of, slave_of, until
from tests.support.desk import Desk
from tests.support.names import Names
from tests.support.ports import free_broker_port


@pytest.fixture
async def lenient(tmp_path: Path) -> AsyncIterator[Names]:
    """A nameserver that does as Apache's: the last one that registers has the name."""
    async with Names(tmp_path) as names:
        names.server.config.allow_broker_takeover = True
        yield names


def known_by(desk: Desk, *names: Names) -> Desk:
    desk.config.namesrv_addr = ";".join(each.address for each in names)
    desk.config.store.ha_master_address = None
    return desk


async def copied(tmp_path: Path, count: int, *names: Names) -> Path:
    """The folder of a slave that has so many messages of a master, and is stopped as that is."""
    async with known_by(master_of(tmp_path / "first"), *names) as master:
        filled(master, count)
        async with known_by(slave_of(tmp_path / "slave", ""), *names) as slave:
            await caught_up(master, slave)
    return tmp_path / "slave"


def reasons(said: Sequence[Mapping[str, Any]]) -> list[str]:
    return [line["reason"] for line in said if line["event"] == "copy_refused"]


async def test_of_a_second_master_with_a_copied_configuration_a_slave_takes_nothing_and_three_lines_say_why(
    tmp_path: Path, names: Names, lenient: Names
) -> None:
    """One nameserver refuses the second master, the other one does not, so that the slave hears of both."""
    first = known_by(master_of(tmp_path / "first"), names, lenient)
    slave = known_by(slave_of(tmp_path / "slave", ""), names, lenient)
    second = known_by(master_of(tmp_path / "second"), names, lenient)
    async with first, slave:
        filled(first, 20)
        await caught_up(first, slave)
        with capture_logs() as said:
            async with second:
                second.topic("Foreign")
                second.broker.groups.put(SubscriptionGroupConfig(group_name="Foreign"))
                filled(second, 200, topic="Foreign")
                assert await lenient.brokers() == {"broker-a": {0: second.app.address, 1: slave.app.address}}
                await slave.broker.registration.register_all()
                await until(lambda: bool(reasons(said)))
                filled(first, 20, first=20)
                await caught_up(first, slave)
                assert slave.broker.ha_client.connected, "it still follows the first"
        taken = [line["reason"] for line in said if line["event"] == "registration_refused"]
        assert len(taken) == 1 and first.app.address in taken[0] and second.app.address in taken[0]
        assert [line["reason"] for line in said if line["event"] == "name_taken"] == taken
        (refused,) = reasons(said)
        assert second.broker.ha_address in refused and "has another log" in refused and "nothing was taken" in refused
        assert slave.broker.topics.get("Foreign") is None and "Foreign" not in slave.broker.groups.table
        assert log_bytes(slave) == log_bytes(first)


@pytest.mark.parametrize(
    ("has", "words"),
    [
        (0, "ended the connection instead of sending its log"),
        (3, "ended the connection instead of sending its log"),
        (200, "has another log"),
    ],
)
async def test_a_restarted_slave_takes_nothing_of_another_master(
    tmp_path: Path, lenient: Names, has: int, words: str
) -> None:
    """Its log is ahead of the other one's, or ends within it."""
    folder = await copied(tmp_path, 20, lenient)
    before = {path.name: path.read_bytes() for path in (folder / "store" / "commitlog").iterdir()}
    async with known_by(master_of(tmp_path / "second"), lenient) as second:
        second.topic("Foreign")
        for number in range(has):
            second.store("Foreign", 0, number, body=b"%d" % number)
        with capture_logs() as said:
            async with known_by(slave_of(folder, ""), lenient) as slave:
                await until(lambda: bool(reasons(said)))
                assert not slave.broker.ha_client.connected
                assert slave.broker.topics.get("Foreign") is None
                assert slave.broker.store.max_offset("Foreign", 0) == 0
                assert log_bytes(slave) == before
        (reason,) = reasons(said)
        assert words in reason and "second master" in reason and "eruca store verify" in reason
        if has < 20:
            assert "lost its end" in reason
            rejected = [line["reason"] for line in said if line["event"] == "slave_rejected"]
            assert "copy of another master's log" in rejected[0] and "lost its end" in rejected[0]
            assert "eruca store verify" in rejected[0]
        assert second.broker.slaves.confirmed < end(second) or not has


async def test_a_master_that_lost_its_end_and_went_on_is_not_followed(tmp_path: Path) -> None:
    """At the same address: the slave's end lies within the master's new log."""
    master = master_of(tmp_path / "master")
    master.config.server.listen_port = free_broker_port()
    await master.start()
    slave = slave_of(tmp_path / "slave", master.broker.ha_address)
    await slave.start()
    filled(master, 10)
    await caught_up(master, slave)
    await master.stop()
    shutil.copytree(tmp_path / "master", tmp_path / "earlier")
    await master.start()
    filled(master, 5, first=10)
    await caught_up(master, slave)
    before = end(slave)
    with capture_logs() as said:
        await master.stop()
        shutil.rmtree(tmp_path / "master" / "store")
        shutil.copytree(tmp_path / "earlier" / "store", tmp_path / "master" / "store")
        filled_again = master_of(tmp_path / "master")
        filled_again.config.server.listen_port = 0  # nobody meets it before it has gone on
        async with filled_again:
            filled(filled_again, 60, first=900)
        await master.start()
        assert end(master) > before
        await until(lambda: any("has another log" in reason for reason in reasons(said)))
    assert end(slave) == before and not slave.broker.ha_client.connected
    await slave.stop()
    await master.stop()


async def test_a_master_that_lost_exactly_the_last_record_is_not_followed(tmp_path: Path) -> None:
    """It has nothing to compare yet, and is asked again until it has."""
    master = master_of(tmp_path / "master")
    async with master:
        filled(master, 10)
        slave = slave_of(tmp_path / "slave", master.broker.ha_address)
        async with slave:
            await caught_up(master, slave)
    shutil.copytree(tmp_path / "slave" / "store" / "commitlog", tmp_path / "shorter" / "store" / "commitlog")
    async with slave_of(tmp_path / "slave", "127.0.0.1:1") as alone:
        tail = alone.broker.store.replicator.tail(end(alone))
    last = tmp_path / "shorter" / "store" / "commitlog" / max(log_bytes(alone))
    with last.open("r+b") as file:
        file.seek(tail.start)
        file.write(bytes(tail.end - tail.start))
    async with master_of(tmp_path / "shorter") as shorter:
        assert end(shorter) == tail.start
        with capture_logs() as said:
            async with slave_of(tmp_path / "slave", shorter.broker.ha_address) as slave:
                await until(lambda: bool(reasons(said)))
                assert end(slave) == tail.end
        (reason,) = reasons(said)
        assert f"sends no log from {tail.start} on" in reason and "lost its end" in reason


async def test_a_slave_goes_over_to_a_master_that_has_its_log_while_the_former_one_is_there(
    tmp_path: Path, lenient: Names
) -> None:
    """Another copy of the log that became the master."""
    folder = await copied(tmp_path, 20, lenient)
    shutil.copytree(tmp_path / "first" / "store", tmp_path / "second" / "store")
    first, second = known_by(master_of(tmp_path / "first"), lenient), known_by(master_of(tmp_path / "second"), lenient)
    async with first, known_by(slave_of(folder, ""), lenient) as slave:
        await until(lambda: slave.broker.ha_client.connected)
        async with second:
            filled(second, 20, first=20, topic="New")
            second.topic("New", 2)
            await slave.broker.registration.register_all()
            await caught_up(second, slave)
            await until(lambda: slave.broker.topics.get("New") is not None)
            filled(second, 5, first=40)
            await caught_up(second, slave)
        assert not first.broker.slaves.connected
    assert log_bytes(slave) == log_bytes(second)


async def test_an_empty_slave_follows_any_master(tmp_path: Path) -> None:
    async with master_of(tmp_path / "master") as master:
        filled(master, 3)
        async with slave_of(tmp_path / "slave", master.broker.ha_address) as slave:
            await caught_up(master, slave)


@pytest.mark.parametrize("chunk", [1, 11, 12, 13, 100, 65536])
async def test_the_masters_frames_may_come_in_any_pieces(tmp_path: Path, chunk: int) -> None:
    async with master_of(tmp_path / "master") as master:
        filled(master, 5)
        async with slave_of(tmp_path / "slave", master.broker.ha_address) as slave:
            await caught_up(master, slave)
    held = log_bytes(slave)[f"{0:020d}"][: end(slave)]
    compared = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        start = int.from_bytes(await reader.readexactly(8), "big")
        if start == end(slave):
            compared.set()
        out = b"".join(frame_head(at, min(7, len(held) - at)) + held[at : at + 7] for at in range(start, len(held), 7))
        for at in range(0, len(out), chunk):
            writer.write(out[at : at + chunk])
            await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    slave.config.store.ha_master_address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with slave, asyncio.timeout(5):
        await compared.wait()
    server.close()


async def test_a_master_that_says_nothing_is_out_of_reach_and_not_refused(tmp_path: Path) -> None:
    """Its kernel accepts connections, and the process stands still."""
    async with master_of(tmp_path / "master") as master:
        filled(master, 5)
        async with slave_of(tmp_path / "slave", master.broker.ha_address) as slave:
            await caught_up(master, slave)
    with socket.create_server(("127.0.0.1", 0)) as standing:
        slave.config.store.ha_master_address = f"127.0.0.1:{standing.getsockname()[1]}"
        slave.config.store.ha_housekeeping_interval = 300
        with capture_logs() as said:
            async with slave:
                await until(lambda: any(line["event"] == "master_unreachable" for line in said))
        (fault,) = [line["fault"] for line in said if line["event"] == "master_unreachable"]
        assert fault == "it was silent for longer than haHousekeepingInterval" and reasons(said) == []
