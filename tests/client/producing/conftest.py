"""A producer whose ways are counted, and time that stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from eruca.client import ClientSettings, Message, Producer
from tests.client.two_ways import TwoWays, stand_still
from tests.support.scripted import Scripted


@pytest.fixture(params=["JSON", "ROCKETMQ"])
async def both(request: pytest.FixtureRequest) -> AsyncIterator[TwoWays]:
    async with Scripted("names") as names, Scripted("broker-a") as broker:
        names.knows("T", broker, queues=4)
        settings = ClientSettings(nameserver=names.address, header=request.param)
        async with Producer("g", settings=settings, send_timeout=30) as producer:
            await producer.send(Message("T", b"first"))
            both = TwoWays(names, broker, producer)
            yield both
            if both.real is not None:
                both.real.abort()


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stands still."""
    stand_still(monkeypatch)
