"""Namespaces: what users call by their own names, and brokers by longer ones."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from eruca.client import (
    ClientSettings,
    Later,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
    selectors,
)
from eruca.client.errors import BadConfig, TopicNotFound
from eruca.client.namespaces import namespace_of, unwrap, wrap
from eruca.protocol import api
from eruca.protocol.headers.offsets import ResetOffset
from eruca.standalone.cluster import Cluster
from tests.client.conftest import Lab, Seen, eventually, small_broker

NAMES = [
    ("Orders", "ns%Orders"),
    ("%RETRY%g", "%RETRY%ns%g"),
    ("%DLQ%g", "%DLQ%ns%g"),
    ("TBW102", "TBW102"),
    ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
    ("rmq_sys_x", "rmq_sys_x"),
    ("CID_RMQ_SYS_x", "CID_RMQ_SYS_x"),
    ("TOOLS_CONSUMER", "TOOLS_CONSUMER"),
    ("DefaultCluster_REPLY_TOPIC", "DefaultCluster_REPLY_TOPIC"),
]


@pytest.mark.parametrize(("short", "long"), NAMES)
def test_names_are_wrapped_and_unwrapped(short: str, long: str) -> None:
    assert wrap("ns", short) == long
    assert wrap("ns", long) == long, "once is enough"
    assert unwrap("ns", long) == short
    assert unwrap("other", "ns%Orders") == "ns%Orders"


@pytest.mark.parametrize(
    ("address", "namespace"),
    [
        ("http://MQ_INST_123_abc.mq.example:8080", "MQ_INST_123_abc"),
        ("MQ_INST_123_abc.mq.example:8080", "MQ_INST_123_abc"),
        ("http://mq.example:8080", None),
        ("127.0.0.1:9876", None),
    ],
)
def test_an_address_may_name_the_namespace(address: str, namespace: str | None) -> None:
    assert namespace_of(address) == namespace
    chosen = ClientSettings.choose(None, address)
    assert chosen.namespace == namespace
    assert chosen.nameserver == (address.removeprefix("http://"),)


def test_a_namespace_that_cannot_be_one() -> None:
    with pytest.raises(BadConfig, match='namespace="a%b" is not allowed'):
        ClientSettings(namespace="a%b")


@pytest.fixture
def tenant(lab: Lab) -> ClientSettings:
    return ClientSettings(nameserver=lab.address, namespace="tenant")


async def test_two_tenants_do_not_meet(lab: Lab, seen: Seen, tenant: ClientSettings) -> None:
    async with (
        Producer("p", settings=tenant) as producer,
        PushConsumer("g", seen.coroutine, settings=tenant, start_from="first").subscribe("Orders", "new"),
    ):
        await lab.send("Orders", b"of nobody", tags="new")
        sent = await producer.send(Message("Orders", b"of the tenant", tags="new"))
        await seen.reaches(1)
        (received,) = seen.messages

    assert sent.queue.topic == "Orders"
    assert (received.body, received.topic, received.queue) == (b"of the tenant", "Orders", sent.queue)
    assert received.record.topic == "tenant%Orders"
    assert received.properties["INSTANCE_ID"] == "tenant"
    broker = lab.cluster.broker.broker
    assert {"Orders", "tenant%Orders", "%RETRY%tenant%g"} <= set(broker.topics)
    assert broker.offsets.of("tenant%g", "tenant%Orders")[sent.queue.queue_id] == 1


async def test_every_way_to_send_and_to_ask(lab: Lab, tenant: ClientSettings) -> None:
    async with Producer("p", settings=tenant) as producer, PullConsumer("g", settings=tenant) as puller:
        queue = (await producer.send(Message("T", b"0"))).queue
        await producer.send(Message("T", b"1"), queue=queue)
        await producer.send(Message("T", b"2"), selector=lambda queues, message, arg: queue)
        await producer.send_batch([Message("T", b"3"), Message("T", b"4")], queue=queue)
        await producer.send_oneway(Message("T", b"5"), queue=queue)
        chosen = await producer.send(Message("T", b"6"), selector=selectors.by_hash, arg="k")
        assert queue in await puller.fetch_queues("T") and chosen.queue.topic == "T"

        async with asyncio.timeout(10):
            while await puller.max_offset(queue) < 6:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        pulled = await puller.pull(queue, 0)
        assert [record.body for record in pulled.records][:6] == [b"0", b"1", b"2", b"3", b"4", b"5"]
        assert {each.topic for each in pulled.records} == {"T"}
        await puller.update_offset(queue, 3)
        assert await puller.query_offset(queue) == 3
    long = MessageQueue("tenant%T", queue.broker_name, queue.queue_id)
    assert await lab.puller.query_offset(long, group="tenant%g") == 3


async def test_a_topic_is_created_where_the_key_is(lab: Lab, tenant: ClientSettings) -> None:
    """A key is no topic of the tenant's, but a name that brokers know, such as their cluster's."""
    async with Producer("p", settings=tenant) as producer:
        await producer.create_topic("Made", 3, key="DefaultCluster")
        assert [queue.topic for queue in await producer.fetch_queues("Made")] == ["Made"] * 3
        await producer.create_topic("Second", 2, key="tenant%Made")
        with pytest.raises(TopicNotFound, match="Made"):
            await producer.create_topic("Third", key="Made")
    assert {"tenant%Made", "tenant%Second"} <= set(lab.cluster.broker.broker.topics)


@pytest.mark.parametrize("by_address", [True, False])
async def test_traces_of_a_tenant(lab: Lab, by_address: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Java a trace topic of one's own is of the namespace of an address, but not of one by the settings."""
    host, port = lab.address.split(":")
    name = "MQ_INST_1_2.mq.example"
    settings = ClientSettings(nameserver=f"http://{name}:{port}")
    if not by_address:
        settings = ClientSettings(nameserver=lab.address, namespace="MQ_INST_1_2")
    loop = asyncio.get_running_loop()
    resolve = loop.getaddrinfo
    monkeypatch.setattr(
        loop, "getaddrinfo", lambda asked, *rest, **how: resolve(host if asked == name else asked, *rest, **how)
    )
    async with Producer("p", settings=settings, trace="Traces") as producer:
        await producer.send(Message("T", b"x"))
    stored = set(lab.cluster.broker.broker.topics)
    assert "MQ_INST_1_2%T" in stored
    assert stored & {"Traces", "MQ_INST_1_2%Traces"} == {"MQ_INST_1_2%Traces" if by_address else "Traces"}


async def test_a_message_that_failed_comes_again_under_its_name(lab: Lab, tenant: ClientSettings) -> None:
    seen: list[tuple[str, str, int]] = []

    async def listener(message: ReceivedMessage) -> Later | None:
        seen.append((message.topic, message.queue.topic, message.reconsume_times))
        return Later(delay_level=1) if message.reconsume_times == 0 else None

    async with (
        Producer("p", settings=tenant) as producer,
        PushConsumer("g", listener, settings=tenant, start_from="first").subscribe("Orders"),
    ):
        await producer.send(Message("Orders", b"again"))
        await eventually(lambda: len(seen) == 2)

    assert seen == [("Orders", "Orders", 0), ("Orders", "%RETRY%g", 1)]


async def test_orderly_consumers_lock_and_are_reset_by_the_brokers_names(
    lab: Lab, seen: Seen, tenant: ClientSettings
) -> None:
    async with (
        Producer("p", settings=tenant) as producer,
        PushConsumer("g", seen.coroutine, settings=tenant, orderly=True, start_from="first").subscribe("T"),
    ):
        sent = await producer.send(Message("T", b"once"))
        await seen.reaches(1)
        broker = lab.cluster.broker.broker
        locked = MessageQueue("tenant%T", "broker-a", sent.queue.queue_id)
        assert broker.locks.owner("tenant%g", locked, broker.monotonic()) is not None
        await lab.puller.session.call(
            lab.cluster.broker.address,
            api.INVOKE_BROKER_TO_RESET_OFFSET,
            ResetOffset(topic="tenant%T", group="tenant%g", timestamp=0, is_force=True),
        )
        await seen.reaches(2)

    assert seen.bodies == [b"once", b"once"]


@pytest.mark.slow
async def test_a_broker_that_asks_finds_the_producer_of_a_transaction(
    tmp_path: Path, seen: Seen, tenant: ClientSettings
) -> None:
    config = small_broker()
    config.transaction_check_interval = config.transaction_time_out = 100
    asked: list[str] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.topic)
        return TransactionState.COMMIT

    async def undecided(message: Message, transaction_id: str) -> TransactionState:
        return TransactionState.UNKNOWN

    async with Cluster(tmp_path / "asking", broker=config) as cluster:
        own = replace(tenant, nameserver=cluster.address)
        async with (
            TransactionProducer("p", check, settings=own) as producer,
            PushConsumer("g", seen.coroutine, settings=own, start_from="first").subscribe("T"),
        ):
            await producer.send_in_transaction(Message("T", b"in the end"), undecided)
            await seen.reaches(1, within=60)

    assert seen.bodies == [b"in the end"]
    assert set(asked) == {"T"}


async def test_a_question_and_its_answer(lab: Lab, tenant: ClientSettings) -> None:
    async with Producer("asking", settings=tenant) as asking, Producer("answering", settings=tenant) as answering:

        async def listener(message: ReceivedMessage) -> None:
            await answering.reply(message, b"and " + message.body)

        async with PushConsumer("g", listener, settings=tenant, start_from="first").subscribe("Questions"):
            answer = await asking.request(Message("Questions", b"how"), timeout=20)

    assert answer.body == b"and how"


async def test_tenants_on_one_machine_keep_their_own_positions(
    lab: Lab, tenant: ClientSettings, tmp_path: Path
) -> None:
    """A broadcasting consumer's file has the brokers' names, as Java's has."""
    folder = tmp_path / "offsets"
    await lab.send("T", b"of nobody")
    async with Producer("p", settings=tenant) as producer:
        await producer.send(Message("T", b"of the tenant"))

    async def consume(settings: ClientSettings) -> list[bytes]:
        seen = Seen()
        consumer = PushConsumer(
            "g", seen.coroutine, settings=settings, broadcast=True, offset_folder=folder, start_from="first"
        )
        async with consumer.subscribe("T"):
            await seen.reaches(1)
        return seen.bodies

    assert await consume(tenant) == [b"of the tenant"]
    assert await consume(replace(tenant, namespace=None)) == [b"of nobody"]
    async with Producer("p", settings=tenant) as producer:
        await producer.send(Message("T", b"one more"))
    assert await consume(tenant) == [b"one more"], "it goes on where it was"
    assert {path.parent.name for path in folder.glob("*/*/offsets.json")} == {"g", "tenant%g"}
    (stored,) = folder.glob("*/tenant%g/offsets.json")
    assert '"topic":"tenant%T"' in stored.read_text()


async def test_a_unit_is_told_to_brokers(lab: Lab, seen: Seen) -> None:
    unit = ClientSettings(nameserver=lab.address, unit_name="west", unit_mode=True)
    async with (
        Producer("p", settings=unit) as producer,
        PushConsumer("g", seen.coroutine, settings=unit, start_from="first").subscribe("T") as consumer,
    ):
        await producer.send(Message("T", b"x"))
        await seen.reaches(1)
        assert producer.session.client_id.endswith("@west")
        assert consumer.queues

    topics = lab.cluster.broker.broker.topics.table
    assert topics["T"].topic_sys_flag & 1, "of a unit"
    assert topics["%RETRY%g"].topic_sys_flag & 2, "of a subscription in a unit"
