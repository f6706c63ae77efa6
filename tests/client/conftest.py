"""A real nameserver and broker in this process, and what a listener saw."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from eruca.broker.app import BrokerApp
from eruca.broker.config import BrokerConfig
from eruca.client import (
    ClientSettings,
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    Waits,
)
from eruca.client.consuming.membership import GroupMember
from eruca.client.consuming.push_consumer import engine_of
from eruca.client.polling.lite_pull_consumer import membership_of
from eruca.standalone.background import BackgroundCluster
from eruca.standalone.cluster import Cluster
from tests.support.scripted import Scripted

HASTY = ClientSettings(waits=Waits(rebalance=0.02, topic=0.02, send_back=0.02, lock=0.02, release=0.05, standstill=0.2))
"""Settings of clients that wait for nothing long."""


class Seen:
    """Collects what a listener got, in its order; use `coroutine` or `function` as the listener."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    async def coroutine(self, message: ReceivedMessage) -> None:
        self.add(message)

    def function(self, message: ReceivedMessage) -> None:
        self._loop.call_soon_threadsafe(self.add, message)

    def add(self, message: ReceivedMessage) -> None:
        self.messages.append(message)
        self._news.set()

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    async def reaches(self, count: int, *, within: float = 10.0) -> None:
        """Wait until so many messages came."""
        async with asyncio.timeout(within):
            while len(self.messages) < count:
                self._news.clear()
                await self._news.wait()


class Lab:
    """A cluster with a producer, and shortcuts."""

    def __init__(self, cluster: Cluster, producer: Producer, puller: PullConsumer) -> None:
        self.cluster = cluster
        self.producer = producer
        self.puller = puller

    @property
    def address(self) -> str:
        return self.cluster.address

    async def send(self, topic: str, *bodies: bytes, tags: str | None = None) -> None:
        for body in bodies:
            await self.producer.send(Message(topic, body, tags=tags))

    async def offsets(self, group: str, topic: str) -> list[int | None]:
        """The stored offset of the group in each queue."""
        return [await self.puller.query_offset(queue, group=group) for queue in await self.puller.fetch_queues(topic)]

    async def ends(self, topic: str) -> list[int | None]:
        """The end of each queue."""
        return [await self.puller.max_offset(queue) for queue in await self.puller.fetch_queues(topic)]

    async def stores(self, group: str, topic: str, offsets: list[int]) -> None:
        """Wait until the broker has these offsets."""
        async with asyncio.timeout(10):
            while await self.offsets(group, topic) != offsets:  # noqa: ASYNC110
                await asyncio.sleep(0.002)

    def fill_disk(self, *, full: bool = True) -> None:
        """Let the broker find its disk full, so that it takes no message, or not full any more."""
        store = self.cluster.broker.broker.store
        store.config.disk_space_warning_level_ratio = -1.0 if full else 1.0
        store.check_disk()

    async def restart_broker(self) -> None:
        """Stop the broker and start another one on the same disk, at another port."""
        old = self.cluster.broker
        await old.stop()
        await self._replace(old)

    @asynccontextmanager
    async def broker_away(self) -> AsyncIterator[None]:
        """The broker is gone within the block, and comes back at the same port."""
        old = self.cluster.broker
        old.config.server.listen_port = int(old.address.rpartition(":")[2])
        await old.stop()
        yield
        await self._replace(old)

    async def _replace(self, old: BrokerApp) -> None:
        new = BrokerApp(old.config)
        await new.start()
        self.cluster._broker = new


def member_of(consumer: PushConsumer | LitePullConsumer) -> GroupMember[Any]:
    """The membership of a consumer, which answers the brokers."""
    return engine_of(consumer).membership if isinstance(consumer, PushConsumer) else membership_of(consumer)


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something holds that nobody tells of."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


def small_broker() -> BrokerConfig:
    """A broker that takes little disk."""
    config = BrokerConfig(broker_name="broker-a")
    config.store.mapped_file_size_commit_log = 1 << 20
    config.store.max_hash_slot_num = 128
    config.store.max_index_num = 512
    return config


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async with (
        Cluster(tmp_path, broker=small_broker()) as cluster,
        Producer("lab", nameserver=cluster.address) as producer,
        PullConsumer(nameserver=cluster.address) as puller,
    ):
        yield Lab(cluster, producer, puller)


@pytest.fixture
async def seen() -> Seen:
    return Seen()


@pytest.fixture
async def server() -> AsyncIterator[Scripted]:
    """Nameserver and broker in one, with one queue of T."""
    async with Scripted() as server:
        server.knows("T", server)
        yield server


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A nameserver whose cluster runs in a thread."""
    with BackgroundCluster(tmp_path, broker=small_broker()) as cluster:
        yield cluster.address
