"""A nameserver has the limits of connections, and the quotas, of a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from eruca.nameserver.app import Nameserver
from eruca.nameserver.config import NamesrvConfig
from eruca.protocol import api
from eruca.protocol.errors import Refused
from eruca.remoting import Channels, ConnectionLost

Started = Callable[[NamesrvConfig], Awaitable[Nameserver]]


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Started]:
    running: list[Nameserver] = []

    async def start(config: NamesrvConfig) -> Nameserver:
        config.listen_port, config.bind_address, config.rocketmq_home = 0, "127.0.0.1", str(tmp_path)
        running.append(Nameserver(config))
        await running[0].start()
        return running[0]

    yield start
    for each in running:
        await each.stop()


async def test_connections_of_one_address(started: Started) -> None:
    config = NamesrvConfig()
    config.connections.server_max_connections_per_address_overrides = "127.0.0.*=1"
    server = await started(config)
    first, second = Channels(), Channels()
    await first.call(server.address, api.GET_BROKER_CLUSTER_INFO)
    with pytest.raises(ConnectionLost):
        await second.call(server.address, api.GET_BROKER_CLUSTER_INFO)
    await first.close()
    await second.close()


async def test_requests_a_second(started: Started) -> None:
    config = NamesrvConfig()
    config.quotas.quota_requests_per_second = 3
    server = await started(config)
    server.quotas.requests.now = lambda: 100.0
    client = Channels()
    for _ in range(3):
        await client.call(server.address, api.GET_BROKER_CLUSTER_INFO)
    with pytest.raises(Refused) as refused:
        await client.call(server.address, api.GET_BROKER_CLUSTER_INFO)
    assert refused.value.code == 2 and "127.0.0.1 may send 3 requests a second" in refused.value.remark
    await client.close()
