"""A cluster for all tests of FastStream's broker, and what handlers saw."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from eruca.faststream import RocketMQBroker
from eruca.standalone.background import BackgroundCluster
from tests.client.conftest import small_broker

_serial = count(1)


class Seen:
    """What handlers got, in its order."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._news = asyncio.Event()

    def __call__(self, value: Any) -> None:
        self.values.append(value)
        self._news.set()

    async def reaches(self, number: int) -> list[Any]:
        """All values, when there are so many."""
        async with asyncio.timeout(20):
            while len(self.values) < number:
                self._news.clear()
                await self._news.wait()
        return self.values


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundCluster]:
    """A cluster whose retries and delays are short."""
    config = small_broker()
    config.enable_property_filter = True
    config.store.message_delay_level = "1s 1s 1s 1s 1s"
    with BackgroundCluster(tmp_path_factory.mktemp("faststream"), broker=config) as cluster:
        yield cluster


@pytest.fixture
def address(cluster: BackgroundCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    """Its nameserver, which the environment names as well."""
    monkeypatch.setenv("ROCKETMQ_NAMESRV_ADDR", cluster.address)
    return cluster.address


@pytest.fixture
def topic(cluster: BackgroundCluster) -> str:
    """A topic that no other test has, with one queue."""
    return cluster.create_topic(f"T{next(_serial)}", queues=1)


@pytest.fixture
def topics(cluster: BackgroundCluster) -> Callable[[int], str]:
    """More topics, with so many queues each."""
    return lambda queues: cluster.create_topic(f"T{next(_serial)}", queues=queues)


@pytest.fixture
def broker(address: str) -> RocketMQBroker:
    """A broker without a log, not started."""
    return RocketMQBroker(address, group="shop", logger=None)


@pytest.fixture
async def seen() -> Seen:
    return Seen()
