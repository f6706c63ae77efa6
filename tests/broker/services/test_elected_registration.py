"""A master that its group has elected, at nameservers: with its epoch, while it is sure, and it takes nobody along."""

from __future__ import annotations

import asyncio
from pathlib import Path

from eruca.broker.config import BrokerRole
from eruca.broker.services.role import Wanted
from tests.broker.services.replication.pairs import master_of, until
from tests.support.desk import Desk
from tests.support.names import Names

UNREGISTER = 104


async def broker(folder: Path, names: Names) -> Desk:
    """A broker that is a slave until it is elected."""
    desk = master_of(folder)
    desk.config.namesrv_addr = names.address
    desk.config.broker_id = 1 if folder.name == "a" else 2
    desk.config.store.broker_role = BrokerRole.SLAVE
    await desk.start()
    return desk


async def elect(desk: Desk, epoch: int) -> None:
    await desk.broker.role.appoint(Wanted(BrokerRole.ASYNC_MASTER, 0, epoch))


async def depose(desk: Desk) -> None:
    await desk.broker.role.appoint(Wanted(BrokerRole.SLAVE, desk.config.broker_id))


async def stands(names: Names, expected: dict[int, str]) -> None:
    """Wait until the table has these brokers."""
    async with asyncio.timeout(10):
        while await names.brokers() != {"broker-a": expected}:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_the_newer_master_takes_the_name_and_the_former_one_cannot_take_it_back(
    tmp_path: Path, names: Names
) -> None:
    one, other = await broker(tmp_path / "a", names), await broker(tmp_path / "b", names)
    await elect(one, 3)
    await stands(names, {0: one.app.address, 2: other.app.address})
    await elect(other, 4)
    await stands(names, {0: other.app.address})  # the former one does not know yet
    await one.broker.registration.register_all()
    assert await names.brokers() == {"broker-a": {0: other.app.address}}
    await depose(one)
    await stands(names, {0: other.app.address, 1: one.app.address})
    for desk in (one, other):
        await desk.stop()


async def test_a_former_master_that_ends_takes_nobody_along(tmp_path: Path, names: Names) -> None:
    one, other = await broker(tmp_path / "a", names), await broker(tmp_path / "b", names)
    await elect(one, 3)
    await stands(names, {0: one.app.address, 2: other.app.address})
    await elect(other, 4)
    await stands(names, {0: other.app.address})
    await one.stop()
    assert await names.brokers() == {"broker-a": {0: other.app.address}}
    await other.stop()


async def test_a_master_that_is_not_sure_does_not_register(tmp_path: Path, names: Names) -> None:
    desk = await broker(tmp_path / "a", names)
    desk.broker.registration.is_sure = lambda: False
    await elect(desk, 3)
    await desk.broker.registration.register_all()
    assert await names.brokers() == {"broker-a": {1: desk.app.address}}
    desk.broker.registration.is_sure = lambda: True
    await stands(names, {0: desk.app.address})
    await desk.stop()


async def test_after_an_election_a_master_looks_whether_it_stands_in_the_table(tmp_path: Path, names: Names) -> None:
    desk = await broker(tmp_path / "a", names)
    await elect(desk, 3)
    await stands(names, {0: desk.app.address})
    own = {"brokerName": "broker-a", "brokerAddr": desk.app.address, "clusterName": "Lab", "brokerId": "0"}
    assert (await names.peer.ask(UNREGISTER, own)).code == 0
    assert await names.brokers() == {}
    await stands(names, {0: desk.app.address})
    await desk.stop()


async def test_without_an_election_the_role_is_the_settings(tmp_path: Path, names: Names) -> None:
    desk = await broker(tmp_path / "a", names)
    assert not desk.broker.role.elected and desk.broker.role.epoch == 0
    await elect(desk, 7)
    assert desk.broker.role.elected and (desk.broker.role.epoch, desk.broker.role.broker_id) == (7, 0)
    await until(lambda: bool(desk.broker.registration.registered))
    desk.config.store.broker_role = BrokerRole.SYNC_MASTER
    desk.broker.reconfigured()
    assert desk.broker.role.kind is BrokerRole.ASYNC_MASTER
    await desk.stop()
