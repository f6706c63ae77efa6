"""Health of clients: what they say of themselves, and what a ping finds out."""

from __future__ import annotations

import asyncio
import gc

import pytest

from eruca.client import ClientSettings, LitePullConsumer, Message, Producer, PullConsumer, PushConsumer, sync
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


@pytest.mark.parametrize("kind", [Producer, PullConsumer])
async def test_a_client_that_never_reached_a_nameserver(kind: type[Producer | PullConsumer]) -> None:
    """It sends nothing at its start; all the same it finds out whether a nameserver is there, and when one comes."""
    server = await Scripted().start()  # to have a port
    await server.stop()
    async with kind("p", nameserver=server.address) as client:
        assert client.healthy.reasons == (f"No nameserver has answered yet: {server.address}",)
        await eventually(lambda: "Check that mqnamesrv runs there" in client.healthy.reasons[0])
        async with server:
            await eventually(lambda: bool(client.healthy))
        with pytest.raises(NameserverUnreachable):
            await client.ping()
        assert client.healthy, "it goes on by the routes that it knows"


async def test_any_thread_may_ask(lab: Lab, seen: Seen) -> None:
    """As a route of FastAPI that is a plain function, or the thread of a probe."""
    await lab.send("T", b"x")
    push = PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T")
    lite = LitePullConsumer("l", nameserver=lab.address).subscribe("T")
    async with push, lite:
        for client in (push, lite, lab.producer, lab.puller):
            assert await asyncio.to_thread(lambda each: each.healthy.reasons, client) == ()
    assert await asyncio.to_thread(lambda: push.healthy.reasons) == push.healthy.reasons != ()


def test_the_event_loop_is_over(address: str) -> None:
    producer = Producer("p", nameserver=address)
    with pytest.warns(ResourceWarning):
        asyncio.run(producer.start())
        assert producer.healthy.reasons == ("The event loop in which this client was started does not run.",)
        asyncio.run(another_client_starts(address))
        del producer
        gc.collect()


async def another_client_starts(address: str) -> None:
    async with Producer("p", nameserver=address):
        pass


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
