"""Who may connect to the HA port: everybody without access control, slaves with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from eruca.broker.config import BrokerConfig, BrokerRole
from eruca.nameserver.app import Nameserver
from eruca.nameserver.config import NamesrvConfig
from eruca.remoting.settings import BadSetting
from eruca.remoting.sources import read
from tests.support.accounts import ADMIN, BROKER, Signing, write_accounts
from tests.support.desk import Desk
from tests.support.every_code import of_broker
from tests.support.pairs import eventually
from tests.support.peers import Peer


@pytest.fixture
async def names(tmp_path: Path) -> AsyncIterator[Nameserver]:
    """A nameserver with access control."""
    home = write_accounts(tmp_path / "names", white=[], brokers=[])
    config = NamesrvConfig(listen_port=0, bind_address="127.0.0.1", rocketmq_home=str(home))
    config.access.acl_enable = True
    server = Nameserver(config)
    await server.start()
    yield server
    await server.stop()


def broker(folder: Path, nameserver: str | None, *, slave: bool = False, account: str = BROKER.name) -> Desk:
    """A broker with access control, which signs by an account of brokers."""
    home = write_accounts(folder / "home", white=[], brokers=[])
    (home / "conf" / "tools.yml").write_text(f"accessKey: {account}\nsecretKey: {account}-secret\n")
    desk = Desk(folder)
    desk.config.namesrv_addr = nameserver
    desk.config.access.acl_enable = True
    desk.config.store.ha_send_heartbeat_interval = 100
    desk.config.rocketmq_home = str(home)
    if slave:
        desk.config.store.broker_role = BrokerRole.SLAVE
        desk.config.broker_id = 1
    return desk


async def is_admitted(desk: Desk, local: str) -> bool:
    """Whether a peer from this address stays connected to the HA port: it reports an end, and is answered."""
    host, _, port = desk.broker.ha_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=(local, 0))
    try:
        writer.write(bytes(8))
        async with asyncio.timeout(20):
            return bool(await reader.read(1))
    except ConnectionError:
        return False
    finally:
        writer.close()


async def test_a_cluster_in_which_all_need_accounts_replicates(tmp_path: Path, names: Nameserver) -> None:
    master, slave = broker(tmp_path / "master", names.address), broker(tmp_path / "slave", names.address, slave=True)
    async with master, slave:
        peer = await Peer().connect(master.app.address)
        fields, body = of_broker()[17]
        assert (await Signing(peer).ask(ADMIN, 17, fields, body)).code == 0
        assert (await Signing(peer).ask(ADMIN, *send())).code == 0
        await eventually(lambda: slave.broker.ha_client.connected)
        await eventually(lambda: len(slave.records()) == 1)
        await eventually(lambda: "T" in slave.broker.topics)
        await peer.close()
        assert master.broker.refusals.refused.keys() <= {"ha_address"}, "at most the slave's first try"
    assert not names.refusals.refused


def send() -> tuple[int, dict[str, object], bytes]:
    fields, body = of_broker()[310]
    return 310, fields, body


async def test_only_addresses_that_nameservers_know_for_the_name_are_admitted(
    tmp_path: Path, names: Nameserver
) -> None:
    async with broker(tmp_path / "master", names.address) as master:
        await eventually(lambda: bool(master.broker.registration.registered))
        with capture_logs() as said:
            assert not await is_admitted(master, "127.0.0.5")
            assert not await is_admitted(master, "127.0.0.5")
        lines = [line for line in said if line["event"] == "access_refused"]
        assert [(line["remote"], line["reason"], line["resource"]) for line in lines] == [
            ("127.0.0.5", "ha_address", "HA port")
        ]
        assert "haAllowedAddresses" in lines[0]["advice"]
        assert master.broker.refusals.refused == {"ha_address": 2}

        slave = broker(tmp_path / "slave", names.address, slave=True)
        slave.config.broker_ip1, slave.config.server.bind_address = "127.0.0.5", "0.0.0.0"
        async with slave:
            assert await until_admitted(master, "127.0.0.5")
            assert not await is_admitted(master, "127.0.0.6")


async def until_admitted(desk: Desk, local: str) -> bool:
    async with asyncio.timeout(20):
        while not await is_admitted(desk, local):
            pass
    return True


async def test_a_nameserver_that_is_gone_leaves_the_port_as_it_was(tmp_path: Path, names: Nameserver) -> None:
    async with broker(tmp_path / "master", names.address) as master:
        assert await until_admitted(master, "127.0.0.1"), "its own address is known for the name"
        await names.stop()
        assert not await is_admitted(master, "127.0.0.5")
        assert await is_admitted(master, "127.0.0.1")
        assert not await is_admitted(master, "127.0.0.5")


async def test_the_setting_names_the_addresses_with_and_without_accounts(tmp_path: Path) -> None:
    for accounts in (True, False):
        desk = broker(tmp_path / str(accounts), None)
        desk.config.access.acl_enable = accounts
        desk.config.store.ha_allowed_addresses = "127.0.0.5-6; 127.0.1.*"
        async with desk:
            assert await is_admitted(desk, "127.0.0.6")
            assert await is_admitted(desk, "127.0.1.9")
            assert not await is_admitted(desk, "127.0.0.1")


async def test_addresses_are_known_to_a_master_that_listens_on_both_kinds(tmp_path: Path, names: Nameserver) -> None:
    desk = broker(tmp_path / "master", names.address)
    desk.config.server.bind_address, desk.config.broker_ip1 = "::", "127.0.0.1"
    async with desk as master:
        assert await until_admitted(master, "127.0.0.1")
        assert not await is_admitted(master, "127.0.0.5")


async def test_without_access_control_everybody_may_connect(tmp_path: Path) -> None:
    desk = broker(tmp_path, None)
    desk.config.access.acl_enable = False
    async with desk:
        assert await is_admitted(desk, "127.0.0.5")


async def test_without_a_nameserver_and_the_setting_nobody_may(tmp_path: Path) -> None:
    async with broker(tmp_path, None) as desk:
        assert not await is_admitted(desk, "127.0.0.1")


def test_a_faulty_pattern_is_refused_at_the_start() -> None:
    with pytest.raises(BadSetting, match=r"haAllowedAddresses: '10\.0\.0' is not allowed; write patterns of addresses"):
        read(BrokerConfig, text="haAllowedAddresses=10.0.0")
