"""What a broker asks of others is signed by the account of its conf/tools.yml: of nameservers, and of its master."""

from __future__ import annotations

from pathlib import Path

from eruca.broker.config import BrokerRole
from tests.support.desk import Desk
from tests.support.names import Names
from tests.support.pairs import eventually
from tests.support.peers import requests_in
from tests.support.proxy import Proxy


def home(folder: Path, account: str) -> str:
    (folder / "conf").mkdir(parents=True)
    (folder / "conf" / "tools.yml").write_text(f"accessKey: {account}\nsecretKey: 12345678\n")
    return str(folder)


def signed(proxy: Proxy) -> dict[int, str | None]:
    """The account by which each kind of request was signed last."""
    return {
        code: fields.get("AccessKey") for data in proxy.sent for code, fields in requests_in(bytes(data)) if code != 11
    }


async def test_registrations_are_signed(tmp_path: Path) -> None:
    async with Names(tmp_path) as names:
        proxy = await Proxy(names.address).start()
        desk = Desk(tmp_path)
        desk.config.namesrv_addr = proxy.address
        desk.config.force_register = False
        desk.config.rocketmq_home = home(tmp_path / "home", "one-broker")
        async with desk:
            desk.topic("T")
            await desk.broker.registration.register_all()
        assert signed(proxy) == {103: "one-broker", 104: "one-broker"}
        await proxy.stop()


async def test_a_slave_signs_what_it_asks_of_its_master(tmp_path: Path) -> None:
    async with Desk(tmp_path / "master") as master:
        slave = Desk(tmp_path / "slave")
        slave.config.store.broker_role = BrokerRole.SLAVE
        slave.config.broker_id = 1
        slave.config.rocketmq_home = home(tmp_path / "home", "one-slave")
        async with slave:
            proxy = await Proxy(master.app.address).start()
            slave.broker.table_sync.follow(proxy.address)
            await eventually(lambda: 201 in signed(proxy))
            assert {code: signed(proxy)[code] for code in (43, 45, 28, 201)} == dict.fromkeys(
                (43, 45, 28, 201), "one-slave"
            )
            await proxy.stop()
