"""Health of clients: what they say of themselves, and what a ping finds out."""

from __future__ import annotations

import pytest

from eruca.client import ClientSettings, Message, Producer, PullConsumer, PushConsumer, sync
from eruca.client.errors import BrokerUnreachable, NameserverUnreachable
from eruca.protocol.bodies import BrokerData, ClusterInfo
from tests.client.conftest import HASTY, Lab, Seen, eventually
from tests.support.ports import free_port
from tests.support.scripted import Scripted


async def test_a_consumer_whose_broker_goes_and_comes_back(lab: Lab, seen: Seen) -> None:
    await lab.send("T", b"x")
    consumer = PushConsumer("g", seen.coroutine, nameserver=lab.address, settings=HASTY).subscribe("T")
    assert not consumer.healthy
    assert consumer.healthy.reasons == ("The consumer not running, please start it first.",)
    async with consumer:
        assert consumer.healthy and not consumer.healthy.reasons
        await consumer.ping()
        await lab.cluster.broker.stop()
        await eventually(lambda: not consumer.healthy)
        (reason,) = consumer.healthy.reasons
        assert reason.startswith("broker-a is away for ") and reason.endswith(" s (Connection refused)")
        await lab.restart_broker()
        await eventually(lambda: bool(consumer.healthy))
        await consumer.ping()
    assert not consumer.healthy


async def test_a_broker_that_is_connected_and_answers_nothing(server: Scripted) -> None:
    server.knows("T", server)
    settings = ClientSettings(nameserver=server.address, heartbeat_interval=0.05, request_timeout=0.3)
    async with Producer("p", settings=settings) as producer:
        await producer.send(Message("T", b"x"))
        assert producer.healthy
        server.heartbeats_answered.clear()
        await eventually(lambda: not producer.healthy)
        (reason,) = producer.healthy.reasons
        assert reason.startswith("broker-a does not answer for ") and reason.endswith(" s")
        server.heartbeats_answered.set()
        await eventually(lambda: bool(producer.healthy))


async def test_a_producer_that_never_sent_pings_all_brokers(lab: Lab) -> None:
    async with Producer("fresh", nameserver=lab.address, settings=HASTY) as producer:
        await producer.ping(timeout=5)
        assert producer.healthy and producer.session.greeted
    async with PullConsumer(nameserver=lab.address) as puller:
        await puller.ping()


async def test_a_ping_of_a_broker_that_is_away(server: Scripted) -> None:
    async with PullConsumer(nameserver=server.address) as puller, Scripted("broker-b") as gone:
        address = gone.address
        await gone.stop()
        server.cluster = cluster_of("broker-b", address)
        with pytest.raises(BrokerUnreachable, match="Connection refused"):
            await puller.ping()
        assert [reason.partition(" for ")[0] for reason in puller.healthy.reasons] == ["broker-b is away"]


def cluster_of(name: str, address: str) -> ClusterInfo:
    broker = BrokerData(broker_name=name, broker_addrs={0: address}, cluster="Lab")
    return ClusterInfo(broker_addr_table={name: broker}, cluster_addr_table={})


async def test_without_a_nameserver_a_ping_says_so() -> None:
    async with Producer("p", nameserver=f"127.0.0.1:{free_port()}") as producer:
        with pytest.raises(NameserverUnreachable, match="Check that mqnamesrv runs there"):
            await producer.ping()


def test_blocking_clients(address: str) -> None:
    producer = sync.Producer("p", nameserver=address)
    assert not producer.healthy
    with producer:
        producer.ping()
        assert producer.healthy


async def test_a_broker_that_left_the_cluster_is_waited_for_no_more(server: Scripted) -> None:
    server.leads("T", {"broker-a": server.address, "broker-b": f"127.0.0.1:{free_port()}"})
    settings = ClientSettings(nameserver=server.address, heartbeat_interval=0.05, route_interval=0.1)
    async with Producer("p", settings=settings) as producer:
        await producer.send(Message("T", b"x"))
        await eventually(lambda: not producer.healthy)
        (reason,) = producer.healthy.reasons
        assert reason.startswith("broker-b is away for ")
        server.knows("T", server)
        await eventually(lambda: bool(producer.healthy))


async def test_a_former_address_that_does_not_answer_makes_no_client_unhealthy(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a broker that started elsewhere, while a request was still on its way to where it was."""
    await lab.send("T", b"x")
    with pytest.raises(BrokerUnreachable):
        await lab.producer.session.connection(f"127.0.0.1:{free_port()}")
    assert lab.producer.healthy and not lab.producer.healthy.reasons
    assert "is away" not in caplog.text
