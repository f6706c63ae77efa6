"""How a master and its slave stand, asked of each (907), and its transfer rate."""

from __future__ import annotations

from pathlib import Path

from eruca.broker.services.replication.transfer import TransferRate
from eruca.protocol.bodies import HARuntimeInfo
from tests.broker.services.replication.pairs import HandSlave, caught_up, end, filled, master_of, slave_of, until
from tests.support.desk import Desk

HA_STATUS = 907


async def status(desk: Desk) -> HARuntimeInfo:
    answer = await desk.ask(HA_STATUS)
    assert answer.code == 0
    return HARuntimeInfo.decode(answer.body)


async def test_both_sides_tell(tmp_path: Path) -> None:
    master = master_of(tmp_path / "master")
    await master.start()
    async with slave_of(tmp_path / "slave", master.broker.ha_address) as slave:
        filled(master, 50)
        await caught_up(master, slave)
        await until(lambda: all(each.acknowledged == end(master) for each in master.broker.slaves.connected))
        behind = await HandSlave().connect(master.broker.ha_address)
        behind.report(0)
        await until(lambda: len(master.broker.slaves.connected) == 2)
        await behind.frame()

        told = await status(master)
        assert (told.master, told.master_commit_log_max_offset, told.in_sync_slave_nums) == (True, end(master), 2)
        assert sorted(each.diff for each in told.ha_connection_info) == [0, end(master)]
        assert {each.transfer_from_where for each in told.ha_connection_info} == {end(master)}
        assert all(each.addr and each.addr.startswith("127.0.0.1:") for each in told.ha_connection_info)

        told = await status(slave)
        assert not told.master and told.ha_connection_info == []
        own = told.ha_client_runtime_info
        assert (own.activated, own.master_addr, own.max_offset) == (True, master.broker.ha_address, end(master))
        assert 0 < own.last_read_timestamp <= slave.now and 0 < own.last_write_timestamp <= slave.now

        await behind.close()
        await master.stop()
        await until(lambda: not slave.broker.ha_client.connected)
        assert not (await status(slave)).ha_client_runtime_info.activated


async def test_a_master_without_slaves(tmp_path: Path) -> None:
    async with master_of(tmp_path) as master:
        told = await status(master)
        assert told.master and told.in_sync_slave_nums == 0 and told.ha_connection_info == []


def test_the_transfer_rate_is_that_of_the_last_full_second() -> None:
    rate = TransferRate()
    rate.add(100, 7.1)
    rate.add(50, 7.9)
    assert rate.per_second(7.95) == 0
    assert rate.per_second(8.0) == 150
    rate.add(30, 8.5)
    assert rate.per_second(8.9) == 150
    assert rate.per_second(9.9) == 30
    assert rate.per_second(11.0) == 0
