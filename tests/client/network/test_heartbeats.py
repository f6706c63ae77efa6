"""Heartbeats that brokers do not take: what the log says of them, and how often."""

from __future__ import annotations

import pytest

from eruca.client import ClientSettings, Producer
from tests.client.conftest import eventually
from tests.support.scripted import Scripted


async def test_a_broker_that_refuses_each_heartbeat_is_told_of_once(
    server: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    settings = ClientSettings(nameserver=server.address, heartbeat_interval=0.02)

    async def beats(count: int) -> None:
        before = len(server.heartbeats)
        await eventually(lambda: len(server.heartbeats) >= before + count)

    async with Producer("p", settings=settings) as producer:
        await producer.session.directory.route("T")
        server.refused_codes.add(34)
        await beats(5)
        assert caplog.text.count(f"the heartbeat was refused by {server.address}: CODE: 1") == 1
        server.refused_codes.clear()
        await beats(3)
        server.refused_codes.add(34)
        await beats(5)
        assert caplog.text.count("the heartbeat was refused") == 2, "it was well in between"
