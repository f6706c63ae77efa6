"""A broker that registers an address that clients do not reach: the error names the address and the setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca.broker.app import BrokerApp
from eruca.broker.config import BrokerConfig
from eruca.client import Message, Producer
from eruca.client.errors import ClientError
from eruca.nameserver.app import Nameserver
from eruca.nameserver.config import NamesrvConfig
from tests.client.conftest import Lab


async def test_the_error_of_a_send_names_the_address_and_brokerip1(tmp_path: Path) -> None:
    nameserver = Nameserver(NamesrvConfig(listen_port=0, bind_address="127.0.0.1", rocketmq_home=str(tmp_path)))
    await nameserver.start()
    config = BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.2", namesrv_addr=nameserver.address)
    config.server.bind_address, config.server.listen_port = "127.0.0.1", 0
    config.store.store_path_root_dir = str(tmp_path / "store")
    broker = BrokerApp(config)
    await broker.start()
    try:
        async with Producer("p", nameserver=nameserver.address) as producer:
            with pytest.raises(ClientError) as failed:
                await producer.send(Message("TBW102", b"x"))
    finally:
        await broker.stop()
        await nameserver.stop()

    assert f"connect to <127.0.0.2:{broker.address.rpartition(':')[2]}> failed: Connection refused" in str(failed.value)
    assert "it registered an address that is not reachable from here: set its brokerIP1" in str(failed.value)


async def test_of_a_broker_that_was_reached_before_nothing_is_said_of_its_address(lab: Lab) -> None:
    async with Producer("p", nameserver=lab.address, send_timeout=0.5) as producer:
        await producer.send(Message("T", b"x"))
        async with lab.broker_away():
            with pytest.raises(ClientError) as failed:
                await producer.send(Message("T", b"x"))
    assert "failed: Connection refused" in str(failed.value) and "brokerIP1" not in str(failed.value)
