"""A slave whose log was damaged: it copies its master's log again from there, and confirms nothing before."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca.broker.config import BrokerRole
from eruca.broker.store import FileSystem
from eruca.broker.store.cut import intend_cut
from eruca.broker.store.damage_mark import read_damage
from tests.broker.services.replication.pairs import (
    caught_up,
    cut_off,
    end,
    filled,
    log_bytes,
    master_of,
    slave_of,
    until,
)
from tests.support.stores import spoil


@pytest.mark.parametrize("at", [0, 5, 18], ids=["its first message", "in its middle", "near its end"])
async def test_it_is_copied_again_from_the_damage_on(tmp_path: Path, at: int) -> None:
    async with master_of(tmp_path / "master", BrokerRole.SYNC_MASTER) as master:
        filled(master, 20)
        starts = sorted(record.physical_offset for queue in (0, 1) for record in master.records("T", queue))
        async with slave_of(tmp_path / "slave", master.broker.ha_address) as slave:
            await caught_up(master, slave)
            await slave.stop()
            spoil(slave.folder / "store", starts[at])
            filled(master, 5, first=20)
            await slave.start()
            assert end(slave) < end(master)
            await cut_off(slave, starts[at])
            await slave.start()
            await caught_up(master, slave)
            assert log_bytes(slave) == log_bytes(master)
            assert read_damage(slave.folder / "store") is None


async def test_nothing_is_cut_off_where_the_master_lacks_what_follows_the_damage(tmp_path: Path) -> None:
    """It may be all that is left."""
    async with master_of(tmp_path / "master") as master:
        filled(master, 20)
        starts = sorted(record.physical_offset for queue in (0, 1) for record in master.records("T", queue))
        async with slave_of(tmp_path / "slave", master.broker.ha_address) as slave:
            await caught_up(master, slave)
            await slave.stop()
            spoil(slave.folder / "store", starts[5])
            await master.stop()
            assert intend_cut(master.broker.store.config, starts[10], FileSystem()) is not None
            await master.start()
            slave.config.store.ha_master_address = master.broker.ha_address
            before = end(slave)
            await slave.start()
            await until(lambda: "it is ahead" in (slave.broker.ha_client.fault or ""))
            assert slave.app.cut_to is None and end(slave) == before
