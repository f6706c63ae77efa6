"""Figures for Prometheus."""

from __future__ import annotations

import asyncio
import json
import math
import re
import sys

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from eruca.client import (
    Later,
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PullScheduleService,
    PushConsumer,
    QueueLag,
    ReceivedMessage,
    Reject,
    TransactionProducer,
    TransactionState,
)
from eruca.client.errors import BadConfig, BrokerRefused, TopicNotFound, UsageError
from eruca.client.metrics import Prometheus
from tests.client.conftest import Lab, eventually
from tests.support.examples import DOCS
from tests.support.scripted import Scripted

RESULTS = ("SEND_OK", "ONEWAY", "ERROR")


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"rocketmq_client_{name}", labels)


async def test_what_is_sent(lab: Lab) -> None:
    registry = CollectorRegistry()
    async with Producer("p", nameserver=lab.address, hooks=[Prometheus(registry)]) as producer:
        await producer.send(Message("T", b"12345"))
        await producer.send_batch([Message("T", b"1"), Message("T", b"2")])
        await producer.send_oneway(Message("T", b"1"))
    async with Scripted() as server:
        server.knows("T", server)
        server.answers.append(13)
        async with Producer("p", nameserver=server.address, hooks=[Prometheus(registry)]) as producer:
            with pytest.raises(BrokerRefused):
                await producer.send(Message("T", b"1"))
    sent = {each: value(registry, "sent_messages_total", group="p", topic="T", result=each) for each in RESULTS}
    assert sent == {"SEND_OK": 3, "ONEWAY": 1, "ERROR": 1}
    assert value(registry, "send_seconds_count", group="p", topic="T") == 4


async def test_what_no_nameserver_knows_counts_as_an_error() -> None:
    registry = CollectorRegistry()
    async with Scripted() as server, Producer("p", nameserver=server.address, hooks=[Prometheus(registry)]) as producer:
        with pytest.raises(TopicNotFound):
            await producer.send(Message("Nowhere", b"12345"))
    assert value(registry, "sent_messages_total", group="p", topic="Nowhere", result="ERROR") == 1
    assert not value(registry, "sent_bytes_total", group="p", topic="Nowhere")


async def test_what_is_consumed_and_what_waits(lab: Lab) -> None:
    release = asyncio.Event()

    async def listener(message: ReceivedMessage) -> Later | None:
        await release.wait()
        return Later() if message.body == b"later" else None

    registry = CollectorRegistry()
    metrics = Prometheus(registry)
    await lab.send("T", b"ok", b"ok", b"later", b"ok")
    consumer = PushConsumer("g", listener, nameserver=lab.address, hooks=[metrics]).subscribe("T")
    metrics.watch(consumer)
    async with consumer:
        await eventually(lambda: value(registry, "waiting_messages", group="g", topic="T") == 4)
        assert (value(registry, "waiting_bytes", group="g", topic="T") or 0) > 100
        release.set()
        await eventually(lambda: value(registry, "consume_seconds_count", group="g", topic="T") == 4)
    assert value(registry, "consumed_messages_total", group="g", topic="T", result="SUCCESS") == 3
    assert value(registry, "consumed_messages_total", group="g", topic="T", result="FAILED") == 1


async def test_transactions(lab: Lab) -> None:
    async def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    registry = CollectorRegistry()
    hooks = [Prometheus(registry)]
    async with TransactionProducer("p", check, nameserver=lab.address, hooks=hooks) as producer:
        await producer.send_in_transaction(Message("T", b"x"), lambda _, __: TransactionState.COMMIT)
    assert value(registry, "transactions_total", group="p", topic="T", state="COMMIT") == 1


async def test_what_became_of_messages_and_of_every_kind_of_consumer(lab: Lab) -> None:
    async def reject(message: ReceivedMessage) -> Reject | Later:
        return Reject("no") if message.body == b"bad" else Later(delay_level=18)

    registry = CollectorRegistry()
    metrics = Prometheus(registry)
    await lab.send("T", b"bad", b"late", b"bad")
    push = PushConsumer("g", reject, nameserver=lab.address, start_from="first", hooks=[metrics]).subscribe("T")
    lite = LitePullConsumer("l", nameserver=lab.address, start_from="first").subscribe("T")
    pull = PullConsumer("p", nameserver=lab.address)
    schedule = PullScheduleService("s", nameserver=lab.address)
    schedule.register_pull_task_callback("T", lambda queue, context: None)
    for consumer in (push, lite, pull, schedule):
        metrics.watch(consumer)
    async with push, lite, pull, schedule:
        await eventually(lambda: value(registry, "handled_messages_total", group="g", topic="T", outcome="dead") == 2)
        await eventually(lambda: value(registry, "pulled_messages_total", group="l", topic="T") == 3)
        await eventually(
            lambda: [value(registry, "assigned_queues", group=each, topic="T") for each in "gls"] == [4] * 3
        )
        await eventually(
            lambda: value(registry, "handled_messages_total", group="g", topic="T", outcome="retried") == 1
        )
    assert value(registry, "dead_letters_total", group="g", topic="T") == 2
    assert value(registry, "handled_messages_total", group="g", topic="T", outcome="failed") == 3
    assert value(registry, "pulled_messages_total", group="g", topic="T") == 3


def test_what_cannot_be_watched_is_refused() -> None:
    with pytest.raises(UsageError, match="A Producer cannot be watched: a consumer is expected"):
        Prometheus(CollectorRegistry()).watch(Producer("p", nameserver="mq:1"))  # type: ignore[arg-type]


async def test_connections_that_were_opened_again(lab: Lab) -> None:
    registry = CollectorRegistry()
    Prometheus(registry)
    broker = lab.cluster.broker
    async with Producer("p", nameserver=lab.address) as producer:
        sent = await producer.send(Message("T", b"x"))
        address = await producer.session.directory.master(sent.queue.broker_name, "T")
        connection = producer.session.channels.ready(address)
        assert connection is not None and broker is not None
        connection.abort()
        await producer.send(Message("T", b"x"))
        assert value(registry, "reconnects_total", broker=address) == 1


async def test_every_query_of_the_board_finds_its_figures_with_its_labels(lab: Lab) -> None:
    """In what a registry shows: names of metrics, and the labels by which a query filters and sums."""

    async def reject(message: ReceivedMessage) -> Reject:
        return Reject("no")

    registry = CollectorRegistry()
    metrics = Prometheus(registry)
    push = PushConsumer("g", reject, nameserver=lab.address, start_from="first", hooks=[metrics]).subscribe("T")
    metrics.watch(push)
    undecided = TransactionProducer("p", lambda _: TransactionState.UNKNOWN, nameserver=lab.address, hooks=[metrics])
    async with undecided as producer, push:
        await producer.send_in_transaction(Message("T", b"x"), lambda _, __: TransactionState.COMMIT)
        address = await producer.session.directory.master("broker-a", "T")
        connection = producer.session.channels.ready(address)
        assert connection is not None
        connection.abort()
        await producer.send(Message("T", b"x"))
        metrics.show_lag("g", [QueueLag(MessageQueue("T", "broker-a", 0), 10, 4, 2.5)])
        await eventually(lambda: (value(registry, "dead_letters_total", group="g", topic="T") or 0) > 0)
        samples = [sample for family in registry.collect() for sample in family.samples]
    labels = {sample.name: set(sample.labels) for sample in samples if not sample.name.endswith("_created")}
    board = json.loads((DOCS.parent / "deploy/monitoring/grafana/dashboards/clients.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    shown = set()
    for query in queries:
        (name,) = re.findall(r"rocketmq_client_\w+", query)
        shown.add(name.removesuffix("_bucket"))
        filtered = re.findall(r'(\w+)!?="', query)
        grouped = [each for by in re.findall(r"by \(([^)]*)\)", query) for each in by.split(", ")]
        assert {*filtered, *grouped} <= labels[name], query
    assert shown == {re.sub("_(bucket|sum|count)$", "", name) for name in labels}, "every figure is on the board"


def test_an_unknown_lag_is_not_a_number() -> None:
    registry = CollectorRegistry()
    queue = MessageQueue("T", "broker-a", 0)
    labels = {"group": "g", "topic": "T", "broker": "broker-a", "queue": "0"}
    metrics = Prometheus(registry)
    metrics.show_lag("g", [QueueLag(queue, 10, 4, 2.5)])
    assert (value(registry, "lag_messages", **labels), value(registry, "lag_seconds", **labels)) == (6, 2.5)
    metrics.show_lag("g", [QueueLag(queue, 10, None, None)])
    assert math.isnan(value(registry, "lag_messages", **labels) or 0)
    assert b'rocketmq_client_lag_seconds{broker="broker-a",group="g",queue="0",topic="T"} NaN' in generate_latest(
        registry
    )


def test_without_prometheus_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(BadConfig, match=r'not installed: run `pip install "eruca-client\[prometheus\]"`'):
        Prometheus()


def test_the_metrics_are_those_of_the_page() -> None:
    registry = CollectorRegistry()
    Prometheus(registry)
    names = {family.name + ("_total" if family.type == "counter" else "") for family in registry.collect()}
    assert names == set(re.findall(r"`(rocketmq_client_\w+)`", (DOCS / "observability.md").read_text()))
