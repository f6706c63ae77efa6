"""Starts that wait: clients whose nameserver, broker and topic come up after them, and what was missing at the end."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eruca.client import (
    RPC,
    App,
    ClientSettings,
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    PullScheduleService,
    PushConsumer,
    TransactionProducer,
    TransactionState,
    sync,
)
from eruca.client.errors import BrokerUnreachable, ClusterNotReady, NameserverUnreachable, TopicNotFound, UsageError
from eruca.protocol.bodies import BrokerData, ClusterInfo
from eruca.standalone.cluster import Cluster
from tests.client.conftest import Lab, Seen, small_broker
from tests.support.ports import free_port
from tests.support.scripted import Scripted

ONE_LOOK = 0.8
"""Seconds in which a start finds out what is missing, also on a loaded machine."""


async def ignore(*_: object) -> None:
    """A listener."""


def application(address: str) -> App:
    app = App(nameserver=address)
    app.producer("app-producer")
    app.consumer("T", "app-consumer")(ignore)
    return app


CLIENTS: tuple[Callable[[str], Any], ...] = (
    lambda address: Producer("p", nameserver=address),
    lambda address: TransactionProducer("t", lambda message: TransactionState.COMMIT, nameserver=address),
    lambda address: PushConsumer("g", ignore, nameserver=address).subscribe("T"),
    lambda address: LitePullConsumer("l", nameserver=address).subscribe("T"),
    lambda address: PullConsumer("u", nameserver=address),
    lambda address: PullScheduleService("s", nameserver=address).register_pull_task_callback("T", ignore),
    lambda address: RPC("Calls", "r", nameserver=address),
    application,
)


async def test_all_clients_start_before_their_cluster_and_their_topic(tmp_path: Path) -> None:
    port = free_port()
    clients = [make(f"127.0.0.1:{port}") for make in CLIENTS]
    starts = [asyncio.create_task(client.start(wait=30)) for client in clients]
    async with Cluster(tmp_path, port=port, broker=small_broker()), asyncio.timeout(10):
        await asyncio.gather(*(task for task, make in zip(starts, CLIENTS, strict=True) if make in CLIENTS[:2]))
        assert not starts[2].done()  # the topic is not there
        await clients[0].send(Message("T", b"x"))
        await asyncio.gather(*starts)
        for client in clients:
            await client.stop()


async def test_without_a_wait_a_start_fails_at_once() -> None:
    consumer = PushConsumer("g", ignore, nameserver=f"127.0.0.1:{free_port()}").subscribe("T")
    with pytest.raises(NameserverUnreachable):
        await consumer.start()


async def test_what_was_missing_is_the_nameserver() -> None:
    address = f"127.0.0.1:{free_port()}"
    for failed in await asyncio.gather(*(until_given_up(make(address)) for make in CLIENTS)):
        assert re.match(f".*not ready within wait=.* seconds: None of the nameservers {address}", str(failed))


async def until_given_up(client: Any) -> ClusterNotReady:
    with pytest.raises(ClusterNotReady) as failed:
        await client.start(wait=ONE_LOOK)
    return failed.value


async def test_what_was_missing_is_the_topic(lab: Lab, seen: Seen) -> None:
    consumer = PushConsumer("g", seen.coroutine, nameserver=lab.address, start_from="first").subscribe("Missing")
    with pytest.raises(ClusterNotReady, match="No route info of this topic: Missing") as failed:
        await consumer.start(wait=ONE_LOOK)
    command = f"`mqadmin updateTopic -n {lab.address} -c DefaultCluster -t Missing`"
    assert f'`await producer.create_topic("Missing", key="DefaultCluster")` or by {command}' in str(failed.value)
    assert isinstance(failed.value.__cause__, TopicNotFound)
    await lab.send("Missing", b"x")
    await consumer.start(wait=10)  # it can be started again
    await seen.reaches(1)
    await consumer.stop()


def price_service(address: str) -> RPC:
    service = RPC("Prices", "price-service", nameserver=address)

    @service.method
    async def price(item: str) -> int:
        return len(item)

    return service


async def test_a_service_of_functions_makes_its_topic(lab: Lab) -> None:
    """Else it would wait for the first call, which others begin when the service is there."""
    service = price_service(lab.address)
    await service.start(wait=10)
    async with RPC("Prices", "shop", nameserver=lab.address) as shop:
        assert await shop.call("price", ["soup"]) == 4
    await service.stop()


async def test_where_brokers_make_no_topics_a_service_says_what_to_do(tmp_path: Path) -> None:
    config = small_broker()
    config.auto_create_topic_enable = False
    async with Cluster(tmp_path, broker=config) as cluster, Producer("p", nameserver=cluster.address) as producer:
        service = price_service(cluster.address)
        with pytest.raises(ClusterNotReady, match="Create it first, by `await producer"):
            await service.start(wait=ONE_LOOK)
        with pytest.raises(TopicNotFound, match=r'create_topic\("Prices", key="DefaultCluster"\)'):
            await producer.create_topic("Prices")
        await producer.create_topic("Prices", key=config.broker_cluster_name)
        await service.start(wait=10)
        await service.stop()


async def test_what_was_missing_is_the_broker(server: Scripted) -> None:
    async with Scripted("broker-b") as gone:
        server.knows("Gone", gone)
        server.cluster = cluster_of("broker-b", gone.address)
    async with Scripted("empty") as empty:
        empty.cluster = ClusterInfo(broker_addr_table={}, cluster_addr_table={})
        *unreachable, nobody = await asyncio.gather(
            until_given_up(Producer("p", nameserver=server.address)),
            until_given_up(LitePullConsumer("g", nameserver=server.address).subscribe("Gone")),
            until_given_up(Producer("p", nameserver=empty.address)),
        )
    for failed in unreachable:
        assert re.search(f"{gone.address}.*Connection refused", str(failed))
        assert isinstance(failed.__cause__, BrokerUnreachable)
    assert "no broker has registered there" in str(nobody)


def cluster_of(name: str, address: str) -> ClusterInfo:
    broker = BrokerData(broker_name=name, broker_addrs={0: address}, cluster="Lab")
    return ClusterInfo(broker_addr_table={name: broker}, cluster_addr_table={})


async def test_a_nameserver_that_is_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:  # connections are never taken
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(ClusterNotReady, match=f"no answer of the nameservers {address}"):
            await Producer("p", nameserver=address).start(wait=0.1)


async def test_the_settings_say_how_long_each_client_waits(tmp_path: Path) -> None:
    port = free_port()
    settings = ClientSettings.from_env({"ROCKETMQ_NAMESRV_ADDR": f"127.0.0.1:{port}", "ROCKETMQ_START_WAIT": "30"})
    app = App(settings=settings)
    app.consumer("TBW102", "g")(ignore)  # a topic that every broker has

    async def run() -> None:
        async with PullConsumer(settings=settings), app:
            pass

    running = asyncio.create_task(run())
    async with Cluster(tmp_path, port=port, broker=small_broker()), asyncio.timeout(10):
        await running


def test_blocking_clients_wait_as_well(address: str) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    for client in (sync.Producer("p", nameserver=nowhere), sync.RPC("Calls", "r", nameserver=nowhere)):
        with pytest.raises(ClusterNotReady):
            client.start(wait=0.1)
    with pytest.raises(UsageError, match="give ClientSettings"):
        sync.lazy(sync.Producer, "p").start(wait=1)
    producer = sync.Producer("p", nameserver=address)
    producer.start(wait=10)
    producer.ping()
    producer.stop()
